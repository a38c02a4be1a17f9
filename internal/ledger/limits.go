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
	// MinAge is the age that a process must have before it gets a series, since its claimant was
	// opened. A process whose claimant was opened before the first interval, or the first one since
	// the ledger was restored, always has it. Other entities have no minimum.
	MinAge time.Duration
	// Max is the maximum number of live series. 0 selects maxLive. When a collection ends, the largest
	// users have the series. Series that ended do not count, so a pipeline that refuses all data keeps
	// no newcomer out. The package comment describes how many of these are kept until their end is
	// acknowledged.
	Max int
	// Births is the number of programs, containers or pods that may begin in an hour with a series
	// from the start, 0 for no limit. If more begin, each gets a series at the age of 5 minutes.
	// Its energy until then is in the account of its group, or in the account of the others if it
	// has no names. Accounts that are opened before the first interval do not count. For processes,
	// Births is the number of series that may begin in an hour.
	Births int
}

// Limits holds the Limit of each entity.
type Limits [identity.NumEntities]Limit

const (
	// maxLive is the maximum number of live series if Limit.Max is 0.
	maxLive = 1 << 17
	// maxEnded is the maximum number of ended series of an entity that are kept, if the next consumer
	// took no point of them.
	maxEnded = 10_000
)

func (l *Limit) live() int  { return cmp.Or(l.Max, maxLive) }
func (l *Limit) ended() int { return min(l.live(), maxEnded) }

// lateAge is the age when an account gets a series if it began after too many others.
const lateAge = 5 * time.Minute

// births limits how many accounts begin in an hour. Each account occupies an equal part of an hour,
// after the part of the account before. until is the end of the last part, at most an hour and a
// minute ahead.
type births struct{ until time.Time }

// hasRoom reports whether one more account may begin with a series.
func (b *births) hasRoom(at time.Time, limit int) bool {
	return !b.until.Add(time.Hour / time.Duration(limit)).After(at.Add(time.Hour))
}

// add counts an account. After too many accounts, no account has a series from the start for a
// minute: otherwise one account in each interval would have one, by chance.
func (b *births) add(at time.Time, limit int) {
	if b.until.Before(at) {
		b.until = at
	}
	b.until = b.until.Add(time.Hour / time.Duration(limit))
	if most := at.Add(time.Hour + time.Minute); b.until.After(most) {
		b.until = most
	}
}
