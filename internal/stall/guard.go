// SPDX-License-Identifier: Apache-2.0

// Package stall reads files of processes that a process can block for ever, such as /proc/PID/cmdline while it holds its mmap lock.
// The read is done by another goroutine, which is abandoned when the read does not return in time.
//
// dev/kernel-reads.md lists the files and the locks that they depend on.
package stall

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/energyreceiver/energyreceiver/internal/kernfs"
)

// ErrBlocked reports that a file was not read because its process blocks reads, or may do so.
var ErrBlocked = errors.New("the process blocks reads of its files")

const (
	// patience is the longest wait for one read, and the time that the reads of a scan may take together until haste is the longest
	// wait for each. When the waits exceed it once more, nothing else is read in the scan.
	patience = 100 * time.Millisecond
	haste    = 20 * time.Millisecond
	// quick is the part of a read's time that does not count: what a read takes that nothing blocks.
	quick = 250 * time.Microsecond
	// firstLook is the time after which a look at the thread shows whether a read is blocked.
	firstLook = time.Millisecond
	// maxStarved is the longest time for which a read may use a CPU or wait for one.
	maxStarved = 2 * time.Second
	// suspect is the time after which a read that has not returned is reported. On a busy machine, a process can be preempted while
	// it holds a lock.
	suspect = time.Second
	// pause is the shortest time until a process that missed the deadline is read again.
	pause = time.Minute
	// maxOfUser and maxMissed are how many processes, of a user and of all users, may have missed the deadline in the last pause or
	// have a read that has not returned. Each costs a thread until its read returns.
	maxOfUser, maxMissed = 2, 32
)

// Job reads files of one process at a time. It has the parameters and the results of a read, and buffers. Each goroutine of a Guard has a
// Job of its own.
type Job interface {
	// Close closes what the Job holds open.
	Close() error
}

// Options configure a Guard.
type Options[J Job] struct {
	// Root is the root directory of the host, in which the processes are below proc.
	Root string
	// New returns a new Job.
	New func() J
	// Everywhere guards files of other file systems than procfs, too. Without it these are read by the goroutine that calls Run: no
	// process can block the files of a simulated host.
	Everywhere bool
	// Haste is the longest wait for a read once the scan has waited for others; 20 ms if it is 0. Tests set it, because they share
	// the machine.
	Haste time.Duration
}

// Guard runs jobs of type J with a deadline of 100 ms. A job that misses the deadline is abandoned: it keeps its goroutine, its thread
// and its buffers until the read returns. The process that it was for is not read again until then, nor within a minute. A job that uses a
// CPU or waits for one is not blocked: it has up to 2 s.
//
// The number of abandoned jobs is bounded: two for each real user ID, 32 in total. Beyond that, no process of the user, or of any user,
// is read. However many processes and users block, a scan waits for about 200 ms at most: after 50 ms, processes of one user may block it
// for 20 ms more, after 100 ms a read that takes more than 20 ms misses its deadline, and after 200 ms nothing is read until the next scan.
// A read costs two or three microseconds more than without a Guard, and no memory.
//
// What remains possible: someone with 16 user IDs, such as those of a user namespace, can reach the total bound, and so can someone
// who blocks the directory lock of 32 processes whose user the caller does not know (dev/kernel-reads.md). Then no further process is read until the reads return. Reaching
// the bound delays a few scans by 200 ms. A process that blocks for less than the deadline delays scans by as much, and what a scan had
// no time for is read in a later one.
//
// A Guard is not safe for concurrent use. It starts its goroutine at the first Run; Close ends it.
type Guard[J Job] struct {
	options Options[J]
	proc    string
	now     time.Time     // of the scan
	left    time.Duration // until reads of the scan have haste; negative from then on
	// exhausted is set once a read of the scan was refused because the scan has waited too long.
	exhausted bool
	spent     map[user]time.Duration // in the scan, once it has waited for half of patience
	timer     *time.Timer
	idle      *worker[J] // runs the next request
	missed    []miss
	direct    bool // nothing can block
	found     bool // direct is known
}

// miss is a process that missed a deadline.
type miss struct {
	pid      int32
	start    time.Duration
	user     user
	at       time.Time
	hasEnded *atomic.Bool // the worker that was abandoned
}

// user is a real user ID, or noUser.
type user int64

const (
	// noUser is the user of a process of which the user cannot be read.
	noUser user = -1
	// anyUser is the user of files that belong to no process.
	anyUser user = -2
)

// New returns a Guard. It reads nothing.
func New[J Job](options Options[J]) *Guard[J] {
	return &Guard[J]{options: options, proc: filepath.Join(options.Root, "proc"), left: patience}
}

// Begin begins a scan.
func (g *Guard[J]) Begin(now time.Time) {
	g.now, g.left, g.exhausted = now, patience, false
	clear(g.spent)
	if len(g.missed) > 0 {
		g.missed = slices.DeleteFunc(g.missed, func(m miss) bool {
			return m.hasEnded.Load() && (now.Sub(m.at) >= pause || now.Before(m.at))
		})
	}
}

// Job returns the job that Run will run. The result is valid until Run returns ErrBlocked.
func (g *Guard[J]) Job() J { return g.worker().job }

// Run calls read with the Job, on another goroutine. pid and start are the number and the start time of the process that it reads.
// After ErrBlocked the Job belongs to that goroutine. The user of a process that blocks the read of its user, too, is unknown.
func (g *Guard[J]) Run(pid int32, start time.Duration, read func(J)) error {
	return g.run(pid, start, noUser, false, read)
}

// RunOf is Run for a process of a user, of whom the real user ID is known. Such a process only counts against its user.
func (g *Guard[J]) RunOf(uid uint32, pid int32, start time.Duration, read func(J)) error {
	return g.run(pid, start, user(uid), true, read)
}

// run runs read for a process of a user, if that is known.
func (g *Guard[J]) run(pid int32, start time.Duration, of user, known bool, read func(J)) error {
	if g.isDirect() {
		read(g.Job())
		return nil
	}
	if g.left < -patience {
		g.exhausted = true
		return ErrBlocked
	}
	if len(g.missed) >= maxMissed || slices.ContainsFunc(g.missed, func(m miss) bool { return m.pid == pid && m.start == start }) {
		return ErrBlocked
	}
	if len(g.missed) > 0 || g.left < patience/2 {
		if !known {
			of, known = g.userOf(pid, start)
		}
		if !known || of != anyUser && g.missesOf(of) >= maxOfUser {
			return ErrBlocked
		}
		if of != anyUser && g.spent[of] >= haste {
			g.exhausted = true
			return ErrBlocked
		}
	}
	before := g.left
	w := g.do(request[J]{read: read})
	if known && g.left < before {
		g.spend(of, before-g.left)
	}
	if w == nil {
		return nil
	}
	if !known {
		of, _ = g.userOf(pid, start)
	}
	g.missed = append(g.missed, miss{pid, start, of, g.now, w.hasEnded})
	return ErrBlocked
}

// RunShared is Run for files that belong to no process, such as those of a cgroup. id identifies what they belong to. One of 32 that block
// reads is not read, and beyond that none is: which user blocks them is not known.
func (g *Guard[J]) RunShared(id uint64, read func(J)) error {
	return g.Run(noProcess, time.Duration(id), read)
}

// noProcess stands for the PID of files that belong to no process.
const noProcess = -1

// spend notes for how long a user's processes have blocked the scan.
func (g *Guard[J]) spend(of user, blocked time.Duration) {
	if g.spent == nil {
		g.spent = map[user]time.Duration{}
	}
	g.spent[of] += blocked
}

// isDirect reports whether nothing can block the files below proc.
func (g *Guard[J]) isDirect() bool {
	if g.options.Everywhere {
		return false
	}
	if !g.found {
		isProc, err := kernfs.IsProc(g.proc)
		g.direct, g.found = err == nil && !isProc, err == nil
	}
	return g.direct
}

func (g *Guard[J]) missesOf(u user) (n int) {
	for i := range g.missed {
		if g.missed[i].user == u {
			n++
		}
	}
	return n
}

// userOf returns the user of a process, noUser if it cannot be read. It is not known if the read missed its deadline, in which case
// the Job is gone.
//
// The owner of the directory /proc/PID is root if the process is not dumpable, and so is not its user. The file status depends on no
// lock that its process can hold, but looking up its name may (dev/kernel-reads.md).
func (g *Guard[J]) userOf(pid int32, start time.Duration) (u user, known bool) {
	if pid == noProcess {
		return anyUser, true
	}
	if w := g.do(request[J]{pid: pid}); w != nil {
		g.missed = append(g.missed, miss{pid, start, noUser, g.now, w.hasEnded})
		return noUser, false
	}
	return g.idle.user, true
}

// do runs a request. If the request misses its deadline, the result is the worker that was abandoned, else nil.
func (g *Guard[J]) do(r request[J]) (missed *worker[J]) {
	w := g.worker()
	if g.timer == nil {
		g.timer = time.NewTimer(time.Hour)
	}
	wait := g.left
	if wait < haste {
		wait = cmp.Or(g.options.Haste, haste)
	}
	w.start(r)
	blocked, done := g.await(w, wait)
	if !done {
		g.idle, missed = nil, w
	}
	g.left -= blocked
	return missed
}

// await waits until a worker has finished its request, and returns for how long it was blocked. If that exceeds wait, it abandons the
// worker and returns false. The time for which the machine has no free CPU is not part of it, up to maxStarved.
func (g *Guard[J]) await(w *worker[J], wait time.Duration) (blocked time.Duration, done bool) {
	began := time.Now()
	last, step, isBlocked := began, firstLook, true
	for {
		g.timer.Reset(step)
		select {
		case <-w.done:
			g.timer.Stop()
			switch now := time.Now(); {
			case last == began && w.slept:
				blocked = max(now.Sub(began)-quick, 0)
			case last != began && isBlocked:
				blocked += now.Sub(last)
			}
			return blocked, true
		case now := <-g.timer.C:
			if isBlocked = !w.isStarved(); isBlocked {
				blocked += now.Sub(last)
			}
			if (blocked >= wait || now.Sub(began) >= maxStarved) && w.abandon() {
				return blocked, false
			}
			last, step = now, max(firstLook, min(2*step, haste, wait-blocked))
		}
	}
}

// worker returns the one that runs the next request.
func (g *Guard[J]) worker() *worker[J] {
	if g.idle == nil {
		g.idle = &worker[J]{job: g.options.New(), proc: kernfs.NewKillable(g.proc)}
	}
	return g.idle
}

// Err returns an error if processes block reads now. what are the files that are not read, such as "command lines".
func (g *Guard[J]) Err(what string) error {
	if len(g.missed) == 0 && !g.exhausted {
		return nil
	}
	processes := map[user]int{}
	for i, m := range g.missed {
		isSame := func(o miss) bool { return o.pid == m.pid && o.start == m.start && g.isBlocked(&o) }
		if g.isBlocked(&m) && !slices.ContainsFunc(g.missed[:i], isSame) {
			processes[m.user]++
		}
	}
	switch {
	case len(processes) == 0 && g.exhausted:
		return fmt.Errorf("%s of some processes were not read, because reads below /proc are slow", what)
	case len(processes) == 0:
		return nil
	}
	var by []string
	for _, u := range slices.Sorted(maps.Keys(processes)) {
		by = append(by, describe(u, processes[u]))
	}
	if more := len(by) - namedUsers; more > 0 {
		by = append(by[:namedUsers], fmt.Sprintf("and those of %d more", more))
	}
	return fmt.Errorf("%s of some processes cannot be read, because processes of these users block reads of their files in /proc: %s",
		what, strings.Join(by, ", "))
}

// isBlocked reports whether a read has not returned for so long that its process blocks it.
func (g *Guard[J]) isBlocked(m *miss) bool { return !m.hasEnded.Load() && g.now.Sub(m.at) >= suspect }

// namedUsers is how many users an error names.
const namedUsers = 3

func describe(u user, processes int) string {
	name := "user " + strconv.FormatInt(int64(u), 10)
	if u == noUser {
		name = "unknown user"
	}
	if processes == 1 {
		return name + " (1 process)"
	}
	return fmt.Sprintf("%s (%d processes)", name, processes)
}

// Close ends the goroutine that waits for the next Run and closes its Job. Abandoned goroutines end when their reads return.
func (g *Guard[J]) Close() error {
	w := g.idle
	if w == nil {
		return nil
	}
	g.idle = nil
	if w.requests == nil {
		return w.close()
	}
	close(w.requests)
	<-w.done
	return w.err
}
