// SPDX-License-Identifier: Apache-2.0

package cpu

import (
	"fmt"
	"path/filepath"
	"time"

	"github.com/prometheus/procfs"

	"github.com/energyreceiver/energyreceiver/internal/kernfs"
	"github.com/energyreceiver/energyreceiver/internal/units"
)

// nodeReader reads the node's CPU time from /proc/stat, and other files of /proc that are no process's.
type nodeReader struct {
	proc *kernfs.Dir
	buf  []byte

	node  Node
	last  cpuTicks
	begun bool
}

func newNodeReader(root string) nodeReader {
	return nodeReader{proc: kernfs.New(filepath.Join(root, "proc")), buf: make([]byte, 4096)}
}

// ReadNode returns the node's CPU time since the first call.
func (n *nodeReader) ReadNode() (Node, error) {
	b, err := n.read("stat")
	if err != nil {
		return n.node, err
	}
	now, err := parseNode(b)
	if err != nil {
		return n.node, fmt.Errorf("%s: %w", n.path("stat"), err)
	}
	if n.begun {
		n.node.add(&n.last, &now)
	}
	n.last, n.begun = now, true
	return n.node, nil
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

func (n *nodeReader) path(name string) string { return filepath.Join(n.proc.Path(), name) }

// read reads one of the files that are not a process's.
func (n *nodeReader) read(name string) ([]byte, error) {
	b, err := n.proc.Read(name, n.buf)
	if err != nil {
		_ = n.proc.Close() // /proc may be mounted anew
		return nil, fmt.Errorf("read %s: %w", n.path(name), err)
	}
	return b, nil
}

// tasks returns the number of tasks of the whole system, 0 where it cannot be told.
func (n *nodeReader) tasks() uint64 {
	b, err := n.read("loadavg")
	if err != nil {
		return 0
	}
	tasks, err := parseThreads(b)
	if err != nil {
		return 0
	}
	return tasks
}
