// SPDX-License-Identifier: Apache-2.0

package power

import (
	"slices"
	"time"

	"github.com/energyreceiver/energyreceiver/internal/units"
)

// difference is the energy of a whole minus its parts; see Remainder. The caller marks each track
// as belonging to the whole or to a part.
type difference struct {
	tracks []*track // tracks of the zones that were read in the last forgetAfter
	gone   int64    // energy of removed parts since the last settled time, in µJ

	// candidate is the end of the time that settle adds next: the time of the first reading of the
	// whole after settled. It is zero before this reading.
	candidate time.Time
	proposed  time.Time // sample time when the candidate was chosen
	restart   bool      // settle skips the time from settled to candidate, because the whole changed or missed a part of it

	settled time.Time    // time of balance and total; zero before the first settle
	balance int64        // D (see Remainder) at the time settled, in µJ
	total   units.Energy // the largest balance
}

const (
	// partPatience is the maximum time that settle waits for a part.
	partPatience = 2 * time.Minute
	// forgetAfter is the time after which the track of a vanished part is removed. It is longer
	// than the maximum delay of a reading of the whole, so the next candidate is after the end of
	// the part.
	forgetAfter = 10 * time.Minute
	// maxStep is the maximum energy that a zone adds to the balance at once, and maxBalance the
	// maximum of the balance, in µJ. They prevent overflows.
	maxStep    = 1 << 54
	maxBalance = 1 << 61
)

// note adds a reading to the track of its zone, and returns the track. A zone that replaces a zone
// with the same ID has a new track.
func (d *difference) note(r *Reading, now time.Time) *track {
	i := slices.IndexFunc(d.tracks, func(t *track) bool { return t.zone == r.Zone })
	if i < 0 {
		i = len(d.tracks)
		d.tracks = append(d.tracks, &track{zone: r.Zone, points: make([]point, 0, maxPoints)})
	}
	t := d.tracks[i]
	t.seen = now
	t.update(r)
	return t
}

// forget removes the tracks of zones that vanished forgetAfter ago. A zone that returns later gets
// a new track. While settle waits for readings at the candidate, no track is removed.
func (d *difference) forget(now time.Time) {
	if !d.candidate.IsZero() {
		return
	}
	d.tracks = slices.DeleteFunc(d.tracks, func(t *track) bool {
		vanished := now.Sub(t.seen) > forgetAfter
		if vanished && t.part {
			d.gone = min(d.gone+t.pending(), maxBalance)
		}
		return vanished
	})
}

// setWhole sets whether a track belongs to the whole. A change leaves out the time since settled,
// because the energy of the new whole before its first reading is not available.
func (d *difference) setWhole(t *track, whole bool) {
	if t.whole != whole {
		t.whole = whole
		d.restart, d.candidate = true, time.Time{}
	}
}

func (d *difference) firstWhole() *track {
	return d.tracks[slices.IndexFunc(d.tracks, func(t *track) bool { return t.whole })]
}

// propose sets the candidate to the time of the whole's last reading, unless a candidate is set. If
// the whole has several zones, the first zone counts. propose reports whether a candidate is set.
func (d *difference) propose(now time.Time) bool {
	if !d.candidate.IsZero() {
		return true
	}
	first := d.firstWhole()
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
			complete = t.resolve(d.candidate, patient && t.seen.Equal(now)) && complete
		}
		if t.whole && t.missedBetween(d.settled, d.candidate) {
			d.restart = true
		}
	}
	if !complete {
		return 0, 0, false
	}
	parts := d.gone
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
	d.settled, d.candidate, d.restart, d.gone = d.candidate, time.Time{}, false, 0
	return whole, elapsed, settled
}
