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
//
// The first and the last windows reach beyond the command. The node's energy in these windows is scaled
// to the time of the command.
type record struct {
	interval time.Duration // the length of a sample
	// counted returns the CPU time of the command until the end of the last window, and that end.
	counted func() (units.CPUTime, time.Time)

	sampled chan units.Energy // the energy of the command after a sample; may be nil

	mu       sync.Mutex
	running  bool // the command runs
	began    time.Time
	readings map[power.Class]time.Time // see start
	wall     time.Duration             // of the command, once it has ended
	used     units.CPUTime             // until the last sample
	phase    string
	cut      bool         // the next collection ends a sample
	next     string       // the phase after it
	samples  []Sample     // with energies by the index of kinds
	kinds    []kindRecord // as in feed.Window.Kinds
}

// kindRecord is a zone kind of a record.
type kindRecord struct {
	power.Class
	total, open amounts   // open is the energy since the last sample ended
	settled     int       // the samples before this one have their energy
	since       time.Time // time until which energy is reported
}

// amounts is energy in a zone kind. used is the command's, active and idle are the node's.
type amounts struct{ used, active, idle units.Energy }

func (a *amounts) add(b amounts) {
	a.used += b.used
	a.active += b.active
	a.idle += b.idle
}

// start begins the first sample at the time at. used is the CPU time of the command's group until
// then. readings has the time of the last reported energy of each kind.
func (r *record) start(at time.Time, used units.CPUTime, readings map[power.Class]time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.running, r.began, r.used, r.phase, r.next = true, at, used, phase.None, phase.None
	r.readings = readings
	for i := range r.kinds {
		k := &r.kinds[i]
		k.open, k.since = amounts{}, later(k.since, readings[k.Class])
	}
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// stop records the end of the command. The next collection ends the last sample.
func (r *record) stop() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.running, r.wall, r.cut = false, time.Since(r.began), true
}

// mark makes the next collection end a sample and begin a phase.
func (r *record) mark(name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.cut, r.next = true, name
}

// marked is called after the collection of a mark. If the collection failed, the next sample
// includes the energy until the mark.
func (r *record) marked() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.cut, r.phase = r.cut && !r.running, r.next
}

// complete ends the last sample if no collection did.
func (r *record) complete() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.cut {
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
			kind := power.Class{Zone: power.Kind(k.Zone), Method: power.Method(k.Method)}
			since, ok := r.readings[kind]
			if !ok || since.IsZero() {
				since = w.Start
			}
			r.kinds = append(r.kinds, kindRecord{Class: kind, since: since})
		}
		for i := range r.samples { // no window ended during these samples
			r.samples[i].Used, r.samples[i].NodeUsed = make([]units.Energy, len(r.kinds)), make([]units.Energy, len(r.kinds))
		}
	}
	for i := range r.kinds {
		active := units.Energy(w.Active[i])
		r.add(&r.kinds[i], w.End, amounts{active - units.Energy(w.Unattributed[i]), active, units.Energy(w.Idle[i])})
	}
	used, at := r.counted()
	until, half := at.Sub(r.began), w.End.Sub(w.Start)/2
	if r.cut && w.EndsCollection || r.running && until-r.until()+half >= r.interval {
		r.sample(until, used)
	}
}

// add adds the energy that a kind reported at the end of a window. If the command did not run all that
// time, the node's energy is scaled to the time of the command, and is at least the command's energy.
func (r *record) add(k *kindRecord, end time.Time, of amounts) {
	if of.active+of.idle == 0 {
		return
	}
	if part, whole := r.ran(k.since, end), end.Sub(k.since); !r.began.IsZero() && part < whole {
		of.active = max(of.used, units.Portion(of.active, units.Energy(part), units.Energy(whole)))
		of.idle = units.Portion(of.idle, units.Energy(part), units.Energy(whole))
	}
	k.open.add(of)
	k.since = end
}

// ran returns how long the command ran between two times.
func (r *record) ran(from, to time.Time) time.Duration {
	end := to.Sub(r.began)
	if !r.running {
		end = min(end, r.wall)
	}
	return max(end-max(from.Sub(r.began), 0), 0)
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
	if !r.running {
		end = r.wall
	}
	end = max(end, began)
	r.samples = append(r.samples, Sample{
		End: end, Wall: end - began, CPU: time.Duration(units.Advance(r.used, used)), Phase: r.phase,
		Used: make([]units.Energy, len(r.kinds)), NodeUsed: make([]units.Energy, len(r.kinds)),
	})
	r.used = max(r.used, used)
	for i := range r.kinds {
		r.settle(i)
	}
	r.cut, r.phase = false, r.next
	if r.sampled == nil {
		return
	}
	select {
	case r.sampled <- r.energy():
	default: // the previous value was not received yet
	}
}

// energy returns the energy of the command in all zones that are added up.
func (r *record) energy() units.Energy {
	zones, _ := r.zones(func(power.Class) bool { return false })
	return (&Result{Zones: zones}).Used()
}

// settleLate adds the energy that meters of some kinds reported after the last sample.
func (r *record) settleLate(isLate func(power.Class) bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range r.kinds {
		if isLate(r.kinds[i].Class) {
			r.settle(i)
		}
	}
}

// settle divides the open energy of a kind among the samples that have no energy of the kind yet.
// If there is no open energy, these samples wait for the meter's next report.
func (r *record) settle(kind int) {
	k := &r.kinds[kind]
	d := k.open
	node := d.active + d.idle
	if node == 0 {
		return
	}
	k.total.add(d)
	k.open = amounts{}
	samples := r.samples[min(k.settled, len(r.samples)-1):]
	k.settled = len(r.samples)
	parts, cpu, wall := make([]units.Energy, len(samples)), make([]uint64, len(samples)), make([]uint64, len(samples))
	for i := range samples {
		cpu[i], wall[i] = uint64(samples[i].CPU), uint64(samples[i].Wall)
	}
	units.Divide(parts, node, wall)
	for i := range samples {
		samples[i].NodeUsed[kind] += parts[i]
	}
	if slices.Max(cpu) == 0 {
		cpu = wall
	}
	units.Divide(parts, d.used, cpu)
	for i := range samples {
		samples[i].Used[kind] += parts[i]
	}
}

// zones returns the zones in the order of tables, and their indices in r.kinds. It leaves out kinds
// without energy that are not read, because another meter has taken their place.
func (r *record) zones(isRead func(power.Class) bool) (zones []Zone, kinds []int) {
	var names []string
	for i := range r.kinds {
		if k := &r.kinds[i]; k.total.active+k.total.idle > 0 || isRead(k.Class) {
			kinds, names = append(kinds, i), append(names, string(k.Zone))
		}
	}
	slices.SortFunc(kinds, func(i, j int) int {
		a, b := &r.kinds[i], &r.kinds[j]
		return cmp.Or(zone.Compare(string(a.Zone), string(b.Zone)), cmp.Compare(a.Method, b.Method))
	})
	for _, i := range kinds {
		k := &r.kinds[i]
		zones = append(zones, Zone{
			Name: string(k.Zone), Source: string(k.Method), Besides: zone.Besides(string(k.Zone), names),
			Used: k.total.used, Active: k.total.active, Idle: k.total.idle,
		})
	}
	return zones, kinds
}

// result fills the zones, the samples and the phases of a result.
func (r *record) result(into *Result, isRead func(power.Class) bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	zones, kinds := r.zones(isRead)
	into.Zones, into.Wall = zones, r.until()
	for _, s := range r.samples {
		used, nodeUsed := s.Used, s.NodeUsed
		s.Used, s.NodeUsed = make([]units.Energy, len(kinds)), make([]units.Energy, len(kinds))
		for z, kind := range kinds {
			s.Used[z], s.NodeUsed[z] = used[kind], nodeUsed[kind]
		}
		into.CPU += s.CPU
		into.Samples = append(into.Samples, s)
	}
	into.Phases = phasesOf(into.Samples)
}

// phasesOf adds up the samples by their phases, in the order of their beginnings. It returns nil
// if no sample has a phase.
func phasesOf(samples []Sample) (phases []Phase) {
	index, marked := map[string]int{}, false
	for i := range samples {
		s := &samples[i]
		name := cmp.Or(s.Phase, phase.None)
		marked = marked || name != phase.None
		at, ok := index[name]
		if !ok {
			at = len(phases)
			index[name] = at
			phases = append(phases, Phase{Name: name, Used: make([]units.Energy, len(s.Used)), NodeUsed: make([]units.Energy, len(s.Used))})
		}
		p := &phases[at]
		p.Wall += s.Wall
		p.CPU += s.CPU
		for z := range s.Used {
			p.Used[z] += s.Used[z]
			p.NodeUsed[z] += s.NodeUsed[z]
		}
	}
	if !marked {
		return nil
	}
	return phases
}
