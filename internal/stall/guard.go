// SPDX-License-Identifier: Apache-2.0

// Package stall reads files of processes that a process can block forever, such as /proc/PID/cmdline while it holds
// its mmap lock. A separate goroutine performs the read and is abandoned if the read does not return in time.
//
// dev/kernel-reads.md lists the files and the locks on which they depend.
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

// ErrUnread reports that a file was not read in time: its process blocks reads, or the machine is short of CPU time.
var ErrUnread = errors.New("the file was not read in time")

// ErrSlow is wrapped by the error of Err if files were not read in time, but no process was found to block reads.
var ErrSlow = errors.New("reads below /proc are slow")

const (
	// patience is the maximum wait for one read. Once the total wait in a scan exceeds patience, the maximum wait for
	// each read is haste. Once it exceeds twice patience, the scan reads nothing else.
	patience = 100 * time.Millisecond
	haste    = 20 * time.Millisecond
	// quick is the duration of an unblocked read, which does not count as waiting.
	quick = 250 * time.Microsecond
	// firstLook is the time after which the thread is first checked for a blocked read.
	firstLook = time.Millisecond
	// maxStarved is the maximum total time that the slow reads of a scan may use a CPU or wait for a CPU. After that,
	// the scan stops reading, so that the collection is not late, and the next scan reads the other files.
	maxStarved = 500 * time.Millisecond
	// longest is the time after which a read is abandoned even if it only waits for a CPU.
	longest = 2 * time.Second
	// suspect is the time after which a read that has not returned is reported. It is long because on a busy machine,
	// a process can be preempted while it holds a lock.
	suspect = time.Second
	// pause is the minimum time until a process that missed the deadline is read again.
	pause = time.Minute
	// maxOfUser and maxMissed are the maximum numbers of processes, per user and in total, that missed the deadline
	// within the last pause or have a read that has not returned. Each such process occupies a thread until the read
	// returns, or two if its directory is locked or the read of its user also blocks.
	maxOfUser, maxMissed = 2, 32
)

// Job reads files of one process at a time. It holds the parameters and the results of a read, and buffers. Each
// goroutine of a Guard has its own Job.
type Job interface {
	// Close closes the files that the Job holds open.
	Close() error
}

// Options configure a Guard.
type Options[J Job] struct {
	// Root is the root directory of the host. Its directory proc contains the processes.
	Root string
	// New returns a new Job.
	New func() J
	// Everywhere also guards files of file systems other than procfs. Without it, the goroutine that calls Run reads
	// these files, because no process can block the files of a simulated host.
	Everywhere bool
	// Haste is the maximum wait for a read after the scan has waited for other reads. 0 selects 20 ms. Tests set it
	// because they share the machine.
	Haste time.Duration
	// Pause is the minimum time until a process that missed the deadline is read again. 0 selects a minute.
	Pause time.Duration
}

// Guard runs jobs of type J with a deadline of 100 ms. A job that misses the deadline is abandoned: it keeps its
// goroutine, its thread and its buffers until the read returns. Its process is not read again until the read has
// returned and a minute has passed.
//
// A job that uses a CPU or waits for a CPU does not count as blocked and has up to 2 s. After half
// a second of such jobs, a scan stops reading. If such a job is abandoned, its process is read
// again as soon as the read has returned. The same applies to a job whose thread state cannot be
// read.
//
// The number of processes with abandoned jobs is bounded: two for each real user ID, 32 in total. Beyond that, no
// process of the user, or of any user, is read. However many processes and users block reads, a scan waits for at
// most about 200 ms: after 50 ms, the processes of each user may block it for 20 ms more; after 100 ms, a read that
// takes more than 20 ms misses its deadline; and after 200 ms, nothing is read until the next scan. The first scan
// may wait for 1 s more, since no collection waits for it. The Guard adds three or four microseconds to each read and
// allocates no memory.
//
// After a missed deadline, a second request determines whether the directory of the process is locked. Any user can
// lock it, so such a process counts against no user, only towards the total.
//
// Remaining risk: an attacker with 16 user IDs, such as those of a user namespace, can reach the
// total bound, and so can an attacker that locks the directories of 32 processes
// (dev/kernel-reads.md). No other process is then read until the reads return. Reaching the bound
// delays a few scans by 200 ms. A process that blocks for less than the deadline delays scans by
// that time, and a later scan performs the reads for which a scan had no time. Each time that an
// attacker locks the directory of the collector's own threads, it can delay one scan by 1 s more:
// until the state of a thread can be read, a blocked read is taken for one that waits for a CPU.
//
// A Guard is not safe for concurrent use. The first Run starts its goroutine; Close ends it.
type Guard[J Job] struct {
	options Options[J]
	proc    string
	look    func(*thread) state
	now     time.Time     // of the scan
	left    time.Duration // until haste applies to the reads of the scan; then negative
	starved time.Duration // for which reads of the scan used a CPU or waited for one
	// exhausted is set once a read of the scan was refused because the scan has waited too long.
	exhausted, wasExhausted bool // in this scan and in the previous one
	begun                   bool
	spent                   map[user]time.Duration // in the scan, once it has waited for half of patience
	timer                   *time.Timer
	idle                    *worker[J] // runs the next request
	missed                  []miss
	direct                  bool // nothing can block
	found                   bool // direct is known
}

// miss is a process that missed a deadline.
type miss struct {
	pid   int32
	start time.Duration
	user  user
	at    time.Time
	// read and status are hasEnded of the workers that were abandoned in a read of a file, and in a read of the user
	// or a wait for the lock of the directory. nil marks a request that did not miss its deadline.
	read, status *atomic.Bool
	// slow is set if the process may not block reads, because the machine may be short of CPU time.
	slow bool
}

// hasEnded reports whether all reads of the process have returned.
func (m *miss) hasEnded() bool {
	return (m.read == nil || m.read.Load()) && (m.status == nil || m.status.Load())
}

// user is a real user ID, or noUser.
type user int64

const (
	// noUser is the user of a process whose user cannot be read.
	noUser user = -1
	// anyUser stands for the user of files that belong to no process.
	anyUser user = -2
)

// New returns a Guard. It reads nothing.
func New[J Job](options Options[J]) *Guard[J] {
	return &Guard[J]{options: options, proc: filepath.Join(options.Root, "proc"), left: patience, look: (*thread).state}
}

// Begin begins a scan.
func (g *Guard[J]) Begin(now time.Time) {
	g.now, g.left, g.starved, g.wasExhausted, g.exhausted = now, patience, 0, g.exhausted, false
	if !g.begun { // no collection waits for the first scan, which has the most to read
		g.begun, g.left = true, 10*patience
	}
	clear(g.spent)
	if len(g.missed) > 0 {
		g.missed = slices.DeleteFunc(g.missed, func(m miss) bool {
			return m.hasEnded() && (m.slow || now.Sub(m.at) >= cmp.Or(g.options.Pause, pause) || now.Before(m.at))
		})
	}
}

// Job returns the job that Run will run. The result is valid until Run returns ErrUnread.
func (g *Guard[J]) Job() J { return g.worker().job }

// Run calls read with the Job on another goroutine. pid and start are the PID and the start time of the process that
// is read. After ErrUnread the Job belongs to that goroutine. If the process also blocks the read of its user, the
// user counts as unknown.
func (g *Guard[J]) Run(pid int32, start time.Duration, read func(J)) error {
	return g.run(pid, start, noUser, false, read)
}

// RunOf is like Run for a process whose real user ID is known. A blocked read counts only against that user, unless
// the directory of the process is locked: any user can lock it.
func (g *Guard[J]) RunOf(uid uint32, pid int32, start time.Duration, read func(J)) error {
	return g.run(pid, start, user(uid), true, read)
}

// run runs read for a process, of a user if the user is known.
func (g *Guard[J]) run(pid int32, start time.Duration, of user, known bool, read func(J)) error {
	if g.isDirect() {
		read(g.Job())
		return nil
	}
	if g.left < -patience || g.starved >= maxStarved {
		g.exhausted = true
		return ErrUnread
	}
	if len(g.missed) >= maxMissed || slices.ContainsFunc(g.missed, func(m miss) bool { return m.pid == pid && m.start == start }) {
		return ErrUnread
	}
	if len(g.missed) > 0 || g.left < patience/2 {
		if !known {
			var w *worker[J]
			if of, w = g.userOf(pid); w != nil {
				g.missed = append(g.missed, miss{pid: pid, start: start, user: of, at: g.now, status: w.hasEnded, slow: w.slow})
				return ErrUnread
			}
			known = true
		}
		if of != anyUser && g.missesOf(of) >= maxOfUser {
			return ErrUnread
		}
		if of != anyUser && g.spent[of] >= haste {
			g.exhausted = true
			return ErrUnread
		}
	}
	before := g.left
	w := g.do(request[J]{read: read})
	blocked := before - g.left
	if w == nil {
		if known && blocked > 0 {
			g.spend(of, blocked)
		}
		return nil
	}
	m := miss{pid: pid, start: start, user: of, at: g.now, read: w.hasEnded, slow: w.slow}
	if g.starved >= maxStarved { // no time is left to find the user
		if !known {
			m.user = anyUser
		}
	} else if w := g.awaitLock(pid); w != nil {
		m.user, m.status = noUser, w.hasEnded // any user can have locked the directory
	} else if known {
		g.spend(of, blocked)
	} else if m.user, w = g.userOf(pid); w != nil {
		m.status = w.hasEnded
	}
	g.missed = append(g.missed, m)
	return ErrUnread
}

// RunShared is like Run for files that belong to no process, such as those of a cgroup. id identifies their owner,
// such as the cgroup. Owners whose reads are blocked are not read, and once 32 are blocked, none is, because the
// blocking user is unknown.
func (g *Guard[J]) RunShared(id uint64, read func(J)) error {
	return g.Run(noProcess, time.Duration(id), read)
}

// noProcess stands for the PID of files that belong to no process.
const noProcess = -1

// spend records the time for which a user's processes have blocked the scan.
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

// userOf returns the user of a process, or noUser if the user cannot be read. missed is the
// abandoned worker if the read misses its deadline, or nil.
//
// The owner of the directory /proc/PID does not identify the user: it is root if the process is not dumpable. The
// file status depends on no lock that its process can hold, but the lookup of its name may (dev/kernel-reads.md).
func (g *Guard[J]) userOf(pid int32) (u user, missed *worker[J]) {
	if pid == noProcess {
		return anyUser, nil
	}
	if w := g.do(request[J]{pid: pid}); w != nil {
		return noUser, w
	}
	return g.idle.user, nil
}

// awaitLock waits until the lock of the directory of a process is free. It returns the abandoned worker if the wait
// misses its deadline, or nil.
func (g *Guard[J]) awaitLock(pid int32) (missed *worker[J]) {
	if pid == noProcess {
		return nil
	}
	return g.do(request[J]{pid: pid, lock: true})
}

// do runs a request. It returns the abandoned worker if the request misses its deadline, else nil.
func (g *Guard[J]) do(r request[J]) (missed *worker[J]) {
	w := g.worker()
	if g.timer == nil {
		g.timer = time.NewTimer(time.Hour)
	}
	wait := min(g.left, patience)
	if wait < haste {
		wait = cmp.Or(g.options.Haste, haste)
	}
	began := time.Now()
	w.start(r)
	blocked, done := g.await(w, wait)
	if starved := time.Since(began) - blocked; starved >= firstLook {
		g.starved += starved
	}
	if !done {
		g.idle, missed = nil, w
	}
	g.left -= blocked
	return missed
}

// await waits until a worker has finished its request, and returns how long the request was
// blocked. If the blocked time exceeds wait, await abandons the worker and returns false. Time
// without a free CPU does not count as blocked, but a request that takes longer than longest is
// abandoned.
func (g *Guard[J]) await(w *worker[J], wait time.Duration) (blocked time.Duration, done bool) {
	began := time.Now()
	last, step, seen := began, firstLook, running
	for {
		g.timer.Reset(step)
		select {
		case <-w.done:
			g.timer.Stop()
			switch now := time.Now(); {
			case last.Equal(began) && w.slept:
				blocked = min(max(now.Sub(began)-w.used-quick, 0), firstLook)
			case seen != running:
				blocked += min(now.Sub(last), step)
			}
			return blocked, true
		case <-g.timer.C:
			now := time.Now()
			seen = g.stateOf(w)
			if seen != running {
				blocked += now.Sub(last)
			}
			if (blocked >= wait || now.Sub(began) >= longest) && w.abandon() {
				w.slow = seen != asleep || blocked < wait
				return blocked, false
			}
			// The time of this look does not count as blocked, because the caller may have been preempted.
			last, step = time.Now(), max(firstLook, min(2*step, haste, wait-blocked))
		}
	}
}

// stateOf returns the state of the thread that runs the request of a worker.
func (g *Guard[J]) stateOf(w *worker[J]) state {
	if w.state.Load() != reading { // it waits for a CPU, or has finished
		return running
	}
	return g.look(&w.thread)
}

// worker returns the worker that runs the next request.
func (g *Guard[J]) worker() *worker[J] {
	if g.idle == nil {
		g.idle = &worker[J]{job: g.options.New(), proc: kernfs.NewKillable(g.proc)}
	}
	return g.idle
}

// Err returns an error while processes block reads, or an error that wraps ErrSlow while reads are
// only slow. what names the files, such as "command lines".
func (g *Guard[J]) Err(what string) error {
	processes, slow := map[user]int(nil), g.exhausted && g.wasExhausted
	for i := range g.missed {
		switch m := &g.missed[i]; {
		case m.hasEnded() || g.now.Sub(m.at) < suspect:
		case m.slow:
			slow = true
		default:
			if processes == nil {
				processes = map[user]int{}
			}
			processes[m.user]++
		}
	}
	switch {
	case len(processes) == 0 && slow:
		return fmt.Errorf("%s of some processes were not read, because %w", what, ErrSlow)
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

// namedUsers is the maximum number of users that an error names.
const namedUsers = 3

func describe(u user, processes int) string {
	name := "user " + strconv.FormatInt(int64(u), 10)
	if u < 0 {
		name = "unknown user"
	}
	if processes == 1 {
		return name + " (1 process)"
	}
	return fmt.Sprintf("%s (%d processes)", name, processes)
}

// Close ends the idle goroutine and closes its Job. Abandoned goroutines end when their reads return.
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
