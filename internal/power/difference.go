// SPDX-License-Identifier: Apache-2.0

package power

import (
	"slices"
	"time"

	"github.com/energyreceiver/energyreceiver/internal/units"
)

// difference is the energy of a whole without its parts; see Remainder. The user of a difference
// marks the tracks that belong to the whole or are a part.
type difference struct {
	tracks []*track // one for each zone that was ever read

	// candidate is the end of the time that settle adds next: the time of the first reading of the whole after settled.
	// It is zero before this reading.
	candidate time.Time
	proposed  time.Time // sample time when the candidate was chosen
	restart   bool      // settle leaves out the time from settled to candidate: the whole changed or missed a part of it

	settled time.Time    // time of balance and total; zero before the first settle
	balance int64        // D at the time settled, in µJ
	total   units.Energy // the largest balance
}

const (
	// partPatience is how long a part is waited for.
	partPatience = 2 * time.Minute
	// maxStep bounds the energy that a zone adds to the balance at once, in µJ. maxBalance bounds the
	// balance, in µJ. They prevent overflows.
	maxStep    = 1 << 54
	maxBalance = 1 << 61
)

// track returns the track of the zone of a reading. A zone with the ID and the kind of a zone that
// is no longer read is the same hardware, read in another way: it takes over the track.
func (d *difference) track(r *Reading, readings []Reading) *track {
	var before *track
	for _, t := range d.tracks {
		if t.zone == r.Zone {
			return t
		}
		if t.zone.ID == r.Zone.ID && t.zone.Kind == r.Zone.Kind {
			before = t
		}
	}
	if before != nil && !slices.ContainsFunc(readings, func(r Reading) bool { return r.Zone == before.zone }) {
		before.replace(r)
		return before
	}
	t := &track{zone: r.Zone, points: make([]point, 0, maxPoints)}
	d.tracks = append(d.tracks, t)
	return t
}

// setWhole sets whether a track belongs to the whole. A change leaves out the time since settled,
// because the energy of the new whole before its first reading is not available.
func (d *difference) setWhole(t *track, whole bool) {
	if t.whole != whole {
		t.whole = whole
		d.restart, d.candidate = true, time.Time{}
	}
}

// propose sets the candidate to the time of the whole's last reading, unless a candidate is set. If
// the whole has several zones, the first zone counts. propose reports whether a candidate is set.
func (d *difference) propose(now time.Time) bool {
	if !d.candidate.IsZero() {
		return true
	}
	first := d.tracks[slices.IndexFunc(d.tracks, func(t *track) bool { return t.whole })]
	at := first.last().at
	if !at.After(d.settled) && !first.setBack {
		return false
	}
	d.candidate, d.proposed = at, now
	d.restart = d.restart || first.setBack
	first.setBack = false
	for _, t := range d.tracks {
		t.known = false
	}
	return true
}

// settle advances the total to the candidate. It waits until all zones of the whole, and all parts
// that are not abandoned, have a reading at the candidate or later. It reports whether it advanced
// the total, with the energy of the whole and the time since the total was last settled.
func (d *difference) settle(now time.Time) (whole int64, elapsed time.Duration, settled bool) {
	if !d.propose(now) {
		return 0, 0, false
	}
	complete, patient := true, now.Sub(d.proposed) < partPatience
	for _, t := range d.tracks {
		if t.whole || t.part {
			complete = t.resolve(d.candidate, patient) && complete
		}
		if t.whole && t.missedBetween(d.settled, d.candidate) {
			d.restart = true
		}
	}
	if !complete {
		return 0, 0, false
	}
	var parts int64
	for _, t := range d.tracks {
		switch {
		case t.whole:
			whole += t.settle()
		case t.part:
			parts += t.settle()
		}
	}
	elapsed, settled = d.candidate.Sub(d.settled), !d.restart
	if settled {
		d.balance = min(max(d.balance+whole-parts, -maxBalance), maxBalance)
		d.total = max(d.total, units.Energy(max(d.balance, 0)))
	}
	d.settled, d.candidate, d.restart = d.candidate, time.Time{}, false
	return whole, elapsed, settled
}

// track holds the readings of a whole or a part.
type track struct {
	zone    *Zone
	base    units.Energy // total of the track when the total of the zone was 0
	present bool         // the readings contain the zone
	whole   bool         // the zone belongs to the whole
	part    bool         // the zone is a part
	// abandoned marks a part that had no new reading for partPatience. settle does not wait for the
	// part until it has a new reading.
	abandoned bool
	resumed   bool // the first point was restored from a state

	points     []point // readings, by time
	unmeasured time.Duration
	missed     [][2]time.Time // pairs of successive readings with unmeasured time between them
	setBack    bool           // the clock of the readings was set back

	settled units.Energy // total at the time that was last settled, at first the total of the first reading
	value   units.Energy // total at the candidate, valid if known is set
	known   bool
}

// point is a zone's total at a time.
type point struct {
	at    time.Time
	total units.Energy
}

// A track keeps its last two points and maxPoints-2 earlier points that are at least pointSpacing
// apart. The earlier points are needed because a reading of the whole may arrive late.
const (
	maxPoints    = 160 // covers MaxLag and the time between two readings of the whole
	pointSpacing = time.Second
)

func (t *track) last() *point { return &t.points[len(t.points)-1] }

// replace makes the zone of a reading the zone of the track. A part continues with the track's last
// total, because some of it may not be settled yet. A whole starts over.
func (t *track) replace(r *Reading) {
	if isWhole(r.Zone.Kind) {
		*t = track{zone: r.Zone, points: t.points[:0]}
		return
	}
	t.zone, t.unmeasured = r.Zone, r.Unmeasured
	t.base = t.last().total - r.Total // modulo 2^64
}

// update adds a reading.
func (t *track) update(r *Reading) {
	t.present = true
	p := point{r.At, t.base + r.Total}
	if len(t.points) == 0 && !r.since.IsZero() && r.since.Before(r.At) {
		t.points, t.resumed, t.unmeasured = append(t.points, point{r.since, 0}, p), true, r.Unmeasured
		return
	}
	if len(t.points) == 0 {
		t.points, t.settled, t.unmeasured = append(t.points, p), p.total, r.Unmeasured
		return
	}
	last := *t.last()
	if p.at.Equal(last.at) {
		return
	}
	t.abandoned = false
	if r.Unmeasured > t.unmeasured || r.Event == Rebased {
		t.missed = append(t.missed[max(0, len(t.missed)+1-maxPoints):], [2]time.Time{last.at, p.at})
		t.unmeasured = r.Unmeasured
	}
	if p.at.Before(last.at) {
		t.points, t.setBack = t.points[:0], true
	}
	t.add(p)
}

func (t *track) add(p point) {
	n := len(t.points)
	switch {
	case n >= 3 && t.points[n-2].at.Sub(t.points[n-3].at) < pointSpacing:
		t.points[n-2] = t.points[n-1]
		t.points = t.points[:n-1]
	case n == maxPoints:
		copy(t.points, t.points[1:])
		t.points = t.points[:n-1]
	}
	t.points = append(t.points, p)
}

// missedBetween reports whether some of the time between two times was not measured. It removes pairs that end earlier.
func (t *track) missedBetween(from, to time.Time) bool {
	t.missed = slices.DeleteFunc(t.missed, func(gap [2]time.Time) bool { return !gap[1].After(from) })
	return slices.ContainsFunc(t.missed, func(gap [2]time.Time) bool { return gap[0].Before(to) })
}

// resolve finds the total at a time, and reports whether it found the total. For an abandoned part
// it is the last total, even if the total at the time settled before was an interpolated one.
func (t *track) resolve(at time.Time, patient bool) bool {
	switch {
	case t.known:
	case !t.last().at.Before(at):
		t.value, t.known = t.interpolate(at), true
	case !t.whole && (!t.present || t.abandoned || !patient):
		t.value, t.abandoned = t.last().total, true
	}
	return t.known || t.abandoned
}

// interpolate returns the total at a time that is not after the last point. For a time before the
// first point, it returns the total of the first point.
func (t *track) interpolate(at time.Time) units.Energy {
	i := len(t.points) - 1
	for i > 0 && !t.points[i-1].at.Before(at) {
		i--
	}
	if i == 0 {
		return t.points[0].total
	}
	a, b := t.points[i-1], t.points[i]
	gained := units.Advance(a.total, b.total)
	return a.total + units.Energy(units.MulDiv(uint64(gained), uint64(at.Sub(a.at)), uint64(b.at.Sub(a.at))))
}

// pending returns the energy since the time that was settled last.
func (t *track) pending() int64 { return int64(min(units.Advance(t.settled, t.last().total), maxStep)) }

// settle sets the settled total to the total at the candidate, and returns the increase.
func (t *track) settle() int64 {
	grown := min(units.Advance(t.settled, t.value), maxStep)
	shrunk := min(units.Advance(t.value, t.settled), maxStep)
	t.settled = t.value
	return int64(grown) - int64(shrunk)
}
