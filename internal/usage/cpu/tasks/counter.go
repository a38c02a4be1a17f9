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
	for _, m := range e.shared() {
		errs = append(errs, m.Close())
	}
	return errors.Join(errs...)
}

// counterMaps are the maps of the counters, in the order of the events.
var counterMaps = []string{ranMapCycles, ranMapInstructions, ranMapMisses}

// Counted are sums over the CPUs while events were counted.
type Counted struct {
	// Cycles is the number of the first event, and LostCycles the part of threads without state: the
	// kernel had no memory for it.
	Cycles, LostCycles uint64
	Switches           uint64 // context switches
	Flushes            uint64 // interruptions of busy CPUs by Flush
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
	last     Counted // sums at the end of the last flush
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
	p.closes = append(p.closes, c.close)
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

// SetCPUs opens counters on CPUs without counters, and closes the counters of CPUs that went offline.
// changed reports whether it did. online is in ascending order.
func (c *Counter) SetCPUs(online []int) (changed bool, err error) {
	for cpu := range c.open {
		if _, isOnline := slices.BinarySearch(online, cpu); !isOnline {
			changed, err = true, errors.Join(err, c.closeCPU(cpu))
		}
	}
	if err != nil {
		return changed, err
	}
	for _, cpu := range online {
		if c.open[cpu] != nil || cpu >= len(c.cpus) {
			continue
		}
		changed = true
		if err := c.openCPU(cpu); err != nil {
			return changed, fmt.Errorf("count the events of CPU %d: %w", cpu, err)
		}
	}
	if changed && c.counts {
		err = c.Count(true)
	}
	return changed, err
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
	_, err := c.flushBusy(c.period == 1)
	c.last = c.sums()
	return err
}

// flushBusy runs the flush on busy CPUs, or on all CPUs. It returns Counted.Lacked. It closes counters
// that have stopped: their CPU went offline, and came online before SetCPUs was called.
func (c *Counter) flushBusy(all bool) (most float64, err error) {
	for cpu, counters := range c.open {
		if !all && atomic.LoadUint32(&c.cpus[cpu].Process) == 0 {
			continue
		}
		c.flush.cpu = uint32(cpu)
		switch err := c.flush.run(unix.Syscall); {
		case errors.Is(err, unix.ENXIO): // it is offline
			continue
		case err != nil:
			return most, fmt.Errorf("count the events of CPU %d: %w", cpu, err)
		}
		c.flushes++
		lacked, ok := counters.update(&c.cpus[cpu])
		most = max(most, lacked)
		if !ok {
			err = errors.Join(err, c.closeCPU(cpu))
		}
	}
	return most, err
}

// Flush counts the events of the threads that are on a CPU until now, and returns the events
// since the last call of Flush or Count. Idle CPUs are not interrupted.
func (c *Counter) Flush() (Counted, error) {
	lacked, err := c.flushBusy(false)
	last, now := c.last, c.sums()
	c.last = now
	return Counted{
		now.Cycles - last.Cycles, now.LostCycles - last.LostCycles, now.Switches - last.Switches, now.Flushes - last.Flushes, lacked,
	}, err
}

// sums returns the sums since the Counter was opened, without Lacked.
func (c *Counter) sums() Counted {
	sum := Counted{Flushes: c.flushes}
	for i := range c.cpus {
		of := &c.cpus[i]
		sum.Cycles, sum.LostCycles, sum.Switches = sum.Cycles+of.All[0], sum.LostCycles+of.Lost[0], sum.Switches+of.Switches
	}
	return sum
}

func (c *Counter) close() error {
	c.counts = false
	_, err := c.SetCPUs(nil)
	return err
}
