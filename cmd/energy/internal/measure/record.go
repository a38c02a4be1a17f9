// SPDX-License-Identifier: Apache-2.0

package measure

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"github.com/energyreceiver/energyreceiver/cmd/energy/internal/phase"
	"github.com/energyreceiver/energyreceiver/feed"
	"github.com/energyreceiver/energyreceiver/internal/power"
	"github.com/energyreceiver/energyreceiver/internal/units"
	"github.com/energyreceiver/energyreceiver/internal/zone"
)

// record divides a run into samples, by the windows of the receiver. Its methods may be called
// concurrently.
//
// A meter that is read seldom reports the energy of several samples at once. This energy is divided
// among the samples: the command's in proportion to the CPU time that the command used in each, the
// node's in proportion to time.
type record struct {
	interval time.Duration // the length of a sample
	// counted returns the CPU time of the command until the end of the last window, and that end.
	counted func() (units.CPUTime, time.Time)

	sampled chan units.Energy // the energy of the command after a sample; may be nil

	mu      sync.Mutex
	stage   stage
	began   time.Time
	wall    time.Duration // of the command, once it has ended
	used    units.CPUTime // until the last sample
	phase   string
	cut     bool   // the next collection ends a sample
	next    string // the phase after it
	samples []Sample
	kinds   []kindRecord // by the index of feed.Window.Kinds
}

// stage is the part of a run.
type stage uint8

const (
	waiting stage = iota // the command has not started
	running
	ended
	completed // the last sample has ended
)

// kindRecord is a zone kind of a record.
type kindRecord struct {
	power.Class
	total, open    amounts        // open is the energy since the last sample ended
	settled        int            // the samples before this one have their energy
	used, nodeUsed []units.Energy // by the index of samples
}

// amounts is energy in a zone kind. used is the command's, active and idle are the node's.
type amounts struct{ used, active, idle units.Energy }

func (a *amounts) add(b amounts) {
	a.used += b.used
	a.active += b.active
	a.idle += b.idle
}

// start begins the first sample at a time until which the group of the command used some CPU time.
func (r *record) start(at time.Time, used units.CPUTime) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stage, r.began, r.used, r.phase, r.next = running, at, used, phase.None, phase.None
	for i := range r.kinds {
		r.kinds[i].open = amounts{}
	}
}

// stop records the end of the command. The next collection ends the last sample.
func (r *record) stop() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stage, r.wall, r.cut = ended, time.Since(r.began), true
}

// mark makes the next collection end a sample and begin a phase.
func (r *record) mark(name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.cut, r.next = true, name
}

// marked is called after the collection of a mark. If that failed, the next sample has the energy
// until the mark.
func (r *record) marked() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.cut, r.phase = r.stage == ended, r.next
}

// complete ends the last sample if no collection did.
func (r *record) complete() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.stage == ended {
		used, _ := r.counted()
		r.sample(r.wall, used)
	}
}

// take adds a window. It is called while the receiver waits.
func (r *record) take(w *feed.Window) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.kinds == nil {
		for _, k := range w.Kinds {
			r.kinds = append(r.kinds, kindRecord{Class: power.Class{Zone: power.Kind(k.Zone), Method: power.Method(k.Method)}})
		}
	}
	for i := range r.kinds {
		active := units.Energy(w.Active[i])
		r.kinds[i].open.add(amounts{active - units.Energy(w.Unattributed[i]), active, units.Energy(w.Idle[i])})
	}
	used, at := r.counted()
	until, half := at.Sub(r.began), w.End.Sub(w.Start)/2
	if r.cut && w.EndsCollection || r.stage == running && until-r.until()+half >= r.interval {
		r.sample(until, used)
	}
}

// until returns when the last sample ended, 0 before the first.
func (r *record) until() time.Duration {
	if n := len(r.samples); n > 0 {
		return r.samples[n-1].End
	}
	return 0
}

// sample ends a sample at a time since the start. The last sample may have begun after the end of
// the command.
func (r *record) sample(end time.Duration, used units.CPUTime) {
	began := r.until()
	if r.stage == ended {
		r.stage, end = completed, r.wall
	}
	end = max(end, began)
	r.samples = append(r.samples, Sample{
		End: end, Wall: end - began, CPU: time.Duration(units.Advance(r.used, used)), Phase: r.phase,
	})
	r.used = max(r.used, used)
	for i := range r.kinds {
		r.kinds[i].settle(r.samples)
	}
	r.cut, r.phase = false, r.next
	if r.sampled == nil {
		return
	}
	select {
	case r.sampled <- r.energy():
	default: // the energy before was not taken
	}
}

// energy returns the energy of the command in all zones that are added up.
func (r *record) energy() (used units.Energy) {
	var names []string
	for i := range r.kinds {
		if r.kinds[i].total != (amounts{}) {
			names = append(names, string(r.kinds[i].Zone))
		}
	}
	for i := range r.kinds {
		if zone.Besides(string(r.kinds[i].Zone), names) == "" {
			used += r.kinds[i].total.used
		}
	}
	return used
}

// settleLate adds the energy that meters of some kinds reported after the last sample.
func (r *record) settleLate(isLate func(power.Class) bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range r.kinds {
		if k := &r.kinds[i]; isLate(k.Class) {
			k.settle(r.samples)
		}
	}
}

// settle divides the open energy among the samples without energy. A meter that reported no energy
// may report that of these samples later.
func (k *kindRecord) settle(samples []Sample) {
	k.grow(len(samples))
	d := k.open
	node := d.active + d.idle
	if node == 0 {
		return
	}
	k.total.add(d)
	k.open = amounts{}
	from := min(k.settled, len(samples)-1)
	byCPU := func(i int) time.Duration { return samples[from+i].CPU }
	byTime := func(i int) time.Duration { return samples[from+i].Wall }
	divide(d.used, k.used[from:], byCPU, byTime)
	divide(node, k.nodeUsed[from:], byTime, byTime)
	k.settled = len(samples)
}

// grow adds samples without energy.
func (k *kindRecord) grow(samples int) {
	k.used = append(k.used, make([]units.Energy, samples-len(k.used))...)
	k.nodeUsed = append(k.nodeUsed, make([]units.Energy, samples-len(k.nodeUsed))...)
}

// divide adds energy to the parts in proportion to the weights, or to other if they are all 0.
func divide(e units.Energy, parts []units.Energy, weight, other func(i int) time.Duration) {
	for _, by := range []func(int) time.Duration{weight, other} {
		division := units.Division{Amount: uint64(e)}
		for i := range parts {
			division.Total += uint64(by(i))
		}
		if division.Total == 0 {
			continue
		}
		for i := range parts {
			parts[i] += units.Energy(division.Next(uint64(by(i))))
		}
		return
	}
	parts[len(parts)-1] += e
}

// result fills the zones, the samples and the phases of a result. A kind without energy is left out
// unless it is read: another meter has taken its place.
func (r *record) result(into *Result, isRead func(power.Class) bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	kinds := slices.DeleteFunc(slices.Clone(r.kinds), func(k kindRecord) bool {
		return k.total.active+k.total.idle == 0 && !isRead(k.Class)
	})
	slices.SortFunc(kinds, func(a, b kindRecord) int {
		return cmp.Or(zone.Compare(string(a.Zone), string(b.Zone)), cmp.Compare(a.Method, b.Method))
	})
	names := make([]string, len(kinds))
	for i := range kinds {
		names[i] = string(kinds[i].Zone)
	}
	into.Wall, into.Samples = r.until(), r.samples
	for i := range kinds {
		k := &kinds[i]
		k.grow(len(r.samples))
		into.Zones = append(into.Zones, Zone{
			Name: names[i], Source: string(k.Method), Besides: zone.Besides(names[i], names),
			Used: k.total.used, Active: k.total.active, Idle: k.total.idle,
		})
		for at := range into.Samples {
			s := &into.Samples[at]
			s.Used, s.NodeUsed = append(s.Used, k.used[at]), append(s.NodeUsed, k.nodeUsed[at])
		}
	}
	for i := range into.Samples {
		into.CPU += into.Samples[i].CPU
	}
	into.Phases = phasesOf(into.Samples, len(into.Zones))
}

// phasesOf adds up the samples by their phases, in the order in which these began. It returns nil
// if no sample is of any.
func phasesOf(samples []Sample, zones int) (phases []Phase) {
	marked := false
	for i := range samples {
		s := &samples[i]
		name := cmp.Or(s.Phase, phase.None)
		marked = marked || name != phase.None
		at := slices.IndexFunc(phases, func(p Phase) bool { return p.Name == name })
		if at < 0 {
			at = len(phases)
			phases = append(phases, Phase{Name: name, Used: make([]units.Energy, zones), NodeUsed: make([]units.Energy, zones)})
		}
		p := &phases[at]
		p.Wall += s.Wall
		p.CPU += s.CPU
		for z, e := range s.Used {
			p.Used[z] += e
		}
		for z, e := range s.NodeUsed {
			p.NodeUsed[z] += e
		}
	}
	if !marked {
		return nil
	}
	return phases
}
