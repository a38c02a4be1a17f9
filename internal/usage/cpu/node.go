// SPDX-License-Identifier: Apache-2.0

package cpu

import (
	"bytes"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/prometheus/procfs"

	"github.com/energyreceiver/energyreceiver/internal/kernfs"
	"github.com/energyreceiver/energyreceiver/internal/units"
	"github.com/energyreceiver/energyreceiver/internal/usage/cpu/divide"
)

// Node is CPU time summed over the CPUs of the node or of a domain. No figure ever decreases: if
// the kernel's counter steps back (idle, iowait, a CPU taken offline), the figure stays.
type Node struct {
	// Busy is user, nice, system, irq and softirq time. Guest time is inside user. Steal time,
	// which the hypervisor gave to other machines, is in neither Busy nor Total.
	Busy units.CPUTime
	// Total is Busy, idle and iowait time.
	Total units.CPUTime
	// Process is user, nice and system time, which processes account for.
	Process units.CPUTime
	// Interrupt is irq and softirq time, a part of Busy. It includes the time of ksoftirqd; see
	// Table.Softirqd. On kernels that do not measure interrupts it is the time of ksoftirqd
	// alone, and may not grow.
	Interrupt units.CPUTime
}

// Times are the CPU times of the node and of its parts.
type Times struct {
	Node Node
	// Domains are the times of the domains of the topology, in its order. It is nil without a
	// topology. Their sum may differ from Node by a few ticks, because the kernel rounds
	// each line of /proc/stat.
	Domains []Node
	// CPUs are the busy times of each CPU, by its number, since the first read or, if the CPU was
	// offline then, since it came online. It is nil unless Options.PerCPU is set, and in windows
	// that are too short for the ticks of /proc/stat: use the slices of the exact source instead.
	CPUs []units.CPUTime
}

// NodeClock counts the CPU time of the node.
type NodeClock interface {
	// Read returns the CPU times until at, which is now and has a monotonic clock reading. The
	// slices are valid until the next call. After an error it returns the times of the last call
	// that succeeded.
	Read(at time.Time) (Times, error)
}

// StatClock counts the CPU time of the node by /proc/stat, in ticks, from the first Read on. It is
// not safe for concurrent use.
type StatClock struct {
	files    procFiles
	kept     *kernfs.File     // /proc/stat, nil unless KeepOpen was called
	topology *divide.Topology // nil: the node is not divided
	perCPU   bool
	// countsCreated makes Read also set created.
	countsCreated bool

	node    domainTime
	last    cpuTicks
	begun   bool
	domains []domainTime // by the topology's order
	cpus    []lastTicks  // by number
	busy    []units.CPUTime
	created uint64 // tasks created since boot, as of the last Read; 0 if not read
	nodes   []Node // returned by the last Read
}

// domainTime is the CPU time of the node or of a domain.
type domainTime struct {
	Node
	stolen units.CPUTime // steal time
}

// lastTicks holds the last reading of a CPU.
type lastTicks struct {
	ticks, now cpuTicks
	known      bool // it was read before
	listed     bool // it is in the text that is being parsed
}

// NewStatClock returns the clock of the machine whose root directory is at root. It does not access
// the machine.
func NewStatClock(root string) *StatClock { return &StatClock{files: newProcFiles(root)} }

// KeepOpen keeps /proc/stat open between reads. In short windows, opening the file would cost more
// than reading it. The clock then does not notice if /proc is mounted anew.
func (c *StatClock) KeepOpen() {
	c.kept = &kernfs.File{Path: c.files.path("stat")}
}

// divide makes the clock also count CPU time by domain.
func (c *StatClock) divide(t *divide.Topology) {
	c.topology = t
	c.domains, c.nodes = make([]domainTime, len(t.Domains())), make([]Node, len(t.Domains()))
}

// Close closes the files.
func (c *StatClock) Close() error {
	err := c.files.proc.Close()
	if c.kept != nil {
		err = errors.Join(err, c.kept.Close())
	}
	return err
}

// Stolen returns the steal time as of the last Read.
func (c *StatClock) Stolen() units.CPUTime { return c.node.stolen }

// Read implements NodeClock.
func (c *StatClock) Read(time.Time) (Times, error) {
	err := c.read()
	return c.times(), err
}

func (c *StatClock) times() Times {
	for i := range c.domains {
		c.nodes[i] = c.domains[i].Node
	}
	return Times{Node: c.node.Node, Domains: c.nodes, CPUs: c.busy}
}

// text returns as much of /proc/stat as the buffer has room for.
func (c *StatClock) text() ([]byte, error) {
	if c.kept != nil {
		return c.kept.Read(c.files.buf)
	}
	return c.files.read("stat")
}

// read adds the growth of the columns. The first reading is the baseline.
func (c *StatClock) read() error {
	c.created = 0
	if c.topology != nil {
		if room := 4096 + lineRoom*len(c.topology.ByCPU()); len(c.files.buf) < room {
			c.files.buf = make([]byte, room)
		}
	}
	b, err := c.text()
	if err != nil {
		return err
	}
	now, created, err := c.parse(b)
	if errors.Is(err, errTruncated) && len(b) == len(c.files.buf) && len(b) < maxCPUs*lineRoom {
		c.files.buf = make([]byte, 2*len(b)) // the text did not fit
		return c.read()
	}
	if err != nil {
		return fmt.Errorf("%s: %w", c.files.path("stat"), err)
	}
	c.addCPUs(now.measuresInterrupts())
	if c.begun {
		c.node.add(&c.last, &now, now.measuresInterrupts())
	}
	c.last, c.begun, c.created = now, true, created
	return nil
}

// parse parses the text of /proc/stat. It only changes the lines in cpus.
func (c *StatClock) parse(b []byte) (node cpuTicks, created uint64, err error) {
	node, err = parseNode(b)
	if err == nil && (c.topology != nil || c.perCPU) {
		err = c.parseCPUs(b)
	}
	if err != nil || !c.countsCreated {
		return node, 0, err
	}
	created, err = parseCreated(b)
	if errors.Is(err, errTruncated) && len(b) == len(c.files.buf) {
		return node, 0, err
	}
	return node, created, nil // a complete text may lack the number
}

// lineRoom is more than the line of a CPU in /proc/stat takes: eleven numbers of at most 20 digits.
const lineRoom = 256

// cpuLine is the prefix of the line of a CPU.
var cpuLine = []byte("cpu")

// parseCPUs reads the lines of the online CPUs, which follow the node's line.
func (c *StatClock) parseCPUs(b []byte) error {
	for i := range c.cpus {
		c.cpus[i].listed = false
	}
	_, rest, _ := bytes.Cut(b, []byte{'\n'})
	for {
		line, after, whole := bytes.Cut(rest, []byte{'\n'})
		columns, ok := bytes.CutPrefix(line, cpuLine)
		if !ok {
			if !whole && len(b) == len(c.files.buf) && bytes.HasPrefix(cpuLine, line) {
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
		for len(c.cpus) <= cpu {
			c.cpus = append(c.cpus, lastTicks{})
		}
		c.cpus[cpu].now, c.cpus[cpu].listed = now, true
		rest = after
	}
}

// addCPUs adds the growth of the lines in cpus to the domains and CPUs. The first line of a CPU
// is its baseline. measured reports whether the kernel measures interrupts.
func (c *StatClock) addCPUs(measured bool) {
	for i := range c.cpus {
		p := &c.cpus[i]
		if !p.listed {
			continue
		}
		if p.known && c.topology != nil {
			c.domains[c.topology.Of(int32(i))].add(&p.ticks, &p.now, measured)
		}
		if c.perCPU {
			c.addCPU(i, p)
		}
		p.ticks, p.known = p.now, true
	}
}

func (c *StatClock) addCPU(i int, p *lastTicks) {
	for len(c.busy) <= i {
		c.busy = append(c.busy, 0)
	}
	if p.known {
		var grown Node
		grown.add(&p.ticks, &p.now, false)
		c.busy[i] += grown.Busy
	}
}

func (d *domainTime) add(last, now *cpuTicks, measured bool) {
	d.Node.add(last, now, measured)
	d.stolen += min(ticks(units.Advance(last[steal], now[steal])), maxColumn)
}

// maxColumn is the maximum growth of a column between two reads: 18 years of CPU time. It keeps
// sums of columns from overflowing, because a kernel may print a negative number as one near 2^64.
const maxColumn units.CPUTime = 1 << 59

// add adds the growth of the columns. measured reports whether the kernel measures interrupts.
func (n *Node) add(last, now *cpuTicks, measured bool) {
	step := func(columns ...int) (sum units.CPUTime) {
		for _, c := range columns {
			sum += min(ticks(units.Advance(last[c], now[c])), maxColumn)
		}
		return sum
	}
	process := step(user, nice, system)
	interrupts := step(irq, softirq)
	if measured {
		n.Interrupt += interrupts
	}
	n.Process += process
	n.Busy += process + interrupts
	n.Total += process + interrupts + step(idle, iowait)
}

// since returns n without the CPU time before.
func (n Node) since(before Node) Node {
	return Node{
		Busy: n.Busy - before.Busy, Total: n.Total - before.Total,
		Process: n.Process - before.Process, Interrupt: n.Interrupt - before.Interrupt,
	}
}

// plus returns the sum of n and m.
func (n Node) plus(m Node) Node {
	return Node{
		Busy: n.Busy + m.Busy, Total: n.Total + m.Total,
		Process: n.Process + m.Process, Interrupt: n.Interrupt + m.Interrupt,
	}
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
	files := newProcFiles(root)
	defer func() { _ = files.proc.Close() }() // it was only read from
	return files.uptime()
}
