// SPDX-License-Identifier: Apache-2.0

package weigh

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/energyreceiver/energyreceiver/internal/cgroup"
	"github.com/energyreceiver/energyreceiver/internal/kernfs"
	"github.com/energyreceiver/energyreceiver/internal/perfevent"
	"github.com/energyreceiver/energyreceiver/internal/units"
)

// perf opens hardware counters of this kernel.
type perf struct {
	root    string
	tree    *cgroup.Tree
	kind    uint32
	config  uint64
	cpus    []bool     // which CPUs are counted, by number
	extra   []extended // of machines whose CPUs are of several kinds
	online  []byte     // content of the file that lists the CPUs
	unknown bool       // the CPUs in online could not be found
	buf     []byte
}

// extended completes the config of a hardware event on some CPUs. If CPUs are of two kinds each
// kind has a PMU, whose type is in the upper half of the config (perf_event_open(2),
// PERF_TYPE_HARDWARE).
type extended struct {
	cpus   []bool
	config uint64
}

var configs = map[Event]uint64{
	Cycles:       unix.PERF_COUNT_HW_CPU_CYCLES,
	Instructions: unix.PERF_COUNT_HW_INSTRUCTIONS,
	CacheMisses:  unix.PERF_COUNT_HW_CACHE_MISSES,
}

// openPerf returns the counters of an event. It fails if the event cannot be counted for all that
// runs.
func openPerf(tree *cgroup.Tree, e Event) (counts, error) {
	if err := perfevent.CheckKernel(tree.Root()); err != nil {
		return nil, err
	}
	p, err := newPerf(tree, unix.PERF_TYPE_HARDWARE, configs[e])
	if err != nil {
		return nil, err
	}
	all, err := p.open(nil)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("the machine does not count %s", e)
	}
	if err != nil {
		return nil, fmt.Errorf("count %s: %w", e, err)
	}
	return p, all.close()
}

func newPerf(tree *cgroup.Tree, kind uint32, config uint64) (*perf, error) {
	p := &perf{root: tree.Root(), tree: tree, kind: kind, config: config, buf: make([]byte, 4096)}
	p.readOnline()
	return p, p.look()
}

// look finds the CPUs that are online, else those that are present, and their kinds.
func (p *perf) look() error {
	list, what := p.online, "online"
	if len(list) == 0 {
		var err error
		if list, err = os.ReadFile(filepath.Join(p.root, "sys/devices/system/cpu/present")); err != nil {
			return err
		}
		what = "present"
	}
	cpus, ok := parseCPUs(list)
	if !ok {
		return fmt.Errorf("%s CPUs: %q is not understood", what, list)
	}
	var extra []extended
	if p.kind == unix.PERF_TYPE_HARDWARE {
		var err error
		if extra, err = findExtended(p.root); err != nil {
			return err
		}
	}
	p.cpus, p.extra = cpus, extra
	return nil
}

// findExtended finds the PMUs of the kinds of CPUs if there is more than one kind
// (arch/x86/events/intel/core.c).
func findExtended(root string) (all []extended, err error) {
	for _, pmu := range []string{"cpu_core", "cpu_atom", "cpu_lowpower"} {
		dir := filepath.Join(root, "sys/devices", pmu)
		kind, err := perfevent.ReadNumber(filepath.Join(dir, "type"), "")
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		list, err := os.ReadFile(filepath.Join(dir, "cpus"))
		if err != nil {
			return nil, err
		}
		cpus, ok := parseCPUs(list)
		if !ok && len(bytes.TrimSpace(list)) > 0 { // else all of them are offline
			return nil, fmt.Errorf("CPUs of %s: %q is not understood", pmu, list)
		}
		all = append(all, extended{cpus, kind << 32})
	}
	return all, nil
}

// configOf returns the event's config on a CPU.
func (p *perf) configOf(cpu int) uint64 {
	for _, e := range p.extra {
		if cpu < len(e.cpus) && e.cpus[cpu] {
			return p.config | e.config
		}
	}
	return p.config
}

func (p *perf) cpusChanged() bool {
	changed := p.readOnline()
	if !changed && !p.unknown {
		return false
	}
	p.unknown = p.look() != nil // then those that were there are tried
	return changed || !p.unknown
}

// readOnline reads which CPUs are online, and reports whether they are other ones than before.
func (p *perf) readOnline() bool {
	online, err := os.Open(filepath.Join(p.root, "sys/devices/system/cpu/online"))
	if err != nil {
		return false // without hotplug
	}
	defer func() { _ = online.Close() }() // it was only read from
	n, err := online.Read(p.buf)
	if err != nil || bytes.Equal(p.buf[:n], p.online) {
		return false
	}
	p.online = append(p.online[:0], p.buf[:n]...)
	return true
}

func (p *perf) identity(n *cgroup.Node) (uint64, bool) {
	var dir kernfs.Kept
	inode, err := p.tree.OpenPerfEventDir(n, &dir)
	_ = dir.Close() // it was not even read from
	return inode, err == nil
}

func (p *perf) open(n *cgroup.Node) (count, error) {
	attr := unix.PerfEventAttr{
		Type: p.kind, Size: uint32(unsafe.Sizeof(unix.PerfEventAttr{})),
		Read_format: unix.PERF_FORMAT_TOTAL_TIME_ENABLED | unix.PERF_FORMAT_TOTAL_TIME_RUNNING,
	}
	pid, flags := -1, 0
	if n != nil {
		var dir kernfs.Kept
		if _, err := p.tree.OpenPerfEventDir(n, &dir); err != nil {
			return nil, err
		}
		defer func() { _ = dir.Close() }() // the counters hold it
		pid, flags = dir.Descriptor(), unix.PERF_FLAG_PID_CGROUP
	}
	count := 0
	for _, there := range p.cpus {
		if there {
			count++
		}
	}
	if err := kernfs.FitCounters(count); err != nil {
		return nil, err
	}
	var c perfCount
	for cpu, there := range p.cpus {
		if !there {
			continue
		}
		attr.Config = p.configOf(cpu)
		fd, err := perfevent.Open(&attr, pid, cpu, -1, flags)
		switch {
		case err == nil:
			c = append(c, perfCPU{fd: fd, always: n == nil})
		case errors.Is(err, unix.ENODEV): // it is offline
		default:
			return nil, errors.Join(err, c.close())
		}
	}
	if len(c) == 0 {
		return nil, unix.ENODEV
	}
	return c, nil
}

// perfCount is a counter on each CPU that was online when it was opened.
type perfCount []perfCPU

type perfCPU struct {
	fd     int
	always bool      // it counts all that runs, not only the processes of a cgroup
	last   [3]uint64 // value, time enabled and time running, in ns
	sum    uint64
}

func (c perfCount) read() (sum uint64, err error) {
	for i := range c {
		cpu := &c[i]
		var buf [24]byte
		if err := perfevent.Read(cpu.fd, buf[:]); err != nil {
			return 0, err
		}
		now := [3]uint64{
			binary.NativeEndian.Uint64(buf[:]), binary.NativeEndian.Uint64(buf[8:]), binary.NativeEndian.Uint64(buf[16:]),
		}
		if cpu.always && now[1] == cpu.last[1] && now[1] > 0 {
			return 0, errStopped
		}
		cpu.advance(now)
		sum += cpu.sum
	}
	return sum, nil
}

// advance adds what was counted since the last reading. If other counters had the hardware for a
// part of the time, the value is scaled to the whole time (perf_event_open(2), "time_enabled"). If
// they had it for all of the time, the next reading covers this one, too.
func (c *perfCPU) advance(now [3]uint64) {
	value, enabled, running := units.Advance(c.last[0], now[0]), units.Advance(c.last[1], now[1]), units.Advance(c.last[2], now[2])
	if running == 0 && enabled > 0 {
		return
	}
	if running < enabled {
		value = units.MulDiv(value, enabled, running)
	}
	c.sum += value
	c.last = now
}

func (c perfCount) close() error {
	var errs []error
	for i := range c {
		errs = append(errs, perfevent.Close(c[i].fd))
	}
	return errors.Join(errs...)
}

// parseCPUs reads a list of CPUs, in ascending order, into a slice by number. It is not ok if the
// list is empty or malformed.
func parseCPUs(text []byte) (cpus []bool, ok bool) {
	ascending := true
	err := kernfs.ParseList(text, func(n int) {
		if n < len(cpus) {
			ascending = false
			return
		}
		cpus = append(append(cpus, make([]bool, n-len(cpus))...), true)
	})
	return cpus, err == nil && ascending
}
