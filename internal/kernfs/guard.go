// SPDX-License-Identifier: Apache-2.0

package kernfs

import (
	"cmp"
	"errors"
	"fmt"
	"iter"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// ErrUnread reports that a file was not read in time: its process blocks reads, or the machine is
// short of CPU time.
var ErrUnread = errors.New("the file was not read in time")

// ErrSlow is wrapped by the error of Guard.Err if files were not read in time, but no process was
// found to block reads.
var ErrSlow = errors.New("reads below /proc are slow")

const (
	// quick is the duration of an unblocked read, which does not count as waiting.
	quick = 250 * time.Microsecond
	// firstLook is the time after which the thread is first checked for a blocked read.
	firstLook = time.Millisecond
	// longest is the time after which a read is abandoned even if it only waits for a CPU.
	longest = 2 * time.Second
	// suspect is the time after which a read that has not returned is reported. It is long because
	// on a busy machine, a process can be preempted while it holds a lock.
	suspect = time.Second
	// minPause is the minimum time until a process that missed the deadline is read again.
	minPause = time.Minute
)

// Job reads files of one process at a time. It holds the parameters and the results of a read, and
// buffers. Each goroutine of a Guard has its own Job.
type Job interface {
	// Close closes the files that the Job holds open.
	Close() error
}

// Subject identifies the owner of a file: a process, or anything else that has an ID, such as a
// cgroup.
type Subject struct {
	PID   int32         // of a process, otherwise 0
	Start time.Duration // start time of the process, or 0
	ID    uint64        // of anything else
	// UID is the real user ID of the process if HasUID is set. Otherwise the Guard reads the user
	// ID once any process blocks reads.
	UID    uint32
	HasUID bool
}

// is reports whether both are the same process or have the same ID.
func (s *Subject) is(other Subject) bool {
	return s.PID == other.PID && s.Start == other.Start && s.ID == other.ID
}

func (s *Subject) user() user {
	if s.HasUID {
		return user(s.UID)
	}
	return noUser
}

// GuardOptions configure a Guard.
type GuardOptions[J Job] struct {
	// Root is the root directory of the host. Its directory proc contains the processes.
	Root string
	// New returns a new Job.
	New func() J
	// Waits bounds the waits. If it is nil, the Guard has its own.
	Waits *Waits
	// Everywhere also guards files of file systems other than procfs. Without it, the goroutine
	// that calls Do reads these files, because no process can block the files of a simulated host.
	Everywhere bool
	// Haste is the maximum wait for a read after the scan has waited for other reads. 0 selects 20
	// ms. Tests set it because they share the machine.
	Haste time.Duration
	// Pause is the minimum time until a process that missed the deadline is read again. 0 selects a
	// minute.
	Pause time.Duration
}

// Guard reads files that a process can block forever, such as /proc/PID/cmdline while the process
// holds its mmap lock (dev/kernel-reads.md). It runs jobs of type J on a separate goroutine with a
// deadline of 100 ms. A job that misses the deadline is abandoned: it keeps its goroutine, its
// thread and its buffers until the read returns. Its subject is not read again until the read has
// returned and a minute has passed.
//
// A job that uses a CPU or waits for a CPU does not count as blocked and has up to 2 s. If such a
// job is abandoned, its subject is read again as soon as the read has returned. The same applies to
// a job whose thread state cannot be read.
//
// The Guard adds three or four microseconds to each read and allocates no memory.
//
// A Guard is not safe for concurrent use. The first Do starts its goroutine; Close ends it.
type Guard[J Job] struct {
	options GuardOptions[J]
	waits   *Waits
	proc    string
	open    func(*thread)       // thread.open
	look    func(*thread) state // thread.state
	timer   *time.Timer
	idle    *worker[J] // runs the next request
	direct  bool       // no process can block the files
	found   bool       // direct is set
	refused int        // number of the last scan that refused a read because it had waited too long
	pids    []int32    // the argument of the last request of DoForAll
	again   bool       // the scan before that one also refused a read
}

// NewGuard returns a Guard. It opens no file.
func NewGuard[J Job](options GuardOptions[J]) *Guard[J] {
	g := &Guard[J]{options: options, waits: options.Waits, proc: filepath.Join(options.Root, "proc")}
	g.open, g.look = (*thread).open, (*thread).state
	g.options.Haste, g.options.Pause = cmp.Or(options.Haste, haste), cmp.Or(options.Pause, minPause)
	if g.waits == nil {
		g.waits = NewWaits()
	}
	return g
}

// Begin begins a scan at now if the Guard has its own Waits. Otherwise the owner of the Waits
// begins the scans.
func (g *Guard[J]) Begin(now time.Time) {
	if g.options.Waits == nil {
		g.waits.Begin(now)
	}
}

// Job returns the job that Do will run. The result is valid until Do returns ErrUnread.
func (g *Guard[J]) Job() J { return g.worker().job }

// Do calls read with the Job on another goroutine. After ErrUnread the Job may belong to that
// goroutine.
func (g *Guard[J]) Do(of Subject, read func(J)) error {
	if g.isDirect() {
		read(g.Job())
		return nil
	}
	w, u := g.waits, of.user()
	if w.isOver() {
		return g.refuse()
	}
	if w.isBarred(g, of) {
		return ErrUnread
	}
	if u == noUser && of.PID != 0 && (len(w.missed) > 0 || w.isTight()) {
		var ok bool
		if u, ok = g.userOf(of); !ok {
			return ErrUnread
		}
	}
	if u != noUser && w.missesOf(u) >= maxOfUser {
		return ErrUnread
	}
	if w.hasSpent(u) {
		return g.refuse()
	}
	left := w.left
	late := g.do(request[J]{read: read})
	switch blocked := left - w.left; {
	case late == nil:
		w.spend(u, blocked)
		return nil
	case late.seen == inLookup: // of a name in a directory that any user can have locked
		u = noUser
	default:
		w.spend(u, blocked)
	}
	at := len(w.missed)
	g.miss(of, u, late)
	if u == noUser && of.PID != 0 && late.seen != inLookup && !w.isOver() {
		w.missed[at].user, _ = g.userOf(of)
	}
	return ErrUnread
}

// DoForAll calls do with the Job on another goroutine, with 64 of the PIDs in each request. PIDs at
// the end that do not fill a request are left out. It reports whether no request was abandoned.
func (g *Guard[J]) DoForAll(pids iter.Seq[int32], do func(j J, pids []int32)) bool {
	const most = 64
	all := g.pids[:0]
	for pid := range pids {
		if all = append(all, pid); len(all) < most {
			continue
		}
		request := all
		if g.Do(Subject{ID: 1}, func(j J) { do(j, request) }) != nil {
			g.pids = nil
			return false
		}
		all = all[:0]
	}
	g.pids = all
	return true
}

// refuse records that the scan has no time left for a read.
func (g *Guard[J]) refuse() error {
	if scan := g.waits.scans; g.refused != scan {
		g.refused, g.again = scan, g.refused == scan-1
	}
	return ErrUnread
}

// miss records an abandoned read.
func (g *Guard[J]) miss(of Subject, u user, late *worker[J]) {
	w := g.waits
	w.missed = append(w.missed, miss{
		guard: g, of: of, user: u, at: w.now, pause: g.options.Pause, ended: late.ended, slow: late.slow,
	})
}

// isDirect reports whether no process can block the files below proc.
func (g *Guard[J]) isDirect() bool {
	if g.options.Everywhere {
		return false
	}
	if !g.found {
		isProc, err := IsProc(g.proc)
		g.direct, g.found = err == nil && !isProc, err == nil
	}
	return g.direct
}

// userOf returns the real user of a process, or noUser if the user cannot be read. ok is false if
// the read missed its deadline.
//
// The owner of the directory /proc/PID does not identify the user: it is root if the process is not
// dumpable. The file status depends on no lock that its process can hold, but the lookup of its
// name may (dev/kernel-reads.md).
func (g *Guard[J]) userOf(of Subject) (u user, ok bool) {
	if late := g.do(request[J]{pid: of.PID}); late != nil {
		g.miss(of, noUser, late)
		return noUser, false
	}
	return g.idle.user, true
}

// do runs a request. It returns the abandoned worker if the request misses its deadline, and nil
// otherwise.
func (g *Guard[J]) do(r request[J]) (late *worker[J]) {
	w := g.worker()
	if g.timer == nil {
		g.timer = time.NewTimer(time.Hour)
	}
	wait := min(g.waits.left, patience)
	if wait < haste {
		wait = g.options.Haste
	}
	began := time.Now()
	w.start(r)
	blocked, done := g.await(w, wait)
	if starved := time.Since(began) - blocked; starved >= firstLook {
		g.waits.starved += starved
	}
	g.waits.left -= blocked
	if done {
		return nil
	}
	g.idle = nil
	return w
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
				w.seen, w.slow = seen, seen == unclear || seen == running || blocked < wait
				return blocked, false
			}
			// The time of this look does not count as blocked, because the caller may have been
			// preempted.
			last, step = time.Now(), max(firstLook, min(2*step, haste, wait-blocked))
		}
	}
}

// stateOf returns the state of the thread that runs the request of a worker.
func (g *Guard[J]) stateOf(w *worker[J]) state {
	switch w.state.Load() {
	case opening:
		return unclear
	case reading:
		return g.look(&w.thread)
	}
	return running // the worker waits for a CPU, or has finished
}

// worker returns the worker that runs the next request.
func (g *Guard[J]) worker() *worker[J] {
	if g.idle == nil {
		g.idle = &worker[J]{job: g.options.New(), proc: NewKillable(g.proc), open: g.open, opening: &g.waits.opening}
	}
	return g.idle
}

// Err returns an error while processes block reads, or an error that wraps ErrSlow while reads are
// only slow. what names the files, such as "command lines".
func (g *Guard[J]) Err(what string) error {
	w, processes := g.waits, map[user]int(nil)
	slow := g.again && g.refused == w.scans
	for i := range w.missed {
		m := &w.missed[i]
		switch {
		case m.guard != any(g) || m.ended.Load() || w.now.Sub(m.at) < suspect:
		case m.slow:
			slow = true
		case slices.ContainsFunc(w.missed[:i], func(other miss) bool { return other.guard == m.guard && other.of.is(m.of) }):
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
		by = append(by, u.describe(processes[u]))
	}
	return fmt.Errorf("%s of some processes cannot be read, because processes of these users block reads of their files in /proc: %s",
		what, strings.Join(by, ", "))
}

// describe describes a user with a number of processes.
func (u user) describe(processes int) string {
	name, plural := "unknown user", "es"
	if u != noUser {
		name = fmt.Sprintf("user %d", u)
	}
	if processes == 1 {
		plural = ""
	}
	return fmt.Sprintf("%s (%d process%s)", name, processes, plural)
}

// Close ends the idle goroutine and closes its Job. Abandoned goroutines end when their reads
// return.
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
