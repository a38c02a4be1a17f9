// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"cmp"
	"time"

	"github.com/energyreceiver/energyreceiver/internal/identity"
	"github.com/energyreceiver/energyreceiver/internal/units"
)

// Limit bounds the series of one entity. The package comment describes which series has the energy
// of workloads without a series. The zero Limit gives each process, container, pod or VM a series.
type Limit struct {
	// MinEnergy is the active energy, over all kinds, that a process, container, pod or VM must
	// have used before it gets a series.
	MinEnergy units.Energy
	// MinAge is the minimum age of a process with a series. The age is the time since its claimant
	// was opened. It does not apply to a process whose claimant was opened before the first
	// interval after New or Restore, or to other entities.
	MinAge time.Duration
	// Max is the maximum number of live series; 0 selects maxLive. When a collection ends, the
	// largest users have the series. Ended series do not count, so a pipeline that refuses all data
	// does not prevent new series. The package comment describes how many ended series are kept
	// until their end is acknowledged.
	Max int
	// Births is the maximum number of programs, containers or pods per hour that have a series from
	// the start; 0 is no limit. Further ones get a series at the age of 5 minutes. Their energy
	// until then is in the account of their group, or in the overflow account if they have no
	// names. Accounts that are opened before the first interval do not count. For processes, Births
	// is the maximum number of series that begin per hour.
	Births int
}

// Limits holds the Limit of each entity.
type Limits [identity.NumEntities]Limit

const (
	// maxLive is the default of Limit.Max.
	maxLive = 1 << 17
	// maxEnded is the maximum number of ended series of an entity that are kept, unless the next
	// consumer took points of them.
	maxEnded = 10_000
)

func (l *Limit) live() int  { return cmp.Or(l.Max, maxLive) }
func (l *Limit) ended() int { return min(l.live(), maxEnded) }

// lateAge is the age at the start of a series if Limit.Births was exceeded when the account began.
const lateAge = 5 * time.Minute

// births limits the number of accounts that begin in an hour. Each new account occupies an equal
// part of an hour. until is the end of the occupied time, which is at most an hour and a minute
// ahead.
type births struct{ until time.Time }

// hasRoom reports whether one more account may begin with a series.
func (b *births) hasRoom(at time.Time, limit int) bool {
	return !b.until.Add(time.Hour / time.Duration(limit)).After(at.Add(time.Hour))
}

// add counts an account that begins. It may occupy a minute more than the hour: once the limit is
// exceeded, no account has a series from the start for a minute. Otherwise an arbitrary account of
// each interval would have a series from the start.
func (b *births) add(at time.Time, limit int) {
	if b.until.Before(at) {
		b.until = at
	}
	b.until = b.until.Add(time.Hour / time.Duration(limit))
	if most := at.Add(time.Hour + time.Minute); b.until.After(most) {
		b.until = most
	}
}
