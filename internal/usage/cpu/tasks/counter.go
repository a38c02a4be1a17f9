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
	// Lacked is the part of the time since the previous Flush that an event lacked the hardware, because
	// other users of the PMU had it. It is the maximum over the interrupted CPUs.
	Lacked float64
}

// Counter counts the hardware events of all threads, by the hook of a Ran.
type Counter struct {
	loaded   *programs
	hardware *perfevent.Hardware
	flush    runAttr
	cpus     []ranCpuCounts // by number
	open     map[int]*cpuCounters
	period   uint32 // the last one
	counts   bool
	flushes  uint64
	lacked   float64 // Lacked of the last flush
	dead     []int   // CPUs whose counters had stopped in the last flush
}

// cpuCounters are the counters of a CPU, and the sums over their times in ns at the last flush.
type cpuCounters struct {
	perfevent.Counters
	enabled, running uint64
}

// update sets the times, and returns the part of the time since the previous flush that a counter
// lacked the hardware. It returns false if the counters have stopped.
func (c *cpuCounters) update(now *ranCpuCounts) (lacked float64, ok bool) {
	enabled, running := int64(now.Enabled-c.enabled), int64(now.Running-c.running)
	c.enabled, c.running = now.Enabled, now.Running
	if enabled <= 0 {
		return 1, false
	}
	return min(1, float64(enabled-running)*float64(len(c.Counters))/float64(enabled)), true
}

// openCounter opens a Counter and creates the state of all threads. The hooks must be attached.
func openCounter(p *programs, h *perfevent.Hardware) (*Counter, error) {
	c := &Counter{
		loaded: p, hardware: h, open: map[int]*cpuCounters{},
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
	for cpu := range c.open {
		if !slices.Contains(online, cpu) {
			changed = true
			if err := c.closeCPU(cpu); err != nil {
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
	c.open[cpu] = &cpuCounters{Counters: counters}
	for i, fd := range counters {
		if err := c.loaded.Maps[counterMaps[i]].Put(uint32(cpu), uint32(fd)); err != nil {
			return err
		}
	}
	return nil
}

// closeCPU closes the counters of a CPU. The maps refer to open counters too.
func (c *Counter) closeCPU(cpu int) error {
	counters := c.open[cpu]
	delete(c.open, cpu)
	errs := []error{counters.Close()}
	for i := range counters.Counters {
		errs = append(errs, c.loaded.Maps[counterMaps[i]].Delete(uint32(cpu)))
	}
	return errors.Join(errs...)
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
	c.lacked, c.dead = 0, c.dead[:0]
	for cpu, counters := range c.open {
		if !all && atomic.LoadUint32(&c.cpus[cpu].Process) == 0 {
			continue
		}
		c.flush.cpu = uint32(cpu)
		switch err := c.flush.run(unix.Syscall); {
		case errors.Is(err, unix.ENXIO): // it is offline
			continue
		case err != nil:
			return fmt.Errorf("count the events of CPU %d: %w", cpu, err)
		}
		c.flushes++
		lacked, ok := counters.update(&c.cpus[cpu])
		c.lacked = max(c.lacked, lacked)
		if !ok {
			c.dead = append(c.dead, cpu)
		}
	}
	return nil
}

// Flush counts the events of the threads that are on a CPU until now, and returns the sums. Idle CPUs
// are not interrupted. Flush opens the counters of a CPU again if they have stopped.
func (c *Counter) Flush() (Counted, error) {
	if err := c.flushBusy(false); err != nil {
		return Counted{}, err
	}
	sum := c.Sums()
	return sum, c.reopen()
}

// reopen opens the counters that had stopped in the last flush: their CPU went offline, and came
// online before SetCPUs was called.
func (c *Counter) reopen() error {
	if len(c.dead) == 0 || !c.counts {
		return nil
	}
	if err := c.flushBusy(true); err != nil { // idle CPUs may have been offline too
		return err
	}
	for _, cpu := range c.dead {
		if err := errors.Join(c.closeCPU(cpu), c.openCPU(cpu)); err != nil {
			return fmt.Errorf("count the events of CPU %d: %w", cpu, err)
		}
	}
	return c.Count(true)
}

// Sums returns the sums of the last flush.
func (c *Counter) Sums() (sum Counted) {
	sum.Flushes, sum.Lacked = c.flushes, c.lacked
	for i := range c.cpus {
		of := &c.cpus[i]
		for e := range sum.All {
			sum.All[e] += of.All[e]
			sum.Idle[e] += of.Idle[e]
			sum.Lost[e] += of.Lost[e]
		}
		sum.Switches += of.Switches
	}
	return sum
}

func (c *Counter) closeCounters() error {
	var errs []error
	for _, counters := range c.open {
		errs = append(errs, counters.Close())
	}
	clear(c.open)
	return errors.Join(errs...)
}
