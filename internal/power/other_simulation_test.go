// SPDX-License-Identifier: Apache-2.0

package power

import (
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/energyreceiver/energyreceiver/internal/units"
)

var otherHistories = flag.Int("other.histories", 25, "histories of 1000 intervals in TestOtherAgreesWithTheReferenceWhateverHappens")

// simulated is a zone whose meter is read at times of its own.
type simulated struct {
	id      string // the ID of each of the zone's meters
	kind    Kind
	watts   float64 // average
	every   time.Duration
	lag     time.Duration // by how much a reading is older than its read
	next    time.Duration // when the meter is read next
	failing int           // intervals
	absent  int           // intervals
	misses  bool          // the time until the next reading
	reading Reading
	last    time.Time // of the last reading, also of the meter before
}

// replace gives the zone another meter.
func (z *simulated) replace() {
	z.reading, z.misses = Reading{Zone: &Zone{ID: z.id, Kind: z.kind, Method: Measured, MaxWatts: 1000}}, false
}

// history simulates one machine.
type history struct {
	rng       *rand.Rand
	now       time.Duration
	interval  time.Duration
	zones     []*simulated
	remainder Remainder
	reference reference
}

func newHistory(seed uint64) *history {
	h := &history{rng: rand.New(rand.NewPCG(seed, 7)), reference: reference{zones: map[*Zone]*record{}}}
	h.interval = []time.Duration{time.Second, 3 * time.Second, 10 * time.Second}[h.rng.IntN(3)]
	watts := 100.0 // of the whole machine
	part := func(k Kind, most float64, every time.Duration) {
		watts += h.add(k, most*h.rng.Float64(), every).watts
	}
	for range 1 + h.rng.IntN(2) {
		part(Package, 200, h.interval)
	}
	part(DRAM, 30, h.interval)
	if h.rng.IntN(3) == 0 {
		h.add(PSys, watts, h.interval)
	}
	for range h.rng.IntN(5) { // graphics cards, some read with each interval and some by slow meters
		part(GPU, 300, []time.Duration{h.interval, h.period()}[h.rng.IntN(2)])
	}
	wholes := 1 + h.rng.IntN(4)/3
	for range wholes {
		z := h.add(Platform, watts/float64(wholes), h.period())
		if h.rng.IntN(3) == 0 {
			z.lag = time.Duration(h.rng.Int64N(int64(30 * time.Second)))
		}
	}
	return h
}

// period returns how often a slow meter is read.
func (h *history) period() time.Duration {
	return time.Second + time.Duration(h.rng.Int64N(int64(20*time.Second)))
}

func (h *history) add(k Kind, watts float64, every time.Duration) *simulated {
	z := &simulated{id: string(k) + strconv.Itoa(len(h.zones)), kind: k, watts: watts, every: every}
	if every != h.interval {
		z.next = h.interval + 1 // a slow meter has no reading before the others have one
	}
	z.replace()
	h.zones = append(h.zones, z)
	return z
}

// step simulates an interval, and compares the zone other with the reference.
func (h *history) step() error {
	h.now += h.interval
	var readings []Reading
	for _, z := range h.zones {
		h.disturb(z)
		h.read(z)
		if z.absent == 0 {
			readings = append(readings, z.reading)
		}
	}
	n := len(readings)
	h.reference.note(readings, h.now)
	readings = h.remainder.add(readings, after(h.now))
	switch {
	case len(readings) == n:
		return nil
	case readings[n].At.Equal(h.reference.settled):
		return h.reference.checkWait(&readings[n], h.now, partPatience+22*time.Second+2*h.interval)
	}
	return h.reference.check(&readings[n], h.remainder.Deficit())
}

// disturb has a meter fail, vanish, be replaced or miss some time.
func (h *history) disturb(z *simulated) {
	wasAbsent := z.absent > 0
	z.failing, z.absent = max(z.failing-1, 0), max(z.absent-1, 0)
	of := 600
	if z.kind == GPU { // come and go more often
		of = 200
	}
	switch event := h.rng.IntN(of); {
	case event < 3:
		z.failing = 1 + h.rng.IntN(40)
	case event == 3 && !wasAbsent:
		if z.absent = 1 + h.rng.IntN(90); time.Duration(z.absent)*h.interval > forgetAfter {
			z.replace() // its meter does not know it any more
		}
	case event == 4:
		z.replace()
	case event == 5:
		z.misses = true
	}
}

// read has a meter read its zone if it is time.
func (h *history) read(z *simulated) {
	if z.reading.Err = nil; z.failing > 0 {
		z.reading.Err = errUnreadable
		return
	}
	if h.now < z.next {
		return
	}
	at := h.now
	if z.every != h.interval { // asked some time in the interval
		at -= time.Duration(h.rng.Int64N(int64(h.interval)))
		z.next = at + z.every
	}
	stamp := after(at - z.lag)
	if stamp.Sub(z.last) < pointSpacing { // so that no reading is forgotten
		return
	}
	if passed := stamp.Sub(z.reading.At); !z.reading.At.IsZero() && z.misses {
		z.reading.Unmeasured += passed
	} else if !z.reading.At.IsZero() {
		z.reading.Total += units.Energy(2 * h.rng.Float64() * z.watts * float64(passed.Microseconds()))
	}
	z.reading.At, z.last, z.misses = stamp, stamp, false
}

// reference derives other by its definition, from all readings that there ever were.
type reference struct {
	zones   map[*Zone]*record
	wholes  map[*Zone]bool // at the last read
	kind    Kind           // of the wholes
	settled time.Time
	restart bool
	whole   int64 // since the start, of the times that are settled
	parts   int64
	total   units.Energy
	waits   bool // a reading of the whole is not settled
	waiting time.Duration

	deficits, restarts, paidBack int
}

// record holds all readings of a meter.
type record struct {
	points     []point
	settled    units.Energy
	unmeasured time.Duration
	gaps       [][2]time.Time // between readings
}

// note adds the readings of an interval.
func (f *reference) note(readings []Reading, now time.Duration) {
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
		f.record(r)
		if r.Zone.Kind == kind {
			wholes[r.Zone] = true
			fresh = fresh || r.At.After(f.settled)
			failing = failing || r.Err != nil
		}
	}
	same := maps.Equal(wholes, f.wholes)
	f.wholes, f.kind, f.restart = wholes, kind, f.restart || !same
	if !fresh || failing || !same {
		f.waits = false
	} else if !f.waits {
		f.waits, f.waiting = true, now
	}
}

func (f *reference) record(r *Reading) {
	z := f.zones[r.Zone]
	if z == nil {
		z = &record{settled: r.Total, unmeasured: r.Unmeasured}
		f.zones[r.Zone] = z
	}
	n := len(z.points)
	if n > 0 && z.points[n-1].at.Equal(r.At) {
		return
	}
	if r.Unmeasured > z.unmeasured {
		z.gaps = append(z.gaps, [2]time.Time{z.points[n-1].at, r.At})
		z.unmeasured = r.Unmeasured
	}
	z.points = append(z.points, point{r.At, r.Total})
}

// value returns the total at a time by interpolation, or the last total if the zone was not read since.
func (z *record) value(at time.Time) units.Energy {
	for i := len(z.points) - 1; i >= 0; i-- {
		p := z.points[i]
		switch {
		case p.at.Before(at) && i == len(z.points)-1, p.at.Equal(at):
			return p.total
		case p.at.Before(at):
			next := z.points[i+1]
			return p.total + units.Energy(units.MulDiv(uint64(next.total-p.total), uint64(at.Sub(p.at)), uint64(next.at.Sub(p.at))))
		}
	}
	return z.points[0].total
}

// settle adds the energy until a time.
func (f *reference) settle(at time.Time) {
	restart := f.restart || f.settled.IsZero()
	var whole, parts int64
	for zone, z := range f.zones {
		part := zone.Kind == Package || zone.Kind == DRAM || zone.Kind == GPU && f.kind == Platform
		if !part && !f.wholes[zone] {
			continue
		}
		value := z.value(at)
		grown := int64(value) - int64(z.settled)
		z.settled = value
		if part {
			parts += grown
			continue
		}
		whole += grown
		for _, gap := range z.gaps {
			restart = restart || gap[0].Before(at) && gap[1].After(f.settled)
		}
	}
	if restart {
		f.restarts++
	} else {
		f.whole, f.parts = f.whole+whole, f.parts+parts
	}
}

// checkWait compares a reading of the time that was settled last.
func (f *reference) checkWait(r *Reading, now, patience time.Duration) error {
	switch {
	case r.Total != f.total:
		return fmt.Errorf("total went from %d to %d at the same time", f.total, r.Total)
	case f.waits && len(f.wholes) == 1 && now-f.waiting > patience:
		return fmt.Errorf("the zone waits since %v", f.waiting)
	}
	return nil
}

// check compares a reading of a later time.
func (f *reference) check(r *Reading, deficit units.Energy) error {
	if r.At.Before(f.settled) {
		return fmt.Errorf("brought up to date at %v, and at %v before", r.At, f.settled)
	}
	f.settle(r.At)
	switch {
	case r.Total < f.total:
		return fmt.Errorf("total went from %d down to %d", f.total, r.Total)
	case int64(r.Total)-int64(deficit) != f.whole-f.parts:
		return fmt.Errorf("total %d, deficit %d, whole %d, parts %d", r.Total, deficit, f.whole, f.parts)
	case deficit > 0 && r.Total != f.total:
		return fmt.Errorf("total grew from %d to %d in spite of a deficit of %d", f.total, r.Total, deficit)
	case deficit > 0:
		f.deficits++
	case r.Total > f.total && f.deficits > 0:
		f.paidBack++
	}
	f.total, f.settled, f.restart, f.waits = r.Total, r.At, false, false
	return nil
}

// Meters lag and disagree, fail, vanish, miss some time and are replaced. The total never goes down,
// follows the reference to the microjoule, and parts and other add up to the whole whenever the
// deficit is 0.
func TestOtherAgreesWithTheReferenceWhateverHappens(t *testing.T) {
	var deficits, restarts, paidBack int
	for seed := range uint64(*otherHistories) {
		h := newHistory(seed)
		for range 1000 {
			if err := h.step(); err != nil {
				t.Fatalf("history %d after %v: %v", seed, h.now, err)
			}
		}
		deficits, restarts, paidBack = deficits+h.reference.deficits, restarts+h.reference.restarts, paidBack+h.reference.paidBack
	}
	t.Logf("%d deficits, %d times they were paid back, %d restarts", deficits, paidBack, restarts)
	if deficits == 0 || paidBack == 0 || restarts == 0 {
		t.Error("the simulation shows nothing")
	}
}

// The whole's counter grows by impossible steps, and later that of a part.
func TestOtherIsBounded(t *testing.T) {
	n, platform, pkg := newNode(t)
	last := units.Energy(0)
	for second := range 2000 {
		n.readings[platform].At, n.readings[pkg].At = after(time.Duration(second)*time.Second), after(time.Duration(second)*time.Second)
		n.readings[[]int{platform, pkg}[second/1000]].Total += 1 << 60
		r := n.read(float64(second))
		if r.Total < last || r.Total > maxBalance || n.remainder.Deficit() > 2*maxBalance {
			t.Fatalf("total went from %d to %d, deficit %d", last, r.Total, n.remainder.Deficit())
		}
		last = r.Total
	}
	assert.Positive(t, n.remainder.Deficit())
}
