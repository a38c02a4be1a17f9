// SPDX-License-Identifier: Apache-2.0

package proc

import (
	"slices"
	"time"

	"github.com/energyreceiver/energyreceiver/internal/units"
)

// awaited holds the processes that are gone and whose exit events have not arrived.
type awaited struct {
	list    []await
	listed  time.Duration // when all processes were listed last
	at      uint32        // the round of that scan
	lost    uint32        // the last round with lost exit events, 0 before the first
	givenUp map[ID]struct{}
}

// await is a process that is gone.
type await struct {
	slot  Slot
	since time.Duration
	at    uint32        // the round of the last scan that listed it
	most  units.CPUTime // that it can have used since then
}

const (
	// maxAwait is how long the end of a process that is gone is waited for. The kernel reports it when
	// it frees the process, an RCU grace period after it took the process off the list.
	maxAwait = 60 * time.Second
	// maxGivenUp is how many processes are remembered whose end is no longer waited for.
	maxGivenUp = 1 << 16
)

// await begins to wait for the end of a process.
func (s *Scan) await(p *Process) {
	a := &s.awaited
	a.list = append(a.list, await{slot: p.Slot, since: s.Now, at: a.at, most: p.mostIn(s.Now - a.listed)})
	p.gone, p.Flags = true, p.Flags|Zombie
}

// settleAwaited forgets processes that ended or are listed again, and gives up those that are gone
// for too long.
func (s *Scan) settleAwaited() {
	a := &s.awaited
	s.Table().dropFound()
	for i := range a.list {
		w := &a.list[i]
		w.since = min(w.since, s.Now)
		if s.Now-w.since < maxAwait {
			continue
		}
		// If the kernel's buffer had no room for the event, its time is part of the lost time. Else the kernel did
		// not call the hook, as happens for some milliseconds after another program was detached from
		// it (seen with Linux 6.18).
		if a.lost < w.at {
			s.Unseen.LostEnds++
			s.Unseen.add(w.most)
		}
		p := &s.Rows[w.slot]
		if a.givenUp == nil || len(a.givenUp) >= maxGivenUp {
			a.givenUp = map[ID]struct{}{}
		}
		a.givenUp[p.ID] = struct{}{}
		s.end(p, 0)
	}
	s.Table().dropFound()
}

// dropFound stops waiting for the ends of processes that ended or were seen again.
func (t *Table) dropFound() {
	t.awaited.list = slices.DeleteFunc(t.awaited.list, func(w await) bool { return !t.Rows[w.slot].gone })
}

// gaveUp reports whether the end of a process is no longer waited for, and forgets that.
func (a *awaited) gaveUp(id ID) bool {
	_, ok := a.givenUp[id]
	delete(a.givenUp, id)
	return ok
}
