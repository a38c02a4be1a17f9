// SPDX-License-Identifier: Apache-2.0

//go:build linux && (amd64 || arm64)

package tasks

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"sync/atomic"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/energyreceiver/energyreceiver/internal/perfevent"
)

// Events holds the maps of hardware events, which all programs share. They outlive the programs.
type Events struct {
	hardware *perfevent.Hardware
	maps     map[string]*ebpf.Map
}

// NewEvents creates the maps (Linux 5.13).
func NewEvents(h *perfevent.Hardware) (*Events, error) {
	spec, err := loadRan()
	if err != nil {
		return nil, err
	}
	cpus, err := ebpf.PossibleCPU()
	if err != nil {
		return nil, err
	}
	spec.Maps[ranMapExitedEvents].MaxEntries = roomForThreads(cpus)
	e := &Events{hardware: h, maps: map[string]*ebpf.Map{}}
	for _, name := range []string{ranMapThreadRuns, ranMapExitedEvents} {
		if e.maps[name], err = ebpf.NewMap(spec.Maps[name]); err != nil {
			return nil, errors.Join(fmt.Errorf("make the maps of hardware events: %w", withGrants(err)), e.Close())
		}
	}
	return e, nil
}

// count returns how many events are counted, 0 for nil.
func (e *Events) count() int {
	if e == nil {
		return 0
	}
	return e.hardware.Count()
}

// shared returns the maps, nil for nil.
func (e *Events) shared() map[string]*ebpf.Map {
	if e == nil {
		return nil
	}
	return e.maps
}

// Close closes the maps.
func (e *Events) Close() error {
	var errs []error
	for _, m := range e.maps {
		errs = append(errs, m.Close())
	}
	return errors.Join(errs...)
}

// counterMaps are the maps of the counters, in the order of the events.
var counterMaps = []string{ranMapCycles, ranMapInstructions, ranMapMisses}

// Counted are sums over the CPUs since the Counter was opened, of the time that was counted.
type Counted struct {
	// All are all events, Idle are the events of idle CPUs, and Lost are the events of threads without
	// state: the kernel had no memory for it.
	All, Idle, Lost [perfevent.HardwareEvents]uint64
	Switches        uint64 // context switches
	Flushes         uint64 // interruptions of busy CPUs by Flush
	// Enabled and Running are times in ns. Running is less than Enabled if other users of the PMU had
	// the hardware for a part of the time.
	Enabled, Running uint64
}

// Counter counts the hardware events of all threads, by the hook of a Ran.
type Counter struct {
	loaded   *programs
	hardware *perfevent.Hardware
	flush    runAttr
	cpus     []ranCpuCounts // by number
	open     map[int]perfevent.Counters
	period   uint32 // the last one
	counts   bool
	flushes  uint64
}

// openCounter opens a Counter and creates the state of all threads. The hooks must be attached.
func openCounter(p *programs, h *perfevent.Hardware) (*Counter, error) {
	c := &Counter{
		loaded: p, hardware: h, open: map[int]perfevent.Counters{},
		cpus: arrayOf[ranCpuCounts](p, ranMapCpuEvents),
	}
	p.closes = append(p.closes, c.closeCounters)
	if p.err != nil {
		return nil, p.err
	}
	c.flush = runOf[struct{}](p.Programs[ranProgFlush], nil)
	c.flush.contextSize, c.flush.flags = 0, unix.BPF_F_TEST_RUN_ON_CPU
	iter, err := link.AttachIter(link.IterOptions{Program: p.Programs[ranProgCreate]})
	if err != nil {
		return nil, fmt.Errorf("attach the program that lists threads: %w", err)
	}
	defer func() { _ = iter.Close() }() // it was only read from
	r, err := iter.Open()
	if err != nil {
		return nil, fmt.Errorf("list threads: %w", err)
	}
	defer func() { _ = r.Close() }() // it was only read from
	_, err = io.Copy(io.Discard, r)
	return c, err
}

// SetCPUs opens the counters of CPUs that came online, and closes the counters of CPUs that went
// offline.
func (c *Counter) SetCPUs(online []int) error {
	changed := false
	for cpu, counters := range c.open {
		if !slices.Contains(online, cpu) {
			changed = true
			delete(c.open, cpu)
			if err := counters.Close(); err != nil {
				return err
			}
		}
	}
	for _, cpu := range online {
		if _, ok := c.open[cpu]; ok || cpu >= len(c.cpus) {
			continue
		}
		changed = true
		if err := c.openCPU(cpu); err != nil {
			return fmt.Errorf("count the events of CPU %d: %w", cpu, err)
		}
	}
	if changed && c.counts {
		return c.Count(true)
	}
	return nil
}

func (c *Counter) openCPU(cpu int) error {
	counters, err := c.hardware.Open(cpu)
	if errors.Is(err, unix.ENODEV) { // it went offline meanwhile
		return nil
	}
	if err != nil {
		return err
	}
	c.open[cpu] = counters
	for i, fd := range counters {
		if err := c.loaded.Maps[counterMaps[i]].Put(uint32(cpu), uint32(fd)); err != nil {
			return err
		}
	}
	return nil
}

// Count starts a counting period, or ends counting. Each busy CPU counts from now on. The first call
// also interrupts idle CPUs, since the hook has not seen their state.
func (c *Counter) Count(on bool) error {
	c.counts = on
	if !on {
		return c.loaded.Variables[ranVarPeriod].Set(uint32(0))
	}
	c.period++
	if err := c.loaded.Variables[ranVarPeriod].Set(c.period); err != nil {
		return err
	}
	return c.flushBusy(c.period == 1)
}

// flushBusy runs the flush on busy CPUs, or on all CPUs.
func (c *Counter) flushBusy(all bool) error {
	for cpu := range c.open {
		if !all && atomic.LoadUint32(&c.cpus[cpu].Process) == 0 {
			continue
		}
		c.flush.cpu = uint32(cpu)
		if err := c.flush.run(unix.Syscall); err != nil && !errors.Is(err, unix.ENXIO) { // it is offline
			return fmt.Errorf("count the events of CPU %d: %w", cpu, err)
		}
		c.flushes++
	}
	return nil
}

// Flush counts the events of the threads that are on a CPU until now, and returns the sums. Idle CPUs
// are not interrupted.
func (c *Counter) Flush() (sum Counted, err error) {
	if err := c.flushBusy(false); err != nil {
		return Counted{}, err
	}
	sum.Flushes = c.flushes
	for i := range c.cpus {
		of := &c.cpus[i]
		for e := range sum.All {
			sum.All[e] += of.All[e]
			sum.Idle[e] += of.Idle[e]
			sum.Lost[e] += of.Lost[e]
		}
		sum.Switches += of.Switches
		sum.Enabled += of.Enabled
		sum.Running += of.Running
	}
	return sum, nil
}

func (c *Counter) closeCounters() error {
	var errs []error
	for _, counters := range c.open {
		errs = append(errs, counters.Close())
	}
	clear(c.open)
	return errors.Join(errs...)
}
