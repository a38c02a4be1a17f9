// SPDX-License-Identifier: Apache-2.0

package power

import (
	"flag"
	"math/rand/v2"
	"strconv"
	"testing"
	"time"

	"github.com/energyreceiver/energyreceiver/internal/units"
)

var otherHistories = flag.Int("other.histories", 25, "histories of 1000 intervals in TestOtherAgreesWithTheReferenceWhateverHappens")

// simulated is a zone with its true energy and the meter that reads it.
type simulated struct {
	id      string // the ID of each of the zone's meters
	kind    Kind
	watts   float64
	energy  []float64 // true, in µJ, at the end of each interval
	scale   float64   // of what the meter counts
	every   time.Duration
	lag     time.Duration // of what the meter says behind its time
	drift   float64       // of the meter's clock, seconds a second
	next    time.Duration // when the meter is read next
	failing int           // intervals
	absent  int           // intervals
	offset  units.Energy  // the meter's count when it was first read, and what it missed
	unread  bool          // not read since it is another meter
	reading Reading
	last    time.Time // of the last reading, also of the meter before
	gapFrom time.Time
}

// history simulates one machine.
type history struct {
	*testing.T
	seed      uint64
	rng       *rand.Rand
	now       time.Duration
	interval  time.Duration
	zones     []*simulated
	remainder Remainder

	// The reference:
	known    map[*Zone]*simulatedTrack
	wholes   map[*Zone]bool // at the last read
	kind     Kind           // theirs
	settled  time.Time
	restart  bool
	whole    int64 // since the start, of the times that are settled
	parts    int64
	total    units.Energy
	waiting  time.Duration // since when there is a reading of the whole that is not settled
	waits    bool
	deficits int
	restarts int
	settles  int
	paidBack int
}

// simulatedTrack is the reference's state of a meter.
type simulatedTrack struct {
	record     []point
	settled    units.Energy
	unmeasured time.Duration
	gaps       [][2]time.Time // between readings
}

func newHistory(t *testing.T, seed uint64) *history {
	h := &history{T: t, seed: seed, rng: rand.New(rand.NewPCG(seed, 7)), known: map[*Zone]*simulatedTrack{}, wholes: map[*Zone]bool{}}
	h.interval = []time.Duration{time.Second, 3 * time.Second, 10 * time.Second}[h.rng.IntN(3)]
	h.add(Package, 40+200*h.rng.Float64(), h.interval)
	if h.rng.IntN(2) == 0 {
		h.add(Package, 40+200*h.rng.Float64(), h.interval)
	}
	h.add(DRAM, 30*h.rng.Float64(), h.interval)
	for range h.rng.IntN(5) { // graphics cards, some read with each interval and some by slow meters
		every := h.interval
		if h.rng.IntN(2) == 0 {
			every = h.period()
		}
		h.add(GPU, 300*h.rng.Float64(), every)
	}
	for range 1 + h.rng.IntN(4)/3 {
		z := h.add(Platform, 0, h.period())
		z.scale = 0.97 + 0.05*h.rng.Float64()
		z.drift = 2e-4 * (h.rng.Float64() - 0.5)
		if h.rng.IntN(3) == 0 {
			z.lag = time.Duration(h.rng.Int64N(int64(30 * time.Second)))
		}
	}
	if h.rng.IntN(3) == 0 {
		h.add(PSys, 0, h.interval)
	}
	return h
}

// period returns how often a slow meter is read.
func (h *history) period() time.Duration {
	return time.Second + time.Duration(h.rng.Int64N(int64(20*time.Second)))
}

func (h *history) add(k Kind, watts float64, every time.Duration) *simulated {
	z := &simulated{id: string(k) + strconv.Itoa(len(h.zones)), kind: k, watts: watts, every: every, scale: 1}
	if every != h.interval {
		z.next = h.interval + 1 // a slow meter has no reading before the others have one
	}
	z.replace()
	h.zones = append(h.zones, z)
	return z
}

func platforms(zones []*simulated) (out []*simulated) {
	for _, z := range zones {
		if z.kind == Platform {
			out = append(out, z)
		}
	}
	return out
}

// replace gives the zone another meter.
func (z *simulated) replace() {
	z.reading = Reading{Zone: &Zone{ID: z.id, Kind: z.kind, Method: Measured, MaxWatts: 1000}}
	z.unread = true
}

// at returns the true energy of a zone after the start, for a time in the last interval or before.
func (h *history) at(z *simulated, t time.Duration) float64 {
	i := int(max(t, 0) / h.interval)
	if i+1 >= len(z.energy) {
		return z.energy[len(z.energy)-1]
	}
	part := float64(max(t, 0)%h.interval) / float64(h.interval)
	return z.energy[i] + part*(z.energy[i+1]-z.energy[i])
}

// step simulates an interval, and has the zone other read.
func (h *history) step() {
	h.use()
	h.now += h.interval
	var readings []Reading
	for _, z := range h.zones {
		h.disturb(z)
		h.read(z)
		if z.absent == 0 {
			readings = append(readings, z.reading)
		}
		z.reading.Event = NoEvent
	}
	n := len(readings)
	h.note(readings)
	readings = h.remainder.add(readings, after(h.now))
	if len(h.remainder.tracks) > len(h.zones) {
		h.Fatalf("history %d after %v: %d tracks of %d zones", h.seed, h.now, len(h.remainder.tracks), len(h.zones))
	}
	if len(readings) > n {
		h.check(&readings[n])
	}
}

// use adds the energy of an interval: that of the platform is 100 W more than that of its parts,
// graphics cards included, and that of psys 20 W more than that of its parts.
func (h *history) use() {
	if len(h.zones[0].energy) == 0 {
		for _, z := range h.zones {
			z.energy = []float64{0}
		}
	}
	parts, cards := 0.0, 0.0
	for _, z := range h.zones {
		if isWhole(z.kind) {
			continue
		}
		load := h.rng.Float64()
		used := z.watts * load * h.interval.Seconds() * 1e6
		z.energy = append(z.energy, z.energy[len(z.energy)-1]+used)
		if z.kind == GPU {
			cards += used
		} else {
			parts += used
		}
	}
	for _, z := range h.zones {
		last := len(z.energy) - 1
		switch z.kind {
		case Platform:
			z.energy = append(z.energy, z.energy[last]+(parts+cards+100*h.interval.Seconds()*1e6)/float64(len(platforms(h.zones))))
		case PSys:
			z.energy = append(z.energy, z.energy[last]+parts+20*h.interval.Seconds()*1e6)
		}
	}
}

// disturb has a meter fail, vanish, be replaced or miss some time.
func (h *history) disturb(z *simulated) {
	z.failing, z.absent = max(z.failing-1, 0), max(z.absent-1, 0)
	of := 600
	if z.kind == GPU { // come and go more often
		of = 200
	}
	switch h.rng.IntN(of) {
	case 0, 1, 2:
		z.failing = 1 + h.rng.IntN(40)
	case 3:
		z.absent = 1 + h.rng.IntN(20)
	case 4:
		z.replace()
	case 5:
		if !z.unread {
			z.gapFrom = z.reading.At
		}
	}
}

// read has a meter read its zone if it is time.
func (h *history) read(z *simulated) {
	if z.failing > 0 {
		z.reading.Err = errUnreadable
		return
	}
	z.reading.Err = nil
	if h.now < z.next {
		return
	}
	at := h.now
	if z.every != h.interval { // asked some time in the interval, of its own clock
		at -= time.Duration(h.rng.Int64N(int64(h.interval)))
		z.next = at + z.every
	}
	count := units.Energy(h.at(z, at-z.lag) * z.scale)
	stamp := after(at + time.Duration(z.drift*float64(at)))
	if stamp.Sub(z.last) < pointSpacing && !z.last.IsZero() { // so that no reading is forgotten
		return
	}
	z.last = stamp
	if z.unread {
		z.unread, z.offset, z.gapFrom = false, count, time.Time{}
	}
	total := count - z.offset
	if !z.gapFrom.IsZero() { // it missed what was used since the last reading
		z.offset += total - z.reading.Total
		total = z.reading.Total
		z.reading.Unmeasured += stamp.Sub(z.gapFrom)
		z.gapFrom = time.Time{}
	}
	z.reading.At, z.reading.Total = stamp, total
}

// note has the reference note the readings.
func (h *history) note(readings []Reading) {
	kind, wholes := PSys, map[*Zone]bool{}
	for i := range readings {
		if r := &readings[i]; r.Zone.Kind == Platform && !r.At.IsZero() {
			kind = Platform
		}
	}
	fresh, failing := false, false
	for i := range readings {
		r := &readings[i]
		if r.At.IsZero() {
			continue
		}
		track := h.known[r.Zone]
		if track == nil {
			track = &simulatedTrack{settled: r.Total, unmeasured: r.Unmeasured}
			h.known[r.Zone] = track
		}
		if n := len(track.record); n == 0 || !track.record[n-1].at.Equal(r.At) {
			if r.Unmeasured > track.unmeasured {
				track.gaps = append(track.gaps, [2]time.Time{track.record[n-1].at, r.At})
				track.unmeasured = r.Unmeasured
			}
			track.record = append(track.record, point{r.At, r.Total})
		}
		if r.Zone.Kind == kind {
			wholes[r.Zone] = true
			fresh = fresh || r.At.After(h.settled)
			failing = failing || r.Err != nil
		}
	}
	same := len(wholes) == len(h.wholes)
	for z := range wholes {
		same = same && h.wholes[z]
	}
	h.wholes, h.kind, h.restart = wholes, kind, h.restart || !same
	if !fresh || failing || !same {
		h.waits = false
	} else if !h.waits {
		h.waits, h.waiting = true, h.now
	}
}

// value returns what a meter counted until a time by interpolation, or has counted if it was not read since.
func (track *simulatedTrack) value(at time.Time) units.Energy {
	for i := len(track.record) - 1; i >= 0; i-- {
		p := track.record[i]
		switch {
		case p.at.Before(at) && i == len(track.record)-1, p.at.Equal(at):
			return p.total
		case p.at.Before(at):
			next := track.record[i+1]
			return p.total + units.Energy(units.MulDiv(uint64(next.total-p.total), uint64(at.Sub(p.at)), uint64(next.at.Sub(p.at))))
		}
	}
	return track.record[0].total
}

// check compares the zone other with the reference.
func (h *history) check(r *Reading) {
	switch {
	case r.Total < h.total:
		h.Fatalf("history %d after %v: total went from %d down to %d", h.seed, h.now, h.total, r.Total)
	case r.At.Before(h.settled):
		h.Fatalf("history %d after %v: brought up to date at %v, and at %v before", h.seed, h.now, r.At, h.settled)
	case r.At.Equal(h.settled):
		if r.Total != h.total {
			h.Fatalf("history %d after %v: total went from %d to %d at the same time", h.seed, h.now, h.total, r.Total)
		}
		if patience := partPatience + 22*time.Second + 2*h.interval; h.waits && len(h.wholes) == 1 && h.now-h.waiting > patience {
			h.Fatalf("history %d after %v: the zone waits since %v", h.seed, h.now, h.waiting)
		}
		return
	}
	h.settles++
	h.waits = false
	restart := h.restart || h.settled.IsZero()
	var whole, parts int64
	for z, track := range h.known {
		isPart := z.Kind == Package || z.Kind == DRAM || z.Kind == GPU && h.kind == Platform
		if !isPart && !h.wholes[z] {
			continue
		}
		value := track.value(r.At)
		grown := int64(value) - int64(track.settled)
		track.settled = value
		if isPart {
			parts += grown
			continue
		}
		whole += grown
		for _, gap := range track.gaps {
			restart = restart || gap[0].Before(r.At) && gap[1].After(h.settled)
		}
	}
	if !restart {
		h.whole += whole
		h.parts += parts
	} else {
		h.restarts++
	}
	deficit := h.remainder.Deficit()
	if balance := h.whole - h.parts; int64(r.Total)-int64(deficit) != balance {
		h.Fatalf("history %d after %v: total %d, deficit %d, whole %d, parts %d", h.seed, h.now, r.Total, deficit, h.whole, h.parts)
	}
	switch {
	case deficit == 0 && h.parts+int64(r.Total) != h.whole:
		h.Fatalf("history %d after %v: parts %d + other %d are not the whole %d", h.seed, h.now, h.parts, r.Total, h.whole)
	case deficit > 0 && r.Total != h.total:
		h.Fatalf("history %d after %v: total grew from %d to %d in spite of a deficit of %d", h.seed, h.now, h.total, r.Total, deficit)
	case deficit > 0:
		h.deficits++
	case r.Total > h.total && h.deficits > 0:
		h.paidBack++
	}
	h.total, h.settled, h.restart = r.Total, r.At, false
}

// The meters' clocks drift, lag and disagree, and meters fail, vanish, miss some time and are
// replaced. The total never goes down, follows the reference to the microjoule, and parts and other
// add up to the whole whenever the deficit is 0.
func TestOtherAgreesWithTheReferenceWhateverHappens(t *testing.T) {
	var settles, deficits, restarts, paidBack int
	for seed := range uint64(*otherHistories) {
		h := newHistory(t, seed)
		for range 1000 {
			h.step()
		}
		settles, deficits, restarts, paidBack = settles+h.settles, deficits+h.deficits, restarts+h.restarts, paidBack+h.paidBack
	}
	t.Logf("%d intervals, %d times settled, %d of them with a deficit, %d times it was paid back, %d restarts",
		1000**otherHistories, settles, deficits, paidBack, restarts)
	if deficits == 0 || paidBack == 0 || restarts == 0 {
		t.Error("the simulation shows nothing")
	}
}

func FuzzRemainder(f *testing.F) {
	f.Add([]byte{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23})
	f.Add([]byte("\x00\x10\xff\x01\x10\x20\x00\x20\x80\x01\x20\x30\x07\x00\x00\x00\x30\x90"))
	f.Fuzz(func(t *testing.T, data []byte) {
		kinds := []Kind{Platform, Package, Platform, PSys, DRAM, GPU, Core, Package}
		readings := make([]Reading, len(kinds))
		for i, k := range kinds {
			readings[i].Zone = &Zone{Kind: k, Method: Measured}
		}
		var m Remainder
		var now time.Duration
		var total units.Energy
		for ; len(data) >= 3; data = data[3:] {
			r := &readings[int(data[0])%len(readings)]
			now += time.Duration(data[1]&15) * time.Second
			switch data[0] >> 5 {
			case 0:
				r.Zone = &Zone{Kind: r.Zone.Kind, Method: Measured}
			case 1:
				r.At = time.Time{}
			case 2:
				r.Unmeasured++
			case 3:
				r.Total = units.Energy(data[2]) << 56
			default:
				r.Total += units.Energy(data[2]) << (data[1] >> 3)
			}
			if data[0]>>5 != 1 {
				r.At = after(now - time.Duration(data[1]>>4)*time.Second)
			}
			got := m.add(readings[:len(readings):len(readings)], after(now))
			if len(got) == len(readings) {
				continue
			}
			other := got[len(readings)]
			if other.Total < total || other.Total > maxBalance || m.Deficit() > 2*maxBalance {
				t.Fatalf("total went from %d to %d, deficit %d", total, other.Total, m.Deficit())
			}
			total = other.Total
		}
	})
}
