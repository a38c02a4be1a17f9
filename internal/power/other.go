// SPDX-License-Identifier: Apache-2.0

package power

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/energyreceiver/energyreceiver/internal/units"
)

// Remainder derives a zone of kind Other: the energy of the whole machine without the energy of its
// parts. The whole is the measured zones of kind Platform, or of PSys if there is no Platform. The
// parts are the zones of Package and DRAM, and of GPU if the whole is Platform.
//
// Platform is assumed to contain all graphics cards, and PSys no graphics card. PSys covers the
// supplies that the vendor connects to the processor's meter (Intel SDM, volume 4,
// MSR_PLATFORM_ENERGY_COUNTER). This is mostly the board's supply of the processors and the memory.
// A graphics card has its own supply. If the PSys of a laptop does contain a card, the energy of
// the card is also in the zone.
//
// The zone is updated at the times of the readings of the whole. The totals of the parts at such a
// time are interpolated between the readings before and after it, so the zone waits for slower
// parts. Let D = whole - parts, each since the same time. The zone's total is the maximum of D
// since then, and the deficit is the difference between the total and D. A deficit comes from
// meters that lag or disagree. The total does not grow until the deficit is 0 again. It never
// decreases, and parts and other add up to the whole whenever the deficit is 0.
//
//	what happens                                      effect on the zone
//	the whole cannot be read                          the zone waits
//	the whole is replaced, or missed a time           the zone does not include the energy of that time
//	a part cannot be read for more than two minutes   the zone contains the part's energy, which becomes a deficit once the part is read
//	a part appears, or has another meter              the zone contains the part's energy before the first reading
//	a part vanishes                                   the zone contains the part's energy from then on; after ten minutes even if the part returns
//	a package or its DRAM is modeled or reported      the zone ends: only measured energy is subtracted from measured energy
//	no part was ever read, or there is no whole       the zone does not exist
//
// The zero Remainder is ready to use. A Remainder is not safe for concurrent use.
type Remainder struct {
	difference
	zone    Zone
	kind    Kind   // kind of the whole
	read    []Kind // kinds of the zones that were read at least once
	foreign *Zone  // a part that is modeled or reported, or nil
	lacks   string // description of missing zones, or ""

	resuming bool // the balance is the restored balance, and there was no reading since

	// Of the time since the deficit was last 0:
	wholeEnergy units.Energy
	elapsed     time.Duration
	excessive   bool // the deficit was more than noise
}

const (
	// A deficit is noise if it is below the energy of the whole in noiseTime, or below noiseShare
	// of the energy of the whole since the deficit began. For example, a BMC may lag by a minute.
	noiseTime  = 5 * time.Minute
	noiseShare = 0.01
)

// Deficit returns the excess of the parts over the whole since the zone's total last grew.
func (m *Remainder) Deficit() units.Energy { return units.Energy(int64(m.total) - m.balance) }

// Lacks returns the zone kinds that are missing, so that the zone is not reported: the whole or
// every part. It is empty if no kind is missing.
func (m *Remainder) Lacks() string { return m.lacks }

// IsForeign reports whether there is no zone because a part is not measured.
func (m *Remainder) IsForeign() bool { return m.foreign != nil }

// Err returns the reason why the energy of the zone is wrong or missing, or nil. Either a part is
// not measured, or the deficit was more than noise and is not 0 again.
func (m *Remainder) Err() error {
	switch {
	case m.foreign != nil:
		return fmt.Errorf("%s is %s, and only measured energy is subtracted from measured energy; no energy is reported for other",
			m.foreign.Kind, m.foreign.Method)
	case m.excessive:
		return errDeficit
	}
	return nil
}

var errDeficit = errors.New("package, dram and gpu exceed the platform meter: other does not increase until the meter catches up")

// resume makes the zone continue from the state of another Remainder.
func (m *Remainder) resume(p PastOther) {
	m.resuming, m.balance, m.total = true, p.Balance, units.Energy(max(p.Balance, 0))
	m.zone = otherZone(0)
}

// past returns the state after the last readings, for another Remainder to continue.
func (m *Remainder) past() PastOther {
	switch {
	case m.resuming:
		return PastOther{Known: true, Balance: m.balance}
	case m.settled.IsZero() || m.foreign != nil || m.lacks != "":
		return PastOther{}
	}
	pending, missed := -m.gone, m.restart
	for _, t := range m.tracks {
		switch {
		case t.whole:
			pending += t.pending()
			missed = missed || t.missedBetween(m.settled, t.last().at)
		case t.part:
			pending -= t.pending()
		}
	}
	if missed {
		pending = 0
	}
	return PastOther{Known: true, Balance: m.balance - int64(m.total) + pending}
}

// resumeAt settles the zone at the end of the past, if the whole and its parts have resumed from
// there. Otherwise the zone does not include the energy since then.
func (m *Remainder) resumeAt() {
	m.resuming = false
	for _, t := range m.tracks {
		if (t.whole || t.part) && !t.resumed {
			return
		}
	}
	m.settled, m.restart = m.firstWhole().points[0].at, false
}

// add appends the zone's reading to the readings that it is derived from. now is the sample time.
func (m *Remainder) add(readings []Reading, now time.Time) []Reading {
	if m.resuming && slices.ContainsFunc(readings, func(r Reading) bool { return errors.Is(r.Err, errAwaited) }) {
		return append(readings, Reading{Zone: &m.zone, Err: errAwaited})
	}
	if !m.update(readings, now) {
		return readings
	}
	if m.resuming {
		m.resumeAt()
	}
	if whole, elapsed, settled := m.settle(now); settled {
		m.judge(whole, elapsed)
	}
	if m.settled.IsZero() {
		return readings
	}
	return append(readings, Reading{Zone: &m.zone, Total: m.total, At: m.settled})
}

// update notes the readings of the whole and its parts, and reports whether both have been read.
func (m *Remainder) update(readings []Reading, now time.Time) bool {
	m.kind = PSys
	for i := range readings {
		r := &readings[i]
		k := r.Zone.Kind
		if !isWhole(k) && !isPart(k, Platform) || r.Zone.Method != Measured || r.At.IsZero() {
			continue
		}
		m.note(r, now)
		if k == Platform {
			m.kind = Platform
		}
		if !slices.Contains(m.read, k) {
			m.read = append(m.read, k)
		}
	}
	whole, part := m.selectWhole(now), slices.ContainsFunc(m.read, func(k Kind) bool { return isPart(k, m.kind) })
	m.forget(now)
	m.foreign, m.lacks = nil, ""
	for i := range readings {
		if r := &readings[i]; whole && isPart(r.Zone.Kind, m.kind) && r.Zone.Method != Measured && !r.At.IsZero() {
			m.foreign = r.Zone
		}
	}
	switch {
	case !whole:
		m.lacks = "platform or psys"
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

// isPart reports whether zones of kind k are parts of a whole of the given kind.
func isPart(k, whole Kind) bool { return k == Package || k == DRAM || k == GPU && whole == Platform }

func isWhole(k Kind) bool { return k == Platform || k == PSys }

// selectWhole marks the tracks of the whole and its parts, and reports whether there is a whole.
func (m *Remainder) selectWhole(now time.Time) (found bool) {
	var watts uint64
	for _, t := range m.tracks {
		t.part = isPart(t.zone.Kind, m.kind)
		whole := t.zone.Kind == m.kind && t.seen.Equal(now)
		if whole {
			found = true
			watts += t.zone.MaxWatts
		}
		m.setWhole(t, whole)
	}
	if found {
		m.zone = otherZone(watts)
	}
	return found
}

func otherZone(maxWatts uint64) Zone {
	return Zone{ID: string(Other), Name: string(Other), Kind: Other, Method: Measured, Domain: units.NodeCPUs, MaxWatts: maxWatts}
}

// judge decides whether the deficit is more than noise. whole is the energy of the whole during
// elapsed.
func (m *Remainder) judge(whole int64, elapsed time.Duration) {
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
