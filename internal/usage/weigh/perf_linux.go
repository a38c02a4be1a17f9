// SPDX-License-Identifier: Apache-2.0

package weigh

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/energyreceiver/energyreceiver/internal/kernfs"
	"github.com/energyreceiver/energyreceiver/internal/perfevent"
	"github.com/energyreceiver/energyreceiver/internal/units"
	"github.com/energyreceiver/energyreceiver/internal/usage/cpu/divide"
	"github.com/energyreceiver/energyreceiver/internal/usage/proc"
)

// errStopped is the error of a counter that was taken off its CPU, which happens when the CPU goes
// offline.
var errStopped = errors.New("a counter has stopped")

// NodeCounter counts an event of the whole node, over all CPUs.
type NodeCounter struct {
	root     string
	event    proc.Event
	online   *divide.Online
	counters []perfCPU // of the CPUs that were online; empty after an error
	retry    time.Time // when the counters may be opened after an error
}

var configs = [...]uint64{
	proc.Cycles:       unix.PERF_COUNT_HW_CPU_CYCLES,
	proc.Instructions: unix.PERF_COUNT_HW_INSTRUCTIONS,
	proc.CacheMisses:  unix.PERF_COUNT_HW_CACHE_MISSES,
}

// OpenNodeCounter starts to count an event of the node whose file system is at root. It fails if
// the machine has no such counter or the kernel does not allow reading it.
func OpenNodeCounter(root string, e proc.Event) (*NodeCounter, error) {
	if err := perfevent.CheckKernel(root); err != nil {
		return nil, err
	}
	c := &NodeCounter{root: root, event: e, online: divide.NewOnline(root)}
	c.cpusChanged()
	if err := c.open(); err != nil {
		return nil, err
	}
	return c, nil
}

// Read returns the events since the previous call, or since the counter was opened. It is an
// estimate if other counters used the hardware too. If other CPUs are online than before, or after a
// failed call, the events until now are lost and the error is ErrRestarted.
func (c *NodeCounter) Read(now time.Time) (uint64, error) {
	if !c.cpusChanged() && len(c.counters) > 0 {
		sum, err := c.read()
		if err == nil {
			return sum, nil
		}
		if !errors.Is(err, errStopped) {
			c.retry = now.Add(retryAfter)
			_ = c.Close() // it was only read from
			return 0, err
		}
	}
	if len(c.counters) == 0 && now.Before(c.retry) {
		return 0, ErrRestarted
	}
	if c.open() != nil {
		c.retry = now.Add(retryAfter)
	}
	return 0, ErrRestarted
}

// cpusChanged reports whether other CPUs are online than before the last call. Machines without
// hotplug have no list of them.
func (c *NodeCounter) cpusChanged() bool {
	changed, _ := c.online.Read()
	_ = c.online.Close() // it was only read from
	return changed
}

// open opens the counters of the CPUs that are online, or else of the CPUs that are present. It
// closes the open ones first: they miss CPUs that came online since.
func (c *NodeCounter) open() error {
	_ = c.Close() // it was only read from
	cpus, err := c.online.CPUs(), error(nil)
	if len(cpus) == 0 {
		if cpus, err = perfevent.ReadCPUs(filepath.Join(c.root, "sys/devices/system/cpu/present")); err != nil {
			return err
		}
	}
	pmus, err := readPMUs(c.root)
	if err != nil {
		return err
	}
	if err := kernfs.FitCounters(len(cpus)); err != nil {
		return err
	}
	attr := unix.PerfEventAttr{
		Type: unix.PERF_TYPE_HARDWARE, Size: uint32(unsafe.Sizeof(unix.PerfEventAttr{})),
		Read_format: unix.PERF_FORMAT_TOTAL_TIME_ENABLED | unix.PERF_FORMAT_TOTAL_TIME_RUNNING,
	}
	for _, cpu := range cpus {
		attr.Config = configs[c.event] | pmus[cpu]<<32 // perf_event_open(2): the PMU is the upper half of the config
		fd, err := perfevent.Open(&attr, -1, cpu, -1, 0)
		switch {
		case err == nil:
			c.counters = append(c.counters, perfCPU{fd: fd})
		case errors.Is(err, unix.ENODEV): // it is offline
		case errors.Is(err, fs.ErrNotExist):
			return errors.Join(fmt.Errorf("the machine does not count %s", c.event), c.Close())
		default:
			return errors.Join(fmt.Errorf("count %s: %w", c.event, err), c.Close())
		}
	}
	if len(c.counters) == 0 {
		return unix.ENODEV
	}
	return nil
}

// readPMUs reads which CPUs belong to the PMU of each kind of CPUs, if there is more than one kind
// (arch/x86/events/intel/core.c).
func readPMUs(root string) (pmus map[int]uint64, err error) {
	pmus = map[int]uint64{}
	for _, pmu := range []string{"cpu_core", "cpu_atom", "cpu_lowpower"} {
		dir := filepath.Join(root, "sys/devices", pmu)
		number, err := perfevent.ReadNumber(filepath.Join(dir, "type"), "")
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		cpus, err := perfevent.ReadCPUs(filepath.Join(dir, "cpus"))
		if err != nil && !errors.Is(err, kernfs.ErrEmpty) { // all of them are offline
			return nil, err
		}
		for _, cpu := range cpus {
			pmus[cpu] = number
		}
	}
	return pmus, nil
}

// perfCPU is the counter of a CPU.
type perfCPU struct {
	fd   int
	last [3]uint64 // value, time enabled and time running, in ns
}

// read returns the events since the previous call. The error is errStopped if the counter of a CPU
// can be read but does not count any more.
func (c *NodeCounter) read() (sum uint64, err error) {
	for i := range c.counters {
		cpu := &c.counters[i]
		var buf [24]byte
		if err := perfevent.Read(cpu.fd, buf[:]); err != nil {
			return 0, err
		}
		now := [3]uint64{
			binary.NativeEndian.Uint64(buf[:]), binary.NativeEndian.Uint64(buf[8:]), binary.NativeEndian.Uint64(buf[16:]),
		}
		if now[1] == cpu.last[1] && now[1] > 0 {
			return 0, errStopped
		}
		sum += cpu.advance(now)
	}
	return sum, nil
}

// advance returns the events since the last reading. If other counters had the hardware for a part
// of the time, the value is scaled to the whole time (perf_event_open(2), "time_enabled"). If they
// had it for all of the time, the next reading covers this reading too.
func (c *perfCPU) advance(now [3]uint64) uint64 {
	value, enabled, running := units.Advance(c.last[0], now[0]), units.Advance(c.last[1], now[1]), units.Advance(c.last[2], now[2])
	if running == 0 && enabled > 0 {
		return 0
	}
	c.last = now
	if running < enabled {
		value = units.MulDiv(value, enabled, running)
	}
	return value
}

// Close stops the counter.
func (c *NodeCounter) Close() error {
	var errs []error
	for i := range c.counters {
		errs = append(errs, perfevent.Close(c.counters[i].fd))
	}
	c.counters = nil
	return errors.Join(errs...)
}
