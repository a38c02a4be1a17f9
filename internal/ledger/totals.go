// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"slices"
	"time"

	"github.com/energyreceiver/energyreceiver/internal/attribution"
	"github.com/energyreceiver/energyreceiver/internal/units"
)

// Totals holds all totals of a ledger. It is valid until the next call of a method of the ledger.
type Totals struct {
	// Zones are the totals of each zone, by its index in the readings.
	Zones []Zone
	// Kinds are the totals of each kind.
	Kinds [attribution.MaxKinds]KindTotals
	// Elapsed is the time since the current collection began, and Busy and Total are the CPU time
	// of the node's CPUs in it.
	Elapsed     time.Duration
	Busy, Total units.CPUTime
	// Resolution is the granularity of the CPU times of processes in the last interval, 0 if they
	// are exact.
	Resolution units.CPUTime
	// Domains are the times of each domain since the current collection began, by the index of the
	// domain in the intervals.
	Domains []attribution.DomainTime
	// Dropped is the number of ended series that were removed before their end was acknowledged,
	// because there were too many. Their energy moved to other series.
	Dropped uint64
	// SettledAt is the time of the last settled emission, which was acknowledged, at least in part,
	// or refused for good. The next consumer may have points up to this time. It is zero before the
	// first settled emission.
	SettledAt time.Time

	emissions
	accounts []Account
	removed  []bool
	unused   []int32 // indices of accounts that were removed
}

// Zone is the totals of one zone. The zero Zone was never read.
type Zone struct {
	// Present reports whether the zone had a good reading. Its totals begin there.
	Present bool
	// Start is when Energy was 0, and At when Energy was last read.
	Start, At time.Time
	Energy    units.Energy
	// Recent is the energy of the good readings of the current collection, and RecentTime the time
	// that it covers. Both are 0 without such energy.
	Recent     units.Energy
	RecentTime time.Duration
	// Unread is the time since the last good reading, 0 while the zone can be read.
	Unread time.Duration
	// A zone ends when it is no longer among the readings. Its totals continue if it returns.
	Lifetime
}

// KindTotals is the totals of all zones of one kind. Active is the energy of all processes and
// Unattributed together. The zero KindTotals belongs to a kind without any reading.
type KindTotals struct {
	Present bool
	// Start is when the totals were 0.
	Start time.Time
	// Active and Idle are the energy that was attributed. The energy of the kind's zones is the sum
	// of Active, Idle and Deferred.
	Active, Idle units.Energy
	// Unattributed is the part of Active that has no owner. UnattributedIdle is the part of Idle
	// without an owner, if the rules share idle energy.
	Unattributed, UnattributedIdle units.Energy
	// Deferred is the energy that was read and not attributed yet, because a zone or the
	// utilization of its domain could not be read.
	Deferred units.Energy
	// RecentActive and RecentIdle are the energy that was attributed in the current collection, and
	// RecentTime is the time that it covers. All are 0 without recent energy. The recent energy of
	// accounts covers the same time.
	RecentActive, RecentIdle units.Energy
	RecentTime               time.Duration
	// A kind ends when its zones have all ended or changed their kind. Its totals continue if a
	// zone returns.
	Lifetime
	// Windows is the number of intervals of the current collection that RecentTime covers.
	Windows int
	// Model, StandardError and Shared are the fields of KindShares.
	Model         attribution.ModelState
	StandardError float64
	Shared        bool
}

// Known reports whether a zone's total is available in the current collection, and its end was not
// acknowledged.
func (l *Totals) Known(z *Zone) bool {
	return z.Present && !l.Delivered(&z.Lifetime) && (z.Ended() || z.RecentTime > 0 || z.Unread == 0)
}

// HasSeries reports whether an account has a series of a kind. It has no series of a kind that
// ended before the account had energy of the kind. An account that was emitted and has ended gets
// no further kinds.
func (l *Totals) HasSeries(a *Account, kind int) bool {
	if kind >= attribution.MaxKinds || !l.Kinds[kind].Present {
		return false
	}
	var of kindAmounts
	if kind < len(a.amounts) {
		of = a.amounts[kind]
	}
	mayBegin := !a.Ended() || a.first == 0
	return !l.Kinds[kind].Ended() && (mayBegin || of.first != 0) || of.Energy > 0 || of.Idle > 0
}

// countKinds returns the number of kinds up to the last present one.
func (l *Totals) countKinds() int {
	n := len(l.Kinds)
	for n > 0 && !l.Kinds[n-1].Present {
		n--
	}
	return n
}

// Accounts calls yield for each account that is live, or has ended and was not acknowledged yet.
// It skips an account until the names of its owner are resolved, because the attributes of a series
// never change.
func (l *Totals) Accounts(yield func(*Account) bool) {
	for i := range l.accounts {
		if a := &l.accounts[i]; !l.removed[i] && a.candidate == unset && !a.awaitsNames() && !yield(a) {
			return
		}
	}
}

// add adds a copy of an account and returns its index.
func (l *Totals) add(a Account) int32 {
	a.candidate = unset
	if n := len(l.unused); n > 0 {
		i := l.unused[n-1]
		l.unused = l.unused[:n-1]
		a.amounts = append(l.accounts[i].amounts, a.amounts...) // in the memory of the removed account
		l.accounts[i], l.removed[i] = a, false
		return i
	}
	a.amounts = slices.Clone(a.amounts)
	l.accounts = append(l.accounts, a)
	l.removed = append(l.removed, false)
	return int32(len(l.accounts) - 1)
}

func (l *Totals) remove(i int32) {
	l.accounts[i], l.removed[i] = Account{amounts: l.accounts[i].amounts[:0]}, true
	l.unused = append(l.unused, i)
}

// othersIndex is the index of the other processes' account.
const othersIndex = 0
