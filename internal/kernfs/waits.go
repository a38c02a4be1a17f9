// SPDX-License-Identifier: Apache-2.0

package kernfs

import (
	"slices"
	"sync/atomic"
	"time"
)

const (
	patience      = 100 * time.Millisecond
	haste         = 20 * time.Millisecond
	firstPatience = time.Second
	maxStarved    = 500 * time.Millisecond
	maxMissed     = 32
	maxOfGuard    = 16
	maxOfUser     = 8
)

// Waits bounds how long the scans of a receiver wait for files that users block, and how many
// threads these reads occupy. All Guards and Searches that run on one goroutine may share a Waits:
//
//   - A read has up to 100 ms (patience). Once the scan has waited for 100 ms, a read has up to 20
//     ms (haste), and after 200 ms the scan stops reading.
//   - Once the scan has waited for 50 ms, the processes of each user may block it for 20 ms more.
//   - The slow reads of a scan may use a CPU or wait for a CPU for 500 ms in total (maxStarved).
//     After that, the scan stops reading, so that the collection is not late. The next scan reads
//     the other files.
//   - The first scan may wait 1 s longer in each of these cases, because no collection depends on
//     it.
//   - At most 32 missed reads may exist (maxMissed): reads that have not returned, or that missed
//     the deadline within the last minute. Each occupies a thread until it returns. At most 16
//     belong to one Guard, so that blocked command lines do not hide CPU times, and at most 8 to
//     the processes of one user. Beyond a bound, other processes are not read.
//
// A read that is blocked in the lookup of a name counts against no user: any user can lock the
// directory of a process.
//
// Remaining risk: an attacker can reach the bounds with several user IDs, such as the IDs of a user
// namespace. Locking the directories of as many processes has the same effect
// (dev/kernel-reads.md). Reaching a bound delays a few scans by 200 ms. A process that blocks for
// less than the deadline delays scans by that time, and a later scan reads the other files.
//
// A Waits is not safe for concurrent use.
type Waits struct {
	now     time.Time     // of the scan
	scans   int           // number of scans that have begun
	left    time.Duration // until haste applies to the reads of the scan; then negative
	starved time.Duration // total time that slow reads of the scan used a CPU or waited for one
	spent   map[user]time.Duration
	missed  []miss
	opening atomic.Bool // a worker opens the file of its thread
}

// miss is a read that missed its deadline.
type miss struct {
	guard any // the Guard that began the read
	of    Subject
	user  user
	at    time.Time
	pause time.Duration // minimum time until the subject is read again
	ended *atomic.Bool  // the read has returned
	// slow is set if the cause is unclear: the machine may have been short of CPU time.
	slow bool
}

// user is a real user ID, or noUser.
type user int64

// noUser is the user of a process until the user is read, and the user of a directory that does not
// belong to a process. It is also the user who has locked the directory of a process, because any
// user can lock it.
const noUser user = -1

// NewWaits returns the Waits of a receiver whose first scan has not begun.
func NewWaits() *Waits { return &Waits{left: firstPatience, starved: -firstPatience} }

// Begin begins a scan at now.
func (w *Waits) Begin(now time.Time) {
	w.now, w.left, w.starved = now, patience, 0
	if w.scans++; w.scans == 1 {
		w.left, w.starved = firstPatience, -firstPatience
	}
	if len(w.spent) > 0 {
		clear(w.spent)
	}
	if len(w.missed) > 0 {
		w.missed = slices.DeleteFunc(w.missed, func(m miss) bool {
			return m.ended.Load() && (m.slow || now.Sub(m.at) >= m.pause || now.Before(m.at))
		})
	}
}

// isOver reports whether the scan has waited for too long to read anything else.
func (w *Waits) isOver() bool { return w.left < -patience || w.starved >= maxStarved }

// isTight reports whether the scan has waited for half of patience, after which the time of each
// user is bounded.
func (w *Waits) isTight() bool { return w.left < patience/2 }

// isBarred reports whether a Guard may not read a subject: a read of the subject missed its
// deadline, or too many reads did.
func (w *Waits) isBarred(guard any, of Subject) bool {
	ofGuard := 0
	for i := range w.missed {
		if m := &w.missed[i]; m.guard == guard {
			if m.of.is(of) {
				return true
			}
			ofGuard++
		}
	}
	return ofGuard >= maxOfGuard || len(w.missed) >= maxMissed
}

// missesOf returns the number of missed reads of the processes of a user.
func (w *Waits) missesOf(u user) (n int) {
	for i := range w.missed {
		if w.missed[i].user == u {
			n++
		}
	}
	return n
}

// spend records that the processes of a user blocked the scan for some time.
func (w *Waits) spend(of user, blocked time.Duration) {
	if of == noUser || blocked <= 0 {
		return
	}
	if w.spent == nil {
		w.spent = map[user]time.Duration{}
	}
	w.spent[of] += blocked
}

// hasSpent reports whether the processes of a user have used up their time to block the scan.
func (w *Waits) hasSpent(u user) bool { return u != noUser && w.isTight() && w.spent[u] >= haste }
