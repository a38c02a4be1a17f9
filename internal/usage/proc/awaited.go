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
	listed  time.Duration   // when all processes were listed last
	at      uint32          // the round of that scan
	lost    uint32          // the last round with lost exit events, 0 before the first
	givenUp map[ID]struct{} // processes whose exit events are overdue
}

// await is a process that is gone.
type await struct {
	slot  Slot
	since time.Duration
	at    uint32        // the round of the last scan that listed it
	most  units.CPUTime // the most CPU time that it can have used since then
}

const (
	// maxAwait is how long the table waits for the exit event of a process that is gone. The kernel
	// reports the exit when it frees the process, an RCU grace period after removing the process
	// from the list.
	maxAwait = 60 * time.Second
	// maxGivenUp is the maximum number of remembered processes whose exit events are overdue.
	maxGivenUp = 1 << 16
)

// await begins to wait for the exit event of a process.
func (s *Scan) await(p *Process) {
	a := &s.awaited
	a.list = append(a.list, await{slot: p.Slot, since: s.Now, at: a.at, most: p.mostIn(s.Now - a.listed)})
	p.gone, p.Flags = true, p.Flags|Zombie
}

// updateAwaited drops processes whose exit events arrived or that are listed again, and gives up
// processes that are gone for longer than maxAwait.
func (s *Scan) updateAwaited() {
	a := &s.awaited
	s.Table().dropFound()
	for i := range a.list {
		w := &a.list[i]
		w.since = min(w.since, s.Now)
		if s.Now-w.since < maxAwait {
			continue
		}
		// If the kernel's buffer had no room for the event, its time is part of the lost time.
		// Otherwise the kernel did not call the hook. This happens for a few milliseconds after
		// another program was detached from the hook (seen with Linux 6.18).
		if a.lost < w.at {
			s.Unseen.LostExits++
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

// gaveUp reports whether the exit event of a process is overdue, and removes the process from
// givenUp.
func (a *awaited) gaveUp(id ID) bool {
	_, ok := a.givenUp[id]
	delete(a.givenUp, id)
	return ok
}
