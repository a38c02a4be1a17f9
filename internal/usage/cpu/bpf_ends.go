// SPDX-License-Identifier: Apache-2.0

//go:build linux && (amd64 || arm64)

package cpu

import (
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/energyreceiver/energyreceiver/internal/units"
	"github.com/energyreceiver/energyreceiver/internal/usage/cpu/tasks"
	"github.com/energyreceiver/energyreceiver/internal/usage/proc"
)

// endings reports which processes ended.
type endings interface {
	Drain(yield func(*tasks.Ended)) (tasks.Lost, error)
	// SetDomains sets the domain of each CPU, by its number.
	SetDomains(of []int32) error
	// Watch calls halfFull from another goroutine whenever the buffer of exits becomes half full,
	// until Close.
	Watch(halfFull func()) error
	Close() error
}

// ends holds the process exits since the previous scan. A scan holds mu, and so does drainBetween.
type ends struct {
	mu      sync.Mutex
	endings endings
	domains int           // number of domains of the node, 0 if it is not divided
	newest  time.Duration // upper bound of the start times of all rows; 0 before the first scan
	lost    tasks.Lost    // since the previous scan
	// lostCycles are the cycles without a process in the latest scan.
	lostCycles uint64
	ended      []ending   // of processes that may have rows
	weights    []uint64   // by domain, of each element of ended
	short      shortLived // processes without rows
	// forks maps each process of the root cgroup that exited since the previous scan to its parent.
	forks map[int32]int32

	inScan, between func(*tasks.Ended) // note and noteBetween, which allocate no memory here
}

// ending is the end of a process.
type ending struct {
	proc.ID
	run    units.CPUTime // total
	events proc.Events
	from   origin
}

const (
	// maxForks is the maximum number of exited processes whose parents are remembered, more than
	// fit in the buffer.
	maxForks = 1 << 17
	// maxAncestors bounds the search for an ancestor that still runs: reused PIDs may form a cycle.
	maxAncestors = 32
	// burst is the number of elements above which a map is discarded, because clearing a map costs
	// in proportion to its largest size.
	burst = 1024
	// rootCgroup is the ID of the root of the v2 hierarchy (kernfs numbers its root 1).
	rootCgroup = 1
)

func (e *ends) init(endings endings, o Options) {
	e.endings, e.forks, e.short = endings, map[int32]int32{}, newShortLived(o.Names)
	e.inScan, e.between = e.note, e.noteBetween
	if o.Topology != nil {
		e.domains = len(o.Topology.Domains())
	}
}

// drain removes the process exits from the buffer in a scan.
func (e *ends) drain() error { return e.take(e.inScan) }

// drainBetween drains the buffer between two scans, so that it does not overflow. The result of the
// next scan is the same as if all exits had stayed in the buffer.
func (e *ends) drainBetween() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.newest == 0 { // before the first scan, short-lived processes cannot be distinguished
		return
	}
	_ = e.take(e.between) // a scan reads the other exits, and reports the error
}

// noteBetween records a process exit between two scans. A process that started after all listed
// processes is in no scan: only sums are kept of these processes, however many there are. The
// number of the other processes is bounded, because they existed during the previous scan.
func (e *ends) noteBetween(t *tasks.Ended) {
	if time.Duration(t.Start) <= e.newest {
		e.note(t)
		return
	}
	e.noteParent(t)
	e.short.add(originOf(t), units.CPUTime(t.Run), t.Events, t.Weights)
}

func (e *ends) take(note func(*tasks.Ended)) error {
	now, err := e.endings.Drain(note)
	if err == nil {
		e.lost.Count += now.Count
		e.lost.Run = units.AddSaturating(e.lost.Run, now.Run)
		e.lost.Incomplete += now.Incomplete
		e.lost.Events[proc.Cycles] += now.Events[proc.Cycles]
	}
	return err
}

// note keeps a process exit for the scan.
func (e *ends) note(t *tasks.Ended) {
	e.ended = append(e.ended, ending{
		ID: proc.ID{PID: int32(t.Pid), Start: time.Duration(t.Start)}, run: units.CPUTime(t.Run), events: t.Events, from: originOf(t),
	})
	e.weights = append(e.weights, t.Weights[:min(len(t.Weights), e.domains)]...)
	for len(e.weights) < len(e.ended)*e.domains { // the process ended before the programs knew the domains
		e.weights = append(e.weights, 0)
	}
	e.noteParent(t)
}

// noteParent notes the parent of a process that ended, if its CPU time may go to an ancestor.
func (e *ends) noteParent(t *tasks.Ended) {
	if t.Cgroup == rootCgroup && len(e.forks) < maxForks {
		e.forks[int32(t.Pid)] = int32(t.Parent)
	}
}

// report reports the exits in a scan that has seen all processes.
func (e *ends) report(s *proc.Scan, paths *cgroupPaths) {
	s.Lose(e.lost.Count, e.lost.Incomplete, units.CPUTime(min(e.lost.Run, uint64(proc.Unbounded))))
	for i := range e.ended {
		end, weights := &e.ended[i], e.weights[i*e.domains:(i+1)*e.domains]
		if !s.Exit(end.ID, end.run, end.events, weights) {
			e.short.add(end.from, end.run, end.events, weights)
		}
	}
	for i := range e.short.sums {
		s.Charge(e.chargeOf(s, &e.short.sums[i], paths))
	}
	s.Charge(proc.Charge{
		Slot: -1, CPU: e.short.elsewhere.run, Split: e.split(s, &e.short.elsewhere), Counted: e.short.elsewhere.events,
	})
	e.newest = max(e.newest, s.Now-1) // an older process without a row has exited
	clear(e.ended)
	e.lostCycles = e.lost.Events[proc.Cycles]
	e.ended, e.weights, e.lost, e.forks = e.ended[:0], e.weights[:0], tasks.Lost{}, emptied(e.forks)
	if cap(e.ended) > burst {
		e.ended, e.weights = nil, nil
	}
	e.short.reset()
}

// chargeOf returns the charge of short-lived processes. It names the row of the oldest process in
// their cgroup. If the cgroup is the root (as with cgroup v1), it names their nearest ancestor.
func (e *ends) chargeOf(s *proc.Scan, sum *sum, paths *cgroupPaths) proc.Charge {
	from := sum.from
	c := proc.Charge{Slot: -1, CPU: sum.run, Split: e.split(s, sum), Counted: sum.events}
	if from.cgroup == rootCgroup {
		if c.Slot = e.ancestor(s, from.parent); c.Slot < 0 {
			return c
		}
	} else if c.Slot = s.OldestIn(from.cgroup); c.Slot < 0 {
		if c.Path = paths.Path(from.cgroup); c.Path == "" {
			return c // their program is not available either
		}
	}
	c.Named, c.Comm, c.UID = from.by.known, from.by.comm, from.by.uid
	return c
}

// ancestor returns the row of a PID or, without such a row, the row of the nearest ancestor, which
// it finds by the parents of exited processes (forks). It returns a negative number without an
// ancestor.
func (e *ends) ancestor(s *proc.Scan, pid int32) proc.Slot {
	for range maxAncestors {
		if p := s.Table().Find(pid); p != nil {
			return p.Slot
		}
		parent, ok := e.forks[pid]
		if !ok || parent == pid {
			break
		}
		pid = parent
	}
	return -1
}

func (e *ends) split(s *proc.Scan, sum *sum) proc.Split {
	if sum.parts == nil {
		return 0
	}
	return s.AddParts(sum.run, sum.parts[:e.domains])
}

// shrink frees the memory that an earlier, larger number of processes needed.
func (e *ends) shrink() {
	e.ended, e.weights, e.forks = nil, nil, map[int32]int32{}
	e.short = newShortLived(e.short.names)
}

// emptied returns the map without elements, or a new one.
func emptied[M ~map[K]V, K comparable, V any](m M) M {
	if len(m) > burst {
		return M{}
	}
	clear(m)
	return m
}

// AwaitExits waits for two RCU grace periods: after the first one the kernel frees the processes
// that ended and reports their exits, which each CPU does by the end of the second one.
func (*BPF) AwaitExits() {
	const (
		global = 1                     // MEMBARRIER_CMD_GLOBAL (linux/membarrier.h)
		extra  = 10 * time.Millisecond // a CPU may be late
	)
	for range 2 { // a kernel with CPUs in nohz_full mode refuses it
		_, _, _ = unix.Syscall(unix.SYS_MEMBARRIER, global, 0, 0)
	}
	time.Sleep(extra)
}
