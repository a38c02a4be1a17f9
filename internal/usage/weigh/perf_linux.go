// SPDX-License-Identifier: Apache-2.0

package weigh

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/energyreceiver/energyreceiver/internal/kernfs"
	"github.com/energyreceiver/energyreceiver/internal/perfevent"
	"github.com/energyreceiver/energyreceiver/internal/units"
	"github.com/energyreceiver/energyreceiver/internal/usage/cpu/divide"
	"github.com/energyreceiver/energyreceiver/internal/usage/proc"
)

// perf is an event on each CPU that was online when it was opened.
type perf struct {
	root   string
	config uint64
	online *divide.Online
	cpus   []int // that are counted
	// pmus are the numbers of the CPUs' PMUs, by CPU, on machines with several kinds of CPUs.
	pmus     map[int]uint64
	unknown  bool // the PMUs of the online CPUs could not be read
	counters []perfCPU
}

var configs = [...]uint64{
	proc.Cycles:       unix.PERF_COUNT_HW_CPU_CYCLES,
	proc.Instructions: unix.PERF_COUNT_HW_INSTRUCTIONS,
	proc.CacheMisses:  unix.PERF_COUNT_HW_CACHE_MISSES,
}

// openPerf opens the counters of an event.
func openPerf(root string, e proc.Event) (kernelCounters, error) {
	if err := perfevent.CheckKernel(root); err != nil {
		return nil, err
	}
	p, err := newPerf(root, configs[e])
	if err != nil {
		return nil, err
	}
	err = p.open()
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("the machine does not count %s", e)
	}
	if err != nil {
		return nil, fmt.Errorf("count %s: %w", e, err)
	}
	return p, nil
}

func newPerf(root string, config uint64) (*perf, error) {
	p := &perf{root: root, config: config, online: divide.NewOnline(root)}
	p.readOnline()
	return p, p.look()
}

// look finds the CPUs that are online, or else the CPUs that are present, and their PMUs.
func (p *perf) look() error {
	cpus, err := p.online.CPUs(), error(nil)
	if len(cpus) == 0 {
		if cpus, err = perfevent.ReadCPUs(filepath.Join(p.root, "sys/devices/system/cpu/present")); err != nil {
			return err
		}
	}
	pmus, err := readPMUs(p.root)
	if err != nil {
		return err
	}
	p.cpus, p.pmus = cpus, pmus
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

func (p *perf) cpusChanged() bool {
	changed := p.readOnline()
	if !changed && !p.unknown {
		return false
	}
	p.unknown = p.look() != nil // the CPUs that were counted are counted on
	return changed || !p.unknown
}

// readOnline reads which CPUs are online, and reports whether the list has changed. Machines
// without hotplug have no list.
func (p *perf) readOnline() bool {
	changed, _ := p.online.Read()
	_ = p.online.Close() // it was only read from
	return changed
}

func (p *perf) open() error {
	_ = p.close() // it was only read from
	attr := unix.PerfEventAttr{
		Type: unix.PERF_TYPE_HARDWARE, Size: uint32(unsafe.Sizeof(unix.PerfEventAttr{})),
		Read_format: unix.PERF_FORMAT_TOTAL_TIME_ENABLED | unix.PERF_FORMAT_TOTAL_TIME_RUNNING,
	}
	if err := kernfs.FitCounters(len(p.cpus)); err != nil {
		return err
	}
	for _, cpu := range p.cpus {
		attr.Config = p.config | p.pmus[cpu]<<32 // perf_event_open(2): the PMU is the upper half of the config
		fd, err := perfevent.Open(&attr, -1, cpu, -1, 0)
		switch {
		case err == nil:
			p.counters = append(p.counters, perfCPU{fd: fd})
		case errors.Is(err, unix.ENODEV): // it is offline
		default:
			return errors.Join(err, p.close())
		}
	}
	if len(p.counters) == 0 {
		return unix.ENODEV
	}
	return nil
}

// perfCPU is the counter of a CPU.
type perfCPU struct {
	fd   int
	last [3]uint64 // value, time enabled and time running, in ns
	sum  uint64
}

func (p *perf) read() (sum uint64, err error) {
	for i := range p.counters {
		cpu := &p.counters[i]
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
		cpu.advance(now)
		sum += cpu.sum
	}
	return sum, nil
}

// advance adds the events since the last reading. If other counters had the hardware for a part of
// the time, the value is scaled to the whole time (perf_event_open(2), "time_enabled"). If they had
// it for all of the time, the next reading covers this reading too.
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

func (p *perf) close() error {
	var errs []error
	for i := range p.counters {
		errs = append(errs, perfevent.Close(p.counters[i].fd))
	}
	p.counters = p.counters[:0]
	return errors.Join(errs...)
}
