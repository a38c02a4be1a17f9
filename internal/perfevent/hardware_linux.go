// SPDX-License-Identifier: Apache-2.0

package perfevent

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/energyreceiver/energyreceiver/internal/kernfs"
	"github.com/energyreceiver/energyreceiver/internal/machine"
)

// The errors of FindHardware.
var (
	errVirtual = errors.New("in a virtual machine, each read of a counter may call the hypervisor, which costs more than a context switch")
	errHybrid  = errors.New("the machine has several kinds of CPUs, and their events differ")
	errNoPMU   = errors.New("the machine has no counters of hardware events")
	errRefills = errors.New("the CPU counts refills of the first-level cache only, not misses of the last-level cache")
)

// FindHardware returns the hardware events that the machine can count for each process. The error
// is the reason if it cannot count them. root is the root directory of the host.
func FindHardware(root string) (*Hardware, error) {
	if err := CheckKernel(root); err != nil {
		return nil, err
	}
	if release, err := os.ReadFile(filepath.Join(root, "proc/sys/kernel/osrelease")); err == nil && isOld(release) {
		return nil, ErrOldKernel
	}
	info, err := os.ReadFile(filepath.Join(root, "proc/cpuinfo"))
	if err != nil {
		return nil, err
	}
	if machine.IsVirtual(root, os.Getenv) {
		return nil, errVirtual
	}
	h, err := describe(root, info)
	if err != nil {
		return nil, err
	}
	if err := h.try(root); err != nil {
		return nil, err
	}
	return h, nil
}

// isOld reports whether a release of the kernel precedes Linux 5.13, which lacks task storage for
// tracing programs.
func isOld(release []byte) bool {
	var major, minor int
	_, err := fmt.Sscanf(string(release), "%d.%d", &major, &minor)
	return err == nil && (major < 5 || major == 5 && minor < 13)
}

// describe selects the events by the files of the machine.
func describe(root string, info []byte) (*Hardware, error) {
	devices := filepath.Join(root, "sys/bus/event_source/devices")
	if hybrid, _ := filepath.Glob(filepath.Join(devices, "cpu_*")); len(hybrid) > 0 {
		return nil, errHybrid
	}
	h := NewHardware(unix.PERF_TYPE_HARDWARE, [HardwareEvents]uint64{
		unix.PERF_COUNT_HW_CPU_CYCLES, unix.PERF_COUNT_HW_INSTRUCTIONS, unix.PERF_COUNT_HW_CACHE_MISSES,
	})
	var arm []string
	for _, pattern := range []string{"armv[89]_*", "apple_*_pmu"} { // the names of drivers/perf/arm_pmuv3.c and apple_m1_cpu_pmu.c
		found, _ := filepath.Glob(filepath.Join(devices, pattern))
		arm = append(arm, found...)
	}
	switch {
	case len(arm) > 1:
		return nil, errHybrid
	case len(arm) == 1: // the generic event counts refills of the first-level cache (drivers/perf/arm_pmuv3.c)
		h.Misses = h.useArm(arm[0])
	case bytes.Contains(info, []byte("AuthenticAMD")): // arch/x86/events/amd/core.c, amd_zen1_perfmon_event_map
		h.Cache = levelTwo
	}
	return h, nil
}

// useArm selects the event of an Arm PMU that counts misses of the last-level cache.
func (h *Hardware) useArm(pmu string) error {
	kind, err := ReadNumber(filepath.Join(pmu, "type"), "")
	if err != nil {
		return err
	}
	config, err := ReadNumber(filepath.Join(pmu, "events/ll_cache_miss_rd"), "event=")
	if errors.Is(err, fs.ErrNotExist) {
		return errRefills
	}
	h.events[HardwareEvents-1] = event{uint32(kind), config}
	return err
}

// try opens and closes a counter of each event on one CPU. It does without cache misses if the CPU
// does not count them.
func (h *Hardware) try(root string) error {
	cpus, err := ReadCPUs(filepath.Join(root, "sys/devices/system/cpu/online"))
	if err != nil {
		return err
	}
	c, err := h.Open(cpus[0])
	if err == nil {
		return c.Close()
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("count hardware events: %w", err)
	}
	if h.Misses != nil {
		return errNoPMU
	}
	h.Misses = errors.New("the machine does not count cache misses")
	return h.try(root)
}

// Count returns how many of the events are counted: the first two or all.
func (h *Hardware) Count() int {
	if h.Misses != nil {
		return HardwareEvents - 1
	}
	return HardwareEvents
}

// Open opens a counter for each event on a CPU. The counters are not pinned, so they share the PMU
// with other users. After an error, all counters are closed.
func (h *Hardware) Open(cpu int) (Counters, error) { return open(h.events[:h.Count()], cpu, false) }

// Counters are the open counters of a CPU.
type Counters []int

// open opens a counter for each event on a CPU. The first one leads the group, if they are one.
func open(events []event, cpu int, isGroup bool) (c Counters, err error) {
	if err := kernfs.FitCounters(len(events)); err != nil {
		return nil, err
	}
	leader := -1
	for _, e := range events {
		attr := unix.PerfEventAttr{Type: e.pmu, Config: e.config, Size: uint32(unsafe.Sizeof(unix.PerfEventAttr{}))}
		if isGroup {
			attr.Read_format = unix.PERF_FORMAT_GROUP | unix.PERF_FORMAT_TOTAL_TIME_ENABLED
		}
		fd, err := Open(&attr, -1, cpu, leader, 0)
		if err != nil {
			return nil, errors.Join(err, c.Close())
		}
		if c = append(c, fd); isGroup {
			leader = c[0]
		}
	}
	return c, nil
}

// Close closes the counters.
func (c Counters) Close() error {
	var errs []error
	for _, fd := range slices.Backward(c) { // a leader that is closed first leaves its events to themselves
		errs = append(errs, Close(fd))
	}
	return errors.Join(errs...)
}
