// SPDX-License-Identifier: Apache-2.0

package power

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/energyreceiver/energyreceiver/internal/units"
)

// Remainder derives a zone of kind Other: the energy of the whole machine without that of its
// parts. The whole is the measured zones of kind Platform, or of PSys where there is none. The
// parts are the zones of Package and DRAM, and of GPU where the whole is Platform.
//
// It is assumed that Platform contains all graphics cards, and PSys none. PSys covers the supplies
// that the vendor connects to the processor's meter (Intel SDM, volume 4,
// MSR_PLATFORM_ENERGY_COUNTER): mostly the board's supply of the processors and the memory, and a
// graphics card has a supply of its own. Where a laptop's PSys does contain one, the card's energy
// is also in the zone.
//
// The zone is brought up to date at the times of the whole's own readings. The parts' totals at
// such a time are interpolated between the readings before and after it, so a part that is slower
// is waited for. With D = whole - parts, each since the same time, the zone's total is the largest
// D so far, and the deficit is how far D is below it. A deficit comes from meters that lag or
// disagree, and is paid back before the total grows again: the total never goes down, and parts and
// other add up to the whole whenever the deficit is 0.
//
//	what happens                                      effect on the zone
//	the whole cannot be read                          it waits
//	the whole is replaced, or missed a time           the energy of that time is not in it
//	a part cannot be read for more than two minutes   it contains the part's energy, which becomes a deficit once the part is read
//	a part appears, or has another meter              it contains what the part used before the first reading
//	a part vanishes                                   it contains what the part uses from then on
//	a package or its DRAM is modeled or reported      it ends: only what is measured is subtracted from what is measured
//	no part was ever read, or there is no whole       it is not there
//
// The zero Remainder is ready to use. A Remainder is not safe for concurrent use.
type Remainder struct {
	zone    Zone
	tracks  []*track // of all wholes and parts that were ever read, by ID
	kind    Kind     // of the whole
	foreign *Zone    // a part that is not measured, nil if all are
	lacks   string   // what is not there, empty if nothing

	// candidate is the time up to which energy is settled next: that of the first reading of the whole that was seen after
	// settled. It is zero if there is none yet.
	candidate time.Time
	proposed  time.Time // sample time at which the candidate was chosen
	restart   bool      // the time from settled to candidate is left out: the whole changed, or missed some of it

	resuming bool // the balance is that of the past, and there was no reading since

	settled time.Time    // up to when the total is known; zero before the first time
	balance int64        // D at the time settled, in µJ
	total   units.Energy // the largest balance

	// Of the time since the deficit was last 0:
	wholeEnergy units.Energy
	elapsed     time.Duration
	excessive   bool // the deficit was more than noise
}

const (
	// partPatience is how long a part is waited for.
	partPatience = 2 * time.Minute
	// A deficit is noise, such as that of a BMC that follows a minute late, while it is below what
	// the whole uses in noiseTime, or below noiseShare of what the whole has used since the deficit
	// began.
	noiseTime  = 5 * time.Minute
	noiseShare = 0.01
	// maxStep bounds what one zone adds to the balance at once, and maxBalance the balance, in µJ,
	// so that nothing overflows.
	maxStep    = 1 << 54
	maxBalance = 1 << 61
)

// Deficit returns by how much the parts used more than the whole since the zone's total last grew.
func (m *Remainder) Deficit() units.Energy { return units.Energy(int64(m.total) - m.balance) }

// Lacks returns what no meter has read and without which the zone is not there: the whole or any
// part. It is empty where both are there.
func (m *Remainder) Lacks() string { return m.lacks }

// IsForeign reports whether there is no zone because a part is not measured.
func (m *Remainder) IsForeign() bool { return m.foreign != nil }

// Err returns why the zone does not have the energy that it should: a part is not measured, or the
// deficit was more than noise and is not paid back yet.
func (m *Remainder) Err() error {
	switch {
	case m.foreign != nil:
		return fmt.Errorf("%s is %s, and only what is measured is subtracted from what is measured; no energy is reported for other",
			m.foreign.Kind, m.foreign.Method)
	case m.excessive:
		return errDeficit
	}
	return nil
}

var errDeficit = errors.New("package, dram and gpu used more energy than the meter of the whole machine counted; other stands still until that is made up for")

// resume makes the zone go on where that of another Remainder ended.
func (m *Remainder) resume(p PastOther) {
	m.resuming, m.balance, m.total = true, p.Balance, units.Energy(max(p.Balance, 0))
	m.zone = Zone{ID: string(Other), Name: string(Other), Kind: Other, Method: Measured, Domain: units.NodeCPUs}
}

// past returns what another Remainder needs to go on after the last readings.
func (m *Remainder) past() PastOther {
	switch {
	case m.resuming:
		return PastOther{Known: true, Balance: m.balance}
	case m.settled.IsZero() || m.foreign != nil || m.lacks != "":
		return PastOther{}
	}
	var pending int64
	missed := m.restart
	for _, t := range m.tracks {
		switch {
		case t.whole:
			pending += t.pending()
			missed = missed || t.missedBetween(m.settled, t.last().at)
		case m.uses(t):
			pending -= t.pending()
		}
	}
	if missed {
		pending = 0
	}
	return PastOther{Known: true, Balance: m.balance - int64(m.total) + pending}
}

// goOn settles the zone at the end of the past, if the whole and its parts have gone on from there.
// If not, what was used meanwhile is not in the zone.
func (m *Remainder) goOn() {
	m.resuming = false
	for _, t := range m.tracks {
		if m.uses(t) && !t.resumed {
			return
		}
	}
	whole := m.tracks[slices.IndexFunc(m.tracks, func(t *track) bool { return t.whole })]
	m.settled, m.restart = whole.points[0].at, false
}

// add appends the zone's reading to those that it is derived from. now is the sample time.
func (m *Remainder) add(readings []Reading, now time.Time) []Reading {
	if m.resuming && slices.ContainsFunc(readings, func(r Reading) bool { return errors.Is(r.Err, errAwaited) }) {
		return append(readings, Reading{Zone: &m.zone, Err: errAwaited})
	}
	if !m.update(readings) {
		return readings
	}
	if m.resuming {
		m.goOn()
	}
	if m.propose(now) {
		m.settle(now)
	}
	if m.settled.IsZero() {
		return readings
	}
	return append(readings, Reading{Zone: &m.zone, Total: m.total, At: m.settled})
}

// update notes what was read of the whole and its parts, and reports whether both are there.
func (m *Remainder) update(readings []Reading) bool {
	for _, t := range m.tracks {
		t.present = false
	}
	for i := range readings {
		r := &readings[i]
		if k := r.Zone.Kind; (isWhole(k) || isPart(k, Platform)) && r.Zone.Method == Measured && !r.At.IsZero() {
			m.track(r, readings).update(r)
		}
	}
	whole, part := m.selectWhole()
	m.foreign, m.lacks = nil, ""
	for i := range readings {
		if r := &readings[i]; isPart(r.Zone.Kind, m.kind) && r.Zone.Method != Measured && !r.At.IsZero() {
			m.foreign = r.Zone
		}
	}
	switch {
	case !whole:
		m.lacks = "platform or psys"
		m.foreign = nil // there would be no zone either way
	case m.foreign != nil:
		m.restart, m.candidate = true, time.Time{}
	case !part && m.kind == PSys:
		m.lacks = "package or dram"
	case !part:
		m.lacks = "package, dram or gpu"
	default:
		return true
	}
	return false
}

// isPart reports whether a whole of the given kind contains zones of kind k.
func isPart(k, whole Kind) bool { return k == Package || k == DRAM || k == GPU && whole == Platform }

func isWhole(k Kind) bool { return k == Platform || k == PSys }

// track returns the track of the zone of a reading. A zone with the ID and the kind of a zone that
// is no longer read is the same hardware, read in another way: it takes over the track.
func (m *Remainder) track(r *Reading, readings []Reading) *track {
	var before *track
	for _, t := range m.tracks {
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
	m.tracks = append(m.tracks, t)
	return t
}

// selectWhole decides which tracks are the whole, and reports whether there are any, and any parts.
// Where they are not those of before, nothing is known about the time between.
func (m *Remainder) selectWhole() (whole, part bool) {
	m.kind = PSys
	for _, t := range m.tracks {
		if t.present && t.zone.Kind == Platform {
			m.kind = Platform
		}
	}
	var watts uint64
	for _, t := range m.tracks {
		part = part || isPart(t.zone.Kind, m.kind)
		selected := t.present && t.zone.Kind == m.kind
		if selected {
			whole = true
			watts += t.zone.MaxWatts
		}
		if t.whole != selected {
			t.whole = selected
			m.restart, m.candidate = true, time.Time{}
		}
	}
	if whole {
		m.zone = Zone{
			ID: string(Other), Name: string(Other), Kind: Other, Method: Measured, Domain: units.NodeCPUs, MaxWatts: watts,
		}
	}
	return whole, part
}

// propose makes the time of the whole's last reading the candidate if there is none, and reports
// whether there is one then. If the whole has several zones, it is the time of the first.
func (m *Remainder) propose(now time.Time) bool {
	if !m.candidate.IsZero() {
		return true
	}
	first := m.tracks[slices.IndexFunc(m.tracks, func(t *track) bool { return t.whole })]
	at := first.last().at
	if !at.After(m.settled) && !first.setBack {
		return false
	}
	m.candidate, m.proposed = at, now
	m.restart = m.restart || first.setBack
	first.setBack = false
	for _, t := range m.tracks {
		t.known = false
	}
	return true
}

// settle brings the zone up to date at the candidate, once all zones of the whole, and the parts
// that are waited for, have a reading that is no earlier.
func (m *Remainder) settle(now time.Time) {
	complete, patient := true, now.Sub(m.proposed) < partPatience
	for _, t := range m.tracks {
		if m.uses(t) {
			complete = t.resolve(m.candidate, patient) && complete
		}
		if t.whole && t.missedBetween(m.settled, m.candidate) {
			m.restart = true
		}
	}
	if !complete {
		return
	}
	var whole, parts int64
	for _, t := range m.tracks {
		switch {
		case !m.uses(t):
		case t.whole:
			whole += t.settle()
		default:
			parts += t.settle()
		}
	}
	if !m.restart {
		m.advance(whole, parts, m.candidate.Sub(m.settled))
	}
	m.settled, m.candidate, m.restart = m.candidate, time.Time{}, false
}

// uses reports whether a track is a part or of the whole.
func (m *Remainder) uses(t *track) bool { return t.whole || isPart(t.zone.Kind, m.kind) }

// advance adds what the whole and the parts used in a time.
func (m *Remainder) advance(whole, parts int64, elapsed time.Duration) {
	m.balance = min(max(m.balance+whole-parts, -maxBalance), maxBalance)
	m.total = max(m.total, units.Energy(max(m.balance, 0)))
	deficit := float64(m.Deficit())
	if deficit == 0 {
		m.wholeEnergy, m.elapsed, m.excessive = 0, 0, false
		return
	}
	m.wholeEnergy += units.Energy(max(whole, 0))
	m.elapsed += elapsed
	energy := float64(m.wholeEnergy)
	m.excessive = m.excessive || deficit > noiseShare*energy && deficit*m.elapsed.Seconds() > energy*noiseTime.Seconds()
}

// track holds the readings of a whole or a part.
type track struct {
	zone    *Zone
	base    units.Energy // total of the track when the total of the zone was 0
	present bool         // it is among the readings
	whole   bool         // it is the whole, or a zone of it
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
