// SPDX-License-Identifier: Apache-2.0

package command

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/energyreceiver/energyreceiver/internal/kernfs"
	"github.com/energyreceiver/energyreceiver/internal/units"
	"github.com/energyreceiver/energyreceiver/internal/usage/cpu"
	"github.com/energyreceiver/energyreceiver/internal/usage/cpu/divide"
	"github.com/energyreceiver/energyreceiver/internal/usage/proc"
)

// Members are processes whose CPU time is counted as a whole, such as the processes of a cgroup.
type Members interface {
	// Used returns the CPU time of the processes until now, including exited processes.
	Used() (units.CPUTime, error)
	// Processes calls yield with the PID of each process.
	Processes(yield func(pid int32)) error
}

// Source is the CPU time source of a group of processes, such as a command and its descendants, and
// the clock of the node (cpu.Options.Clock). It is exact: the CPU time that no row shows is in
// Table.Charges, up to 1 ms of it in a later scan that lists the processes. All other processes of
// the node are hidden, so their CPU time is unattributed. The CPU time of a row is read from the
// CPU clock of the process if the process can be in the same PID namespace, otherwise from /proc,
// in ticks.
//
// The node's CPU time is counted so that the group's share of the node depends only on the group.
// Total is the time that passed times the number of CPUs, including stolen time. Busy is Total less
// the idle and stolen time of /proc/stat, and at least the CPU time of the group. Over a tenth of a
// second that is more accurate than the ticks of busy time. Process is Busy, including interrupts.
type Source struct {
	proc   *kernfs.Dir
	buf    []byte
	group  Members
	stat   *cpu.StatClock
	online *divide.Online
	clock  func(pid int32) (units.CPUTime, error) // nil: another PID namespace
	began  time.Time                              // at the first Read
	at     time.Time                              // at the last Read
	node   cpu.Node                               // returned by the last Read
	had    units.CPUTime                          // time of the online CPUs since the first Read

	names *exitNames  // nil if the names of short-lived processes are not available
	last  atomic.Bool // AwaitNames was called

	used    units.CPUTime // CPU time of the group as of the last Read
	claimed units.CPUTime // the part of used that scans have shown in rows or charges
	listing listing
}

// listing is the last listing of the group's processes, and their clocks.
type listing struct {
	at     time.Time       // zero before the first listing
	uptime time.Duration   // of the machine at that time
	clocks []units.CPUTime // of the latest scan, in the order of the rows
}

const (
	// relist is the maximum time between two listings.
	relist = 250 * time.Millisecond
	// settled is an age: older processes seldom execute another program.
	settled = time.Second
	// unexplained is the maximum CPU time of the group, in total since the last listing, that the
	// clocks of the listed processes may lack. The next listing charges it, by name if possible. It is
	// not zero because the clocks are read after the group's CPU time, with varying delays.
	unexplained = units.CPUTime(time.Millisecond)
)

// NewSource returns the source of a group on a host whose root directory is at root. It does
// not access the machine. The group's CPU time counts from the first scan on.
func NewSource(root string, group Members) *Source {
	c := &Source{
		proc: kernfs.New(filepath.Join(root, "proc")), buf: make([]byte, 4096),
		group: group, stat: cpu.NewStatClock(root), online: divide.NewOnline(root),
	}
	if self, err := os.Readlink(filepath.Join(root, "proc/self")); err == nil && self == strconv.Itoa(os.Getpid()) {
		c.clock = cpu.ReadCPUClock
		c.stat.KeepOpen()
	}
	return c
}

// Traits implements Source.
func (*Source) Traits() cpu.Traits {
	return cpu.Traits{Name: "command", Traits: proc.Traits{Exact: true}}
}

// Close implements Source.
func (c *Source) Close() error {
	return errors.Join(c.proc.Close(), c.stat.Close(), c.online.Close(), c.names.close())
}

// Read implements NodeClock. It counts the CPU time of the group, too.
func (c *Source) Read(at time.Time) (cpu.Times, error) {
	used, err := c.group.Used()
	if err != nil {
		return cpu.Times{Node: c.node}, err
	}
	stat, err := c.stat.Read(at)
	if err != nil {
		return cpu.Times{Node: c.node}, err
	}
	if c.at.IsZero() {
		if _, err := c.online.Read(); err != nil {
			return cpu.Times{Node: c.node}, err
		}
		c.began = at
	} else {
		c.online.Refresh(at.Sub(c.began))
		c.addNode(at, max(used, c.used), &stat.Node)
	}
	c.at, c.used = at, max(used, c.used)
	return cpu.Times{Node: c.node}, nil
}

// addNode adds the interval until at. used is the total CPU time of the group, and stat the
// total of the node by /proc/stat.
func (c *Source) addNode(at time.Time, used units.CPUTime, stat *cpu.Node) {
	passed := units.CPUTime(max(at.Sub(c.at), 0)) * units.CPUTime(len(c.online.CPUs()))
	c.had += passed
	busy := stat.Busy
	if columns := stat.Total + c.stat.Stolen(); isNear(columns, c.had) { // otherwise /proc/stat shows another machine
		busy = units.Advance(columns-busy, c.had)
	}
	// Late time is added at the rate that the CPUs allow. Time that was added early is not added
	// again.
	grown := max(min(units.Advance(c.node.Busy, busy), passed), used-c.used)
	c.node.Process += grown
	c.node.Busy += grown
	c.node.Total += max(passed, grown)
}

// isNear reports whether the sum of all columns of /proc/stat agrees with the time of the CPUs.
// They may differ by a few ticks. In a sandbox they are unrelated.
func isNear(columns, had units.CPUTime) bool {
	return max(columns, had)-min(columns, had) <= had/16+16*cpu.Tick
}

// Scan implements Source. Within relist of a listing, a scan only reads the CPU clocks of the
// listed processes, if these clocks explain the CPU time of the group.
//
// If a process older than settled executes another program, its CPU clock continues, so the row has
// the new name only after the next listing, up to relist later. A file of the
// process would show the name earlier, but reading a file takes ten times longer than the clock.
func (c *Source) Scan(t *proc.Table, of cpu.Request) error {
	l := &c.listing
	if passed := time.Since(l.at); !of.All && passed < relist && c.readClocks(t, l.uptime+passed) {
		c.scanListed(t, l.uptime+passed)
		return nil
	}
	now, err := c.uptime()
	if err != nil {
		return err
	}
	l.at, l.uptime = time.Now(), now
	s := t.Begin(now)
	if err := c.group.Processes(func(pid int32) { c.see(s, pid) }); err != nil {
		return err
	}
	if t.Scans() == 0 {
		c.begin()
	}
	s.MissRemaining()
	rest := c.claim(s)
	c.claimed += rest
	rest -= c.names.name(s, rest, c.used, c.last.Load())
	c.end(s, rest)
	return nil
}

// end ends a scan. rest is the CPU time of the group that neither rows nor names account for.
func (c *Source) end(s *proc.Scan, rest units.CPUTime) {
	s.Charge(proc.Charge{Slot: -1, Path: groupPath, CPU: rest})
	s.End(0)
	s.Table().Unseen.Hidden = true
}

// readClocks reads the CPU clocks of the listed processes. It returns false if the processes must
// be listed: a process ended or may have executed another program, or the clocks do not explain the
// CPU time of the group.
func (c *Source) readClocks(t *proc.Table, now time.Duration) bool {
	if c.clock == nil || c.last.Load() {
		return false
	}
	clocks, found := c.listing.clocks[:0], units.CPUTime(0)
	for p := range t.All() {
		used, err := c.clock(p.PID)
		if err != nil || now-p.Start < settled {
			return false
		}
		clocks, found = append(clocks, used), found+units.Advance(p.CPU, used)
	}
	c.listing.clocks = clocks
	return units.Advance(c.claimed, c.used) <= found+unexplained
}

// scanListed scans the listed processes by the clocks that readClocks has read. CPU time that the
// clocks lack is not claimed, so it adds up until the next listing.
func (c *Source) scanListed(t *proc.Table, now time.Duration) {
	s, i := t.Begin(now), 0
	for p := range t.All() {
		s.Run(p, c.listing.clocks[i])
		i++
	}
	c.claim(s)
	c.end(s, 0)
}

// uptime returns the time since boot.
func (c *Source) uptime() (time.Duration, error) {
	b, err := c.proc.Read("uptime", c.buf)
	if err == nil {
		var now time.Duration
		if now, err = cpu.ParseUptime(b); err == nil {
			return now, nil
		}
	}
	return 0, fmt.Errorf("read %s: %w", filepath.Join(c.proc.Path(), "uptime"), err)
}

// begin makes the group's CPU time count from now on. The first rows are read by then, so that the
// rows of later scans, which are read after the group's CPU time, lack no CPU time of the group.
func (c *Source) begin() {
	if used, err := c.group.Used(); err == nil {
		c.used = max(c.used, used)
		c.claimed = c.used
	}
}

// see reports a process, unless it is gone.
func (c *Source) see(s *proc.Scan, pid int32) {
	var p proc.Sight
	b, err := c.proc.ReadOf(pid, "stat", c.buf)
	if err != nil {
		return // Used has its CPU time
	}
	if p.PID = pid; cpu.ParseProcess(b, &p) != nil {
		return
	}
	if c.clock != nil {
		if used, err := c.clock(pid); err == nil {
			p.CPU = used
		}
	}
	s.See(&p)
}

// groupPath is the path under which a Source reports the CPU time that no row shows. No cgroup
// has the path.
const groupPath = "/command"

// claim limits the CPU time in the rows to the CPU time of the group that no scan has shown, and
// claims it. It returns the CPU time of the group that no row has. The rows may exceed the CPU time
// of the group, because they are read after it and may be in ticks. The next scan finds the excess.
func (c *Source) claim(s *proc.Scan) (rest units.CPUTime) {
	found, used := s.Table().Used(nil), c.used-c.claimed
	rest = used
	for _, slot := range s.Active {
		p := &s.Rows[slot]
		shown := units.Portion(min(used, found), p.Used, max(found, 1))
		p.CPU -= p.Used - shown
		p.Used = shown
		rest -= shown
	}
	c.claimed = c.used - rest
	return rest
}
