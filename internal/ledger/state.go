// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"slices"
	"time"

	"github.com/energyreceiver/energyreceiver/internal/attribution"
	"github.com/energyreceiver/energyreceiver/internal/identity"
	"github.com/energyreceiver/energyreceiver/internal/units"
)

// State holds the totals of a ledger, so that another ledger can continue them after a restart.
// Kinds, domains and zones are given by their index. The caller must store the meaning of the
// indices.
//
// A State holds no candidates for a series. Their energy is part of other accounts.
type State struct {
	// Baseline is when the totals were 0, and At the end of the last interval.
	Baseline, At time.Time
	Zones        []ZoneState
	Kinds        []KindState
	Accounts     []AccountState
	Dropped      uint64
}

// ZoneState is the part of a Zone that is kept.
type ZoneState struct {
	attribution.ReadingState
	Delivered bool
	Start, At time.Time
	Energy    units.Energy
}

// KindState is the part of a Kind that is kept.
type KindState struct {
	Present, Ended, Delivered      bool
	Start                          time.Time
	Active, Idle                   units.Energy
	Unattributed, UnattributedIdle units.Energy
}

// AccountState is the part of an Account that is kept.
type AccountState struct {
	Entity identity.Entity
	Owner  identity.Owner
	Other  bool
	// Group marks an account of a group.
	Group bool
	// Live marks an active series.
	Live bool
	// Reported marks an account that is in an earlier emission or in the next one.
	Reported bool
	Start    time.Time
	CPU      units.CPUTime
	Amounts  []KindAmounts
	// Usage and Lost decide which accounts have a series.
	Usage units.Energy
	Lost  uint8
}

// KindAmounts holds the active and idle energy of an account in one kind.
type KindAmounts struct {
	Kind         int
	Energy, Idle units.Energy
}

// State sets s to the state of the ledger, and reuses the memory of s. Call it after Add and before
// the ledger is emitted, so that a restored ledger never emits a value below an earlier value.
func (l *Ledger) State(s *State) {
	s.Baseline, s.At, s.Dropped = l.baseline, l.at, l.Dropped
	s.Zones = s.Zones[:0]
	for i := range l.Zones {
		z := &l.Zones[i]
		s.Zones = append(s.Zones, ZoneState{l.sharer.ReadingState(i), l.Delivered(&z.Lifetime), z.Start, z.At, z.Energy})
	}
	s.Kinds = s.Kinds[:0]
	for i := range l.Kinds[:l.countKinds()] {
		k := &l.Kinds[i]
		s.Kinds = append(s.Kinds, KindState{
			Present: k.Present, Ended: k.Ended(), Delivered: l.Delivered(&k.Lifetime), Start: k.Start, Active: k.Active, Idle: k.Idle,
			Unattributed: k.Unattributed, UnattributedIdle: k.UnattributedIdle,
		})
	}
	n := 0
	for i := range l.accounts {
		a := &l.accounts[i]
		if l.removed[i] || a.candidate != unset {
			continue
		}
		if n == len(s.Accounts) {
			s.Accounts = slices.Grow(s.Accounts, 1)[:n+1]
		}
		a.setState(&s.Accounts[n])
		n++
	}
	s.Accounts = s.Accounts[:n]
	for entity := range l.candidates {
		for i := range l.candidates[entity] {
			if of := l.candidates[entity][i].of; identity.Entity(entity) != identity.ProcessEntity && l.awaitsGroup(of) {
				s.addToOthers(&l.accounts[of])
			}
		}
	}
}

// addToOthers adds the energy of an account to the overflow account of its entity.
func (s *State) addToOthers(a *Account) {
	i := slices.IndexFunc(s.Accounts, func(o AccountState) bool { return o.Other && o.Entity == a.Entity })
	if i < 0 {
		i = len(s.Accounts)
		s.Accounts = append(s.Accounts, AccountState{Entity: a.Entity, Other: true, Start: s.Baseline})
	}
	others := &s.Accounts[i]
	others.CPU += a.CPU
	for kind, m := range a.amounts {
		k := slices.IndexFunc(others.Amounts, func(o KindAmounts) bool { return o.Kind == kind })
		if k < 0 {
			k = len(others.Amounts)
			others.Amounts = append(others.Amounts, KindAmounts{Kind: kind})
		}
		others.Amounts[k].Energy += m.Energy
		others.Amounts[k].Idle += m.Idle
	}
}

// setState sets s to the state of the account. It reuses the memory of s.
func (a *Account) setState(s *AccountState) {
	*s = AccountState{
		Entity: a.Entity, Owner: a.Owner, Other: a.Other, Group: a.group, Live: a.live(), Reported: a.first != 0 || !a.awaitsNames(), Start: a.Start,
		CPU: a.CPU, Amounts: s.Amounts[:0], Usage: a.rank.now(a.recent()), Lost: a.rank.lost,
	}
	for kind := range a.amounts {
		if m := &a.amounts[kind]; m.Energy > 0 || m.Idle > 0 {
			s.Amounts = append(s.Amounts, KindAmounts{kind, m.Energy, m.Idle})
		}
	}
}

// StartOver sets all totals to 0 as of the end of the last interval, for example after a change of
// the rules. It keeps the readings of zones, so that energy after the interval counts, and deferred
// energy stays deferred. StartOver moves the end of the interval by one nanosecond: after the state
// was stored, the earlier ledger may have emitted series that start at this end.
func (s *State) StartOver() {
	s.At = s.At.Add(1)
	s.Baseline, s.Accounts, s.Dropped = s.At, nil, 0
	for i := range s.Zones {
		z := &s.Zones[i]
		z.Start, z.At, z.Energy, z.Delivered = s.At, s.At, 0, true // a zone that does not return has no energy to report
	}
	for i := range s.Kinds {
		k := &s.Kinds[i]
		*k = KindState{Present: k.Present, Start: s.At, Ended: true, Delivered: true}
	}
}

// Renumber changes the indices of kinds and domains. The index of a kind that no longer exists is
// NotAttributed. The totals of such a kind are dropped.
func (s *State) Renumber(kind, domain func(int) int) {
	for i := range s.Zones {
		z := &s.Zones[i]
		if z.Domain = domain(z.Domain); z.Kind != attribution.NotAttributed {
			z.Kind = kind(z.Kind)
		}
		if z.Kind == attribution.NotAttributed {
			z.Deferred = nil
		}
	}
	var kinds []KindState
	for i := range s.Kinds {
		to := kind(i)
		if to == attribution.NotAttributed {
			continue
		}
		for len(kinds) <= to {
			kinds = append(kinds, KindState{})
		}
		kinds[to] = s.Kinds[i]
	}
	s.Kinds = kinds
	for i := range s.Accounts {
		a := &s.Accounts[i]
		for j := range a.Amounts {
			a.Amounts[j].Kind = kind(a.Amounts[j].Kind)
		}
		a.Amounts = slices.DeleteFunc(a.Amounts, func(m KindAmounts) bool { return m.Kind == attribution.NotAttributed })
	}
}

// Restore continues the totals of a state. It must be the first call after New. The next interval
// is the time since the state: the total of a zone in it is the zone's energy since then. No
// static power model is trained with that interval.
//
// Each account of the state has ended, and continues when its owner is opened. The live series of a
// process then continues regardless of its energy, if there is room. The live series of programs
// continue at once.
func (l *Ledger) Restore(s *State) {
	l.baseline, l.at, l.emittedAt, l.restoring = s.Baseline, s.At, s.At, true
	l.Dropped, l.SettledAt = s.Dropped, s.At
	l.emissions = emissions{restoredEmission, restoredEmission, restoredEmission, restoredEmission}
	readings := make([]attribution.ReadingState, len(s.Zones))
	for i := range s.Zones {
		z := &s.Zones[i]
		readings[i] = z.ReadingState
		l.Zones = append(l.Zones, Zone{
			Present: z.Present, Start: z.Start, At: z.At, Energy: z.Energy, Unread: z.Unread,
			Lifetime: restoredLifetime(z.Present && z.Start.Before(s.At), z.Ended, z.Delivered),
		})
	}
	l.sharer.Restore(readings)
	for i := range s.Kinds[:min(len(s.Kinds), attribution.MaxKinds)] {
		k := &s.Kinds[i]
		l.Kinds[i] = KindTotals{
			Present: k.Present, Lifetime: restoredLifetime(k.Present && k.Start.Before(s.At), k.Ended, k.Delivered), Start: k.Start, Active: k.Active, Idle: k.Idle,
			Unattributed: k.Unattributed, UnattributedIdle: k.UnattributedIdle, StandardError: -1,
		}
	}
	for i := range readings {
		if z := &readings[i]; z.Deferred != nil && z.Kind != attribution.NotAttributed {
			l.Kinds[z.Kind].Deferred += z.Deferred.Energy
		}
	}
	l.accounts[othersIndex].Start = s.Baseline
	l.observed = len(s.Accounts) > 0
	for i := range l.births {
		l.births[i].until = s.At.Add(restoredBirths)
	}
	for i := range s.Accounts {
		l.restoreAccount(&s.Accounts[i])
	}
}

// restoredLifetime returns the lifetime of a part of a state.
func restoredLifetime(emitted, ended, delivered bool) (t Lifetime) {
	if emitted {
		t.first = restoredEmission
	}
	if ended {
		t.end = restoredEmission + 1
	}
	if delivered {
		t.end = restoredEmission
	}
	return t
}

func (l *Ledger) restoreAccount(s *AccountState) {
	a := Account{
		Entity: s.Entity, Owner: s.Owner, Other: s.Other, group: s.Group, Start: s.Start, CPU: s.CPU, Lifetime: restoredLifetime(s.Reported, false, false),
		claimant: unset, rank: rank{usage: s.Usage, lost: s.Lost},
	}
	for _, m := range s.Amounts {
		a.grow(m.Kind + 1)
		a.amounts[m.Kind].Amounts = Amounts{Energy: m.Energy, Idle: m.Idle}
	}
	if s.Reported {
		l.noteAccount(&a)
	}
	switch others := l.others[a.Entity]; {
	case a.Other && others != unset:
		l.accounts[others].merge(&a)
		l.noteAccount(&l.accounts[others])
	case a.Other:
		a.refs = 1
		l.others[a.Entity] = l.add(a)
	case a.Entity == identity.ProgramEntity && s.Live && l.hasRoom(a.Entity):
		// Most of the processes of a program have ended, so it does not wait for a claimant.
		l.live[a.Entity]++
		key := a.series()
		l.series[key] = l.add(a)
	default:
		l.end(&a.Lifetime)
		a.Owner.VM.CID, a.Owner.Names = 0, a.Owner.Names.Settled()
		if a.restored = wasEnded; s.Live {
			a.restored = wasLive
		}
		key := a.series()
		l.series[key] = l.add(a)
	}
}
