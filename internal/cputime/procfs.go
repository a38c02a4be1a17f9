package cputime

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/prometheus/procfs"

	"github.com/energyreceiver/energyreceiver/internal/procdir"
	"github.com/energyreceiver/energyreceiver/internal/units"
)

// Procfs reads CPU times from /proc, with the resolution of a Tick. A pass allocates nothing once its
// buffers have grown to the node's size.
type Procfs struct {
	proc *procdir.Dir
	buf  []byte

	node     Node
	last     cpuTicks
	nodeRead bool
	passNode units.CPUTime // node.Process at the last pass over processes
}

// hiddenThreads is how many of the system's tasks a pass may miss before it says that some are hidden from
// it: tasks come and go between the pass and the reading of their number.
const hiddenThreads = 16

// NewProcfs returns a source that reads below root, "/" for this machine and "/hostfs" or the like for a
// host's tree mounted in a container. It touches nothing.
func NewProcfs(root string) *Procfs {
	return &Procfs{proc: procdir.New(filepath.Join(root, "proc")), buf: make([]byte, 4096)}
}

// Name implements Source.
func (*Procfs) Name() string { return "procfs" }

// Close implements Source.
func (p *Procfs) Close() error { return p.proc.Close() }

// ReadNode implements Source.
func (p *Procfs) ReadNode() (Node, error) {
	b, err := p.read("stat")
	if err != nil {
		return p.node, err
	}
	now, err := parseNode(b)
	if err != nil {
		return p.node, fmt.Errorf("%s: %w", p.path("stat"), err)
	}
	if p.nodeRead {
		p.node.add(&p.last, &now)
	}
	p.last, p.nodeRead = now, true
	return p.node, nil
}

// maxColumn bounds what a column can grow by between two reads, 18 years of CPU time, so that no sum of
// columns overflows: a kernel may print a negative number as one near 2^64.
const maxColumn units.CPUTime = 1 << 59

func (n *Node) add(last, now *cpuTicks) {
	step := func(columns ...int) (sum units.CPUTime) {
		for _, c := range columns {
			sum += min(ticks(units.Advance(last[c], now[c])), maxColumn)
		}
		return sum
	}
	process := step(user, nice, system)
	busy := process + step(irq, softirq)
	n.Process += process
	n.Busy += busy
	n.Total += busy + step(idle, iowait)
}

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
	if !slices.IsSortedFunc(t.Processes, byPID) {
		slices.SortFunc(t.Processes, byPID)
	}
	p.readMissed(t, row)
	t.Hidden = unreadable > 0 || p.tasks() > threads+hiddenThreads
	t.finish(units.Advance(p.passNode, p.node.Process))
	p.passNode = p.node.Process
	return nil
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
	if len(t.Processes) > listed {
		slices.SortFunc(t.Processes, byPID)
	}
}

func (p *Procfs) readProcess(pid int32, q *Process) error {
	b, err := p.proc.ReadOf(pid, "stat", p.buf)
	if err != nil {
		return err
	}
	q.PID = pid
	return parseProcess(b, q)
}

// tasks returns the number of tasks of the whole system, 0 where it cannot be told.
func (p *Procfs) tasks() uint64 {
	b, err := p.read("loadavg")
	if err != nil {
		return 0
	}
	n, err := parseThreads(b)
	if err != nil {
		return 0
	}
	return n
}

// BootTime returns when the machine booted by its wall clock, to the second.
func BootTime(root string) (time.Time, error) {
	proc, err := procfs.NewFS(filepath.Join(root, "proc"))
	if err != nil {
		return time.Time{}, err
	}
	stat, err := proc.Stat()
	if err != nil {
		return time.Time{}, err
	}
	return time.Unix(int64(stat.BootTime), 0), nil
}

func (p *Procfs) path(name string) string { return filepath.Join(p.proc.Path(), name) }

// read reads one of the files that are not a process's.
func (p *Procfs) read(name string) ([]byte, error) {
	b, err := p.proc.Read(name, p.buf)
	if err != nil {
		_ = p.proc.Close() // /proc may be mounted anew
		return nil, fmt.Errorf("read %s: %w", p.path(name), err)
	}
	return b, nil
}

// gone says that a process ended while it was being read.
func gone(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ESRCH) || errors.Is(err, errReleased)
}
