// SPDX-License-Identifier: Apache-2.0

package kernfs

import (
	"slices"
	"sync/atomic"
	"time"
)

const (
	// patience is the maximum wait for one read. Once the total wait in a scan exceeds patience, the maximum wait for
	// each read is haste. Once it exceeds twice patience, the scan stops reading.
	patience = 100 * time.Millisecond
	haste    = 20 * time.Millisecond
	// firstPatience replaces patience in the first scan, which has the most to read and which no collection waits for.
	firstPatience = time.Second
	// maxStarved is the maximum total time that the slow reads of a scan may use a CPU or wait for a CPU. After that,
	// the scan stops reading, so that the collection is not late, and the next scan reads the other files.
	maxStarved = 500 * time.Millisecond
	// maxMissed is the maximum number of reads that missed the deadline within the last pause or have not returned.
	// Each such read occupies a thread until it returns. maxOfGuard and maxOfUser are the maximum numbers for a Guard
	// and for the processes of a user. A Guard may not use up the total: blocked command lines must not hide CPU times.
	maxMissed, maxOfGuard, maxOfUser = 32, 16, 8
)

// Waits bounds how long the scans of a receiver wait for files that users block, and how many threads these reads
// occupy. All Guards and Searches that run on one goroutine may share a Waits:
//
//   - A scan waits for at most about 200 ms, and the first scan for at most about 1.1 s. After 100 ms, a read that
//     takes more than 20 ms misses its deadline. After 200 ms, the scan stops reading.
//   - After 50 ms, the processes of each user may block the scan for 20 ms more.
//   - At most 32 reads have missed the deadline and not returned, or missed it within the last minute: 16 of each
//     Guard, and 8 of the processes of each user. Beyond that, the Guard reads no other process, or none of the user.
//
// A Waits is not safe for concurrent use.
type Waits struct {
	now     time.Time     // of the scan
	scans   int           // begun
	left    time.Duration // until haste applies to the reads of the scan; then negative
	starved time.Duration // total time that slow reads of the scan used a CPU or waited for one
	spent   map[user]time.Duration
	missed  []miss
	opening atomic.Bool // a worker opens the file of its thread
}

// miss is a read that missed its deadline.
type miss struct {
	guard any // that began it
	of    Subject
	user  user
	at    time.Time
	pause time.Duration // minimum time until the subject is read again
	ended *atomic.Bool  // the read has returned
	// slow is set if the process may not block reads, because the machine may be short of CPU time.
	slow bool
}

// user is a real user ID, or noUser.
type user int64

// noUser stands for the user of a process until the user is read, and for the user of anything but a process. It also
// stands for the user who has locked the directory of a process, because any user can lock it.
const noUser user = -1

// NewWaits returns the Waits of a receiver whose first scan has not begun.
func NewWaits() *Waits { return &Waits{left: firstPatience} }

// Begin begins a scan at now.
func (w *Waits) Begin(now time.Time) {
	w.now, w.left, w.starved = now, patience, 0
	if w.scans++; w.scans == 1 {
		w.left = firstPatience
	}
	clear(w.spent)
	if len(w.missed) > 0 {
		w.missed = slices.DeleteFunc(w.missed, func(m miss) bool {
			return m.ended.Load() && (m.slow || now.Sub(m.at) >= m.pause || now.Before(m.at))
		})
	}
}

// isOver reports whether the scan has waited for too long to read anything else.
func (w *Waits) isOver() bool { return w.left < -patience || w.starved >= maxStarved }

// isTight reports whether the scan has waited for half of patience, after which the time of each user is bounded.
func (w *Waits) isTight() bool { return w.left < patience/2 }

// isBarred reports whether a Guard may not read a subject: a read of the subject missed its deadline, or too many
// reads did.
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

// hasSpent reports whether the processes of a user may not block the scan any longer.
func (w *Waits) hasSpent(u user) bool { return u != noUser && w.isTight() && w.spent[u] >= haste }
