// SPDX-License-Identifier: Apache-2.0

package power

import (
	"slices"
	"time"

	"github.com/energyreceiver/energyreceiver/internal/units"
)

// difference is the energy of a whole without its parts; see Remainder. The tracks that are the
// whole or a part are marked by its user.
type difference struct {
	tracks []*track // of all zones that were ever read, by ID

	// candidate is the time up to which energy is settled next: that of the first reading of the whole that was seen after
	// settled. It is zero if there is none yet.
	candidate time.Time
	proposed  time.Time // sample time at which the candidate was chosen
	restart   bool      // the time from settled to candidate is left out: the whole changed, or missed some of it

	settled time.Time    // up to when the total is known; zero before the first time
	balance int64        // D at the time settled, in µJ
	total   units.Energy // the largest balance
}

const (
	// partPatience is how long a part is waited for.
	partPatience = 2 * time.Minute
	// maxStep bounds what one zone adds to the balance at once, and maxBalance the balance, in µJ,
	// so that nothing overflows.
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

// setWhole marks a track as the whole, or as one that is not. If it was not so before, nothing is
// known about the time between.
func (d *difference) setWhole(t *track, whole bool) {
	if t.whole != whole {
		t.whole = whole
		d.restart, d.candidate = true, time.Time{}
	}
}

// propose makes the time of the whole's last reading the candidate if there is none, and reports
// whether there is one then. If the whole has several zones, it is the time of the first.
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

// settle brings the total up to date at the candidate, once all zones of the whole, and the parts
// that are waited for, have a reading that is no earlier. It reports whether it did so, with the
// energy of the whole and the time since the total was settled before.
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
	present bool         // it is among the readings
	whole   bool         // it is the whole, or a zone of it
	part    bool         // it is a part
	// abandoned marks a part that had nothing new in the time that it was waited for. It is not
	// waited for until it has a new reading.
	abandoned bool
	resumed   bool // the first point is of the past

	points     []point // readings, by time
	unmeasured time.Duration
	missed     [][2]time.Time // of the last readings between which some time was not measured, and that are not settled
	setBack    bool           // the clock of the readings was set back

	settled units.Energy // total at the time that was settled last, or in the first reading
	value   units.Energy // total at the candidate, if it is known
	known   bool
}

// point is a zone's total at a time.
type point struct {
	at    time.Time
	total units.Energy
}

// A track keeps its last two points, and of those before them the last maxPoints-2 that are at
// least pointSpacing apart: a reading of the whole may arrive long after the time that it is of.
const (
	maxPoints    = 160 // MaxLag and the time between two readings of the whole
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

// update notes a reading.
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

// missedBetween reports whether some of the time between two times was not measured. It forgets what was missed before.
func (t *track) missedBetween(from, to time.Time) bool {
	t.missed = slices.DeleteFunc(t.missed, func(gap [2]time.Time) bool { return !gap[1].After(from) })
	return slices.ContainsFunc(t.missed, func(gap [2]time.Time) bool { return gap[0].Before(to) })
}

// resolve finds the total at a time, and reports whether it is known. That of a part that is not
// waited for is the last one, also where the time before, of another whole, was an earlier one and
// the part's total then was interpolated.
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

// interpolate returns the total at a time that is not after the last point. Before the first point
// it is that of the first.
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

// settle makes the total at the candidate the settled one, and returns by how much it grew.
func (t *track) settle() int64 {
	grown := min(units.Advance(t.settled, t.value), maxStep)
	shrunk := min(units.Advance(t.value, t.settled), maxStep)
	t.settled = t.value
	return int64(grown) - int64(shrunk)
}
