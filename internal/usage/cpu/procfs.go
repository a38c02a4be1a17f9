// SPDX-License-Identifier: Apache-2.0

package cpu

import (
	"errors"
	"fmt"
	"io/fs"
	"syscall"

	"github.com/energyreceiver/energyreceiver/internal/units"
)

// Procfs reads CPU times from /proc, with the resolution of a Tick. A pass allocates nothing once its
// buffers have grown to the node's size.
type Procfs struct {
	nodeReader
	passNode units.CPUTime // node.Process at the last pass over processes
}

// hides says whether a pass that showed this many tasks misses some of all that exist. Tasks come and go
// between the pass and the reading of their number: the more there are, the more.
func hides(all, shown uint64) bool { return all > shown+max(hiddenThreads, shown/100) }

const hiddenThreads = 16

// NewProcfs returns a source that reads below root, "/" for this machine and "/hostfs" or the like for a
// host's tree mounted in a container. It touches nothing.
func NewProcfs(root string) *Procfs { return &Procfs{nodeReader: newNodeReader(root)} }

// Name implements Source.
func (*Procfs) Name() string { return "procfs" }

// Exact implements Source.
func (*Procfs) Exact() bool { return false }

// Close implements Source.
func (p *Procfs) Close() error { return p.proc.Close() }

// ReadProcesses implements Source.
func (p *Procfs) ReadProcesses(t *Table) error {
	b, err := p.read("uptime")
	if err != nil {
		return err
	}
	now, err := parseUptime(b)
	if err != nil {
		return fmt.Errorf("%s: %w", p.path("uptime"), err)
	}
	if p.topology != nil {
		p.topology.Refresh(now)
		t.divide(p.topology)
	}
	t.begin(now)
	var threads uint64
	unreadable := 0
	row := func(pid int32) {
		t.Processes = append(t.Processes, Process{})
		q := &t.Processes[len(t.Processes)-1]
		switch err := p.readProcess(pid, q); {
		case err == nil:
			threads += uint64(q.Threads)
			return
		case gone(err):
		default:
			// It runs, but not even its start can be read: it is as it was, and the next pass that can
			// read it has the rest.
			unreadable++
			if old := t.previous(pid); old != nil {
				*q = *old
				return
			}
		}
		t.Processes = t.Processes[:len(t.Processes)-1]
	}
	if err := p.proc.Each(func(name []byte) {
		if pid, ok := parsePID(name); ok {
			row(pid)
		}
	}); err != nil {
		t.abort()
		return err
	}
	t.sort(byPID)
	p.readMissed(t, row)
	t.Hidden = unreadable > 0 || hides(p.tasks(), threads)
	t.finish(units.Advance(p.passNode, p.node.Process))
	p.passNode = p.node.Process
	p.findDiscarding(t)
	return nil
}

// findDiscarding looks for processes that ignore SIGCHLD. What their children use shows nowhere once they have ended, and
// children of less than a tick leave nothing that is missed. Only a process of which a child ended without adding to its
// child times is looked at. SA_NOCLDWAIT has the same effect, and /proc does not tell of it.
func (p *Procfs) findDiscarding(t *Table) {
	looked := int32(0)
	for i := range t.Ended {
		e := &t.Ended[i]
		if e.Kernel || e.Zombie || e.Parent == looked {
			continue
		}
		looked = e.Parent
		parent, old := find(t.Processes, e.Parent), t.previous(e.Parent)
		if parent == nil || old == nil || parent.discards || parent.Start > e.Start || parent.ChildCPU > old.ChildCPU {
			continue
		}
		b, err := p.proc.ReadOf(parent.PID, "status", p.buf)
		parent.discards = err == nil && ignoresSIGCHLD(b)
	}
	for i := range t.Processes {
		if t.Processes[i].discards {
			t.Untraced = Unbounded
			return
		}
	}
}

// readMissed looks for each process that the listing lacks but the pass before had: a listing of /proc can
// miss one that runs.
func (p *Procfs) readMissed(t *Table, row func(int32)) {
	listed, j := len(t.Processes), 0
	for i := range t.before {
		pid := t.before[i].PID
		for j < listed && t.Processes[j].PID < pid {
			j++
		}
		if j < listed && t.Processes[j].PID == pid {
			continue
		}
		end := len(t.Processes)
		row(pid)
		// The number may be a thread's now: /proc shows that under its process's times, but does not list it.
		if len(t.Processes) > end && t.Processes[end].Start != t.before[i].Start {
			t.Processes = t.Processes[:end]
		}
	}
	t.sort(byPID)
}

func (p *Procfs) readProcess(pid int32, q *Process) error {
	b, err := p.proc.ReadOf(pid, "stat", p.buf)
	if err != nil {
		return err
	}
	q.PID = pid
	return parseProcess(b, q)
}

// gone says that a process ended while it was being read.
func gone(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ESRCH) || errors.Is(err, errReleased)
}
