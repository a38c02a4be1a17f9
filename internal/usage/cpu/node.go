// SPDX-License-Identifier: Apache-2.0

package cpu

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/prometheus/procfs"

	"github.com/energyreceiver/energyreceiver/internal/kernfs"
	"github.com/energyreceiver/energyreceiver/internal/units"
	"github.com/energyreceiver/energyreceiver/internal/usage/cpu/divide"
)

// nodeReader reads the CPU time of the node and of its domains from /proc/stat, and other files of
// /proc that do not belong to a process.
type nodeReader struct {
	proc *kernfs.Dir
	buf  []byte

	node  Node
	last  cpuTicks
	begun bool

	topology *divide.Topology // nil: the node is not divided
	domains  []domainTime     // by the topology's order
	nodes    []Node           // what Domains returned last
	cpus     []lastTicks      // by number

	countsCreated bool   // the number of created tasks is read, too
	created       uint64 // tasks created since boot
	createdKnown  bool   // created is of the last ReadNode

	perCPU bool            // CPU time is counted by CPU, too
	busy   []units.CPUTime // of each CPU, by number
}

// domainTime is the CPU time of a domain. The domains' times are sums over their own CPUs; all of
// them together may differ from the node's by some ticks, because the kernel rounds each line of
// /proc/stat.
type domainTime struct {
	Node
	stolen units.CPUTime // the time that another machine had
}

// lastTicks holds the last reading of a CPU.
type lastTicks struct {
	ticks, now cpuTicks
	known      bool // it was read before
	listed     bool // it is in the text that is being parsed
}

func newNodeReader(root string) nodeReader {
	return nodeReader{proc: kernfs.New(filepath.Join(root, "proc")), buf: make([]byte, 4096)}
}

// ReadNode returns the node's CPU time since the first call.
func (n *nodeReader) ReadNode() (Node, error) {
	n.createdKnown = false
	b, err := n.read("stat")
	if err != nil {
		return n.node, err
	}
	now, err := parseNode(b)
	if err == nil && (n.topology != nil || n.perCPU) {
		err = n.parseCPUs(b)
	}
	if err == nil && n.countsCreated {
		err = n.parseCreated(b)
	}
	if errors.Is(err, errTruncated) && len(b) == len(n.buf) && len(n.buf) < maxCPUs*lineRoom {
		n.buf = make([]byte, 2*len(n.buf)) // there are more CPUs or interrupts than it has room for
		return n.ReadNode()
	}
	if err != nil {
		return n.node, fmt.Errorf("%s: %w", n.path("stat"), err)
	}
	n.addCPUs(now.measuresInterrupts())
	if n.begun {
		n.node.add(&n.last, &now, now.measuresInterrupts())
	}
	n.last, n.begun = now, true
	return n.node, nil
}

// parseCreated reads how many tasks were created since boot. The error is errTruncated if the text
// ends before that.
func (n *nodeReader) parseCreated(b []byte) error {
	created, err := parseCreated(b)
	if n.createdKnown = err == nil; errors.Is(err, errTruncated) && len(b) == len(n.buf) {
		return err
	}
	n.created = created
	return nil
}

// takeCreated returns how many tasks were created since boot, as of the last ReadNode. It is not
// known if ReadNode was not called since the previous call.
func (n *nodeReader) takeCreated() (created uint64, known bool) {
	known, n.createdKnown = n.createdKnown, false
	return n.created, known
}

// divide makes the reader count CPU time by domain, too.
func (n *nodeReader) divide(t *divide.Topology) {
	n.topology = t
	n.domains, n.nodes = make([]domainTime, len(t.Domains())), make([]Node, len(t.Domains()))
}

// countCPUs makes the reader count the busy time of each CPU, too.
func (n *nodeReader) countCPUs() { n.perCPU = true }

// CPUs returns the busy time of each CPU, by its number, since the first ReadNode or, if it was
// offline then, since it came online; nil unless countCPUs was called. The slice is valid until the
// next ReadNode.
func (n *nodeReader) CPUs() []units.CPUTime { return n.busy }

// Domains returns the CPU time of each domain since the first ReadNode, in the order of the
// topology, nil where the node is not divided. The slice is valid until the next ReadNode.
func (n *nodeReader) Domains() []Node {
	for i := range n.domains {
		n.nodes[i] = n.domains[i].Node
	}
	return n.nodes
}

// lineRoom is more than the line of a CPU in /proc/stat takes: eleven numbers of at most 20 digits.
const lineRoom = 256

// cpuLine is the prefix of the line of a CPU.
var cpuLine = []byte("cpu")

// parseCPUs reads the lines of the online CPUs, which follow the node's line. It stores them in
// cpus and changes nothing else.
func (n *nodeReader) parseCPUs(b []byte) error {
	for i := range n.cpus {
		n.cpus[i].listed = false
	}
	_, rest, _ := bytes.Cut(b, []byte{'\n'})
	for {
		line, after, whole := bytes.Cut(rest, []byte{'\n'})
		columns, ok := bytes.CutPrefix(line, cpuLine)
		if !ok {
			if !whole && len(b) == len(n.buf) && bytes.HasPrefix(cpuLine, line) {
				return errTruncated
			}
			return nil
		}
		if !whole {
			return errTruncated
		}
		cpu, now, err := parseCPU(columns)
		if err != nil {
			return err
		}
		for len(n.cpus) <= cpu {
			n.cpus = append(n.cpus, lastTicks{})
		}
		n.cpus[cpu].now, n.cpus[cpu].listed = now, true
		rest = after
	}
}

// addCPUs adds the growth of what parseCPUs stored to the domains and CPUs. The first line of a CPU
// is its baseline. measured reports whether the kernel measures interrupts.
func (n *nodeReader) addCPUs(measured bool) {
	for i := range n.cpus {
		c := &n.cpus[i]
		if !c.listed {
			continue
		}
		if c.known && n.topology != nil {
			n.domains[n.topology.Of(int32(i))].add(&c.ticks, &c.now, measured)
		}
		if n.perCPU {
			n.addCPU(i, c)
		}
		c.ticks, c.known = c.now, true
	}
}

func (n *nodeReader) addCPU(i int, c *lastTicks) {
	for len(n.busy) <= i {
		n.busy = append(n.busy, 0)
	}
	if c.known {
		var grown Node
		grown.add(&c.ticks, &c.now, false)
		n.busy[i] += grown.Busy
	}
}

func (d *domainTime) add(last, now *cpuTicks, measured bool) {
	d.Node.add(last, now, measured)
	d.stolen += min(ticks(units.Advance(last[steal], now[steal])), maxColumn)
}

// maxColumn bounds the growth of a column between two reads to 18 years of CPU time, so that no sum
// of columns overflows: a kernel may print a negative number as one near 2^64.
const maxColumn units.CPUTime = 1 << 59

// add adds what the columns grew by. measured reports whether the kernel measures interrupts.
func (n *Node) add(last, now *cpuTicks, measured bool) {
	step := func(columns ...int) (sum units.CPUTime) {
		for _, c := range columns {
			sum += min(ticks(units.Advance(last[c], now[c])), maxColumn)
		}
		return sum
	}
	process := step(user, nice, system)
	interrupts := step(irq, softirq)
	busy := process + interrupts
	if measured {
		n.Interrupt += interrupts
	}
	n.Process += process
	n.Busy += busy
	n.Total += busy + step(idle, iowait)
}

// BootTime returns when the machine booted, by its wall clock, in whole seconds.
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

// SinceBoot returns the time since the machine booted, in hundredths of a second, time in suspend
// included.
func SinceBoot(root string) (time.Duration, error) {
	name := filepath.Join(root, "proc/uptime")
	b, err := os.ReadFile(name)
	if err != nil {
		return 0, err
	}
	since, err := parseUptime(b)
	if err != nil {
		return 0, fmt.Errorf("%s: %w", name, err)
	}
	return since, nil
}

func (n *nodeReader) path(name string) string { return filepath.Join(n.proc.Path(), name) }

// read reads a file of /proc that does not belong to a process.
func (n *nodeReader) read(name string) ([]byte, error) {
	if n.topology != nil {
		if room := 4096 + lineRoom*len(n.topology.ByCPU()); len(n.buf) < room {
			n.buf = make([]byte, room)
		}
	}
	b, err := n.proc.Read(name, n.buf)
	if err != nil {
		_ = n.proc.Close() // /proc may be mounted anew
		return nil, fmt.Errorf("read %s: %w", n.path(name), err)
	}
	return b, nil
}

// tasks returns the number of tasks of the whole system, and the ID of the newest one, both 0 if
// they are unknown.
func (n *nodeReader) tasks() (number, newest uint64) {
	b, err := n.read("loadavg")
	if err != nil {
		return 0, 0
	}
	number, newest, err = parseTasks(b)
	if err != nil {
		return 0, 0
	}
	return number, newest
}
