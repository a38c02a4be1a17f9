// SPDX-License-Identifier: Apache-2.0

package power

import (
	"slices"
	"time"

	"github.com/energyreceiver/energyreceiver/internal/units"
)

// track holds the readings of a zone that is the whole, or a part of the whole.
type track struct {
	zone  *Zone
	seen  time.Time // sample time of the last readings that contain the zone
	whole bool      // the zone belongs to the whole
	part  bool      // the zone is a part
	// abandoned marks a part that had no new reading for partPatience. settle does not wait for the
	// part until it has a new reading.
	abandoned bool
	resumed   bool // the first point was restored from a state

	points     []point // readings, by time
	unmeasured time.Duration
	missed     [][2]time.Time // times of successive readings with unmeasured time between them
	setBack    bool           // the clock of the readings was set back

	settled units.Energy // total at the last settled time; at first, the total of the first reading
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

// update adds a reading.
func (t *track) update(r *Reading) {
	p := point{r.At, r.Total}
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

// missedBetween reports whether there is unmeasured time between two times. It removes the pairs
// that end before them.
func (t *track) missedBetween(from, to time.Time) bool {
	t.missed = slices.DeleteFunc(t.missed, func(gap [2]time.Time) bool { return !gap[1].After(from) })
	return slices.ContainsFunc(t.missed, func(gap [2]time.Time) bool { return gap[0].Before(to) })
}

// resolve sets value to the total at a time, and reports whether the total is available. patient
// reports whether to wait for a later reading of a part. For an abandoned part, the total is the
// last total, even if the previous settled total was interpolated.
func (t *track) resolve(at time.Time, patient bool) bool {
	switch {
	case t.known:
	case !t.last().at.Before(at):
		t.value, t.known = t.interpolate(at), true
	case !t.whole && (t.abandoned || !patient):
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
