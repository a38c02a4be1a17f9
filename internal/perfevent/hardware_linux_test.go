// SPDX-License-Identifier: Apache-2.0

package perfevent

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/energyreceiver/energyreceiver/internal/kernfs"
)

// newMachine writes the files of a machine of this kernel, and returns its root directory.
func newMachine(t *testing.T, files map[string]string) string {
	t.Helper()
	root := t.TempDir()
	id, err := kernfs.BootID("/")
	require.NoError(t, err)
	all := map[string]string{
		"proc/sys/kernel/random/boot_id": id,
		"proc/sys/kernel/osrelease":      "6.12.0\n",
		"proc/cpuinfo":                   "vendor_id\t: GenuineIntel\nflags\t\t: fpu vme\n",
		"sys/devices/system/cpu/online":  "0-3\n",
	}
	for name, text := range files {
		all[name] = text
	}
	for name, text := range all {
		require.NoError(t, os.MkdirAll(filepath.Join(root, filepath.Dir(name)), 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(root, name), []byte(text), 0o644))
	}
	return root
}

// kernel replaces perf_event_open by a kernel that lacks events, and returns the opened events.
func kernel(t *testing.T, lacks map[event]error) *[]event {
	t.Helper()
	original, opened := Kernel, &[]event{}
	t.Cleanup(func() { Kernel = original })
	Kernel = func(attr *unix.PerfEventAttr, _, _, _, _ int) (int, error) {
		e := event{attr.Type, attr.Config}
		if err := lacks[e]; err != nil {
			return -1, err
		}
		*opened = append(*opened, e)
		return unix.Dup(0)
	}
	return opened
}

func TestTheMachineSelectsTheEvents(t *testing.T) {
	const (
		arm   = "sys/bus/event_source/devices/armv8_pmuv3_0/"
		arm9  = "sys/bus/event_source/devices/armv9_cortex_a510/"
		apple = "sys/bus/event_source/devices/apple_"
	)
	cycles, misses := event{config: unix.PERF_COUNT_HW_CPU_CYCLES}, event{config: unix.PERF_COUNT_HW_CACHE_MISSES}
	for name, c := range map[string]struct {
		files  map[string]string
		lacks  map[event]error
		err    error // nil: they are counted
		misses event
		count  int
		cache  string
	}{
		"Intel":          {misses: misses, count: 3, cache: lastLevel},
		"AMD":            {files: map[string]string{"proc/cpuinfo": "vendor_id\t: AuthenticAMD\n"}, misses: misses, count: 3, cache: levelTwo},
		"Arm":            {files: map[string]string{arm + "type": "10\n", arm + "events/ll_cache_miss_rd": "event=0x0037\n"}, misses: event{10, 0x37}, count: 3, cache: lastLevel},
		"Arm refills":    {files: map[string]string{arm + "type": "10\n"}, misses: misses, count: 2, cache: lastLevel},
		"no misses":      {lacks: map[event]error{misses: unix.ENOENT}, misses: misses, count: 2, cache: lastLevel},
		"no PMU":         {lacks: map[event]error{cycles: unix.ENOENT}, err: errNoPMU},
		"no permission":  {lacks: map[event]error{cycles: unix.EACCES}, err: unix.EACCES},
		"old kernel":     {files: map[string]string{"proc/sys/kernel/osrelease": "5.10.0-28-amd64\n"}, err: ErrOldKernel},
		"hypervisor":     {files: map[string]string{"proc/cpuinfo": "processor\t: 0\nflags\t\t: fpu hypervisor\n\n"}, err: errVirtual},
		"Arm guest":      {files: map[string]string{arm + "type": "10\n", "sys/class/dmi/id/sys_vendor": "QEMU\n"}, err: errVirtual},
		"Armv9":          {files: map[string]string{arm9 + "type": "10\n"}, misses: misses, count: 2, cache: lastLevel},
		"two Armv9":      {files: map[string]string{arm9 + "type": "10\n", "sys/bus/event_source/devices/armv9_cortex_x3/type": "11\n"}, err: errHybrid},
		"Apple":          {files: map[string]string{apple + "icestorm_pmu/type": "10\n", apple + "firestorm_pmu/type": "11\n"}, err: errHybrid},
		"P and E":        {files: map[string]string{"sys/bus/event_source/devices/cpu_core/type": "4\n"}, err: errHybrid},
		"big and little": {files: map[string]string{arm + "type": "10\n", "sys/bus/event_source/devices/armv8_cortex_a53/type": "11\n"}, err: errHybrid},
		"other kernel":   {files: map[string]string{"proc/sys/kernel/random/boot_id": "other"}, err: ErrOtherKernel},
	} {
		t.Run(name, func(t *testing.T) {
			held := kernfs.Descriptors()
			opened := kernel(t, c.lacks)
			h, err := FindHardware(newMachine(t, c.files))
			assert.Equal(t, held, kernfs.Descriptors(), "everything is closed")
			if c.err != nil {
				require.ErrorIs(t, err, c.err)
				return
			}
			require.NoError(t, err)
			assert.Equal(t, c.count, h.Count())
			assert.Equal(t, c.count == 3, h.Misses == nil)
			assert.Equal(t, c.cache, h.Cache)
			assert.Equal(t, c.count == 3, (*opened)[len(*opened)-1] == c.misses)
		})
	}
}

func TestARealKernelOpensTheEventsOfACPU(t *testing.T) {
	h := NewHardware(unix.PERF_TYPE_SOFTWARE, [HardwareEvents]uint64{
		unix.PERF_COUNT_SW_CPU_CLOCK, unix.PERF_COUNT_SW_PAGE_FAULTS, unix.PERF_COUNT_SW_CONTEXT_SWITCHES,
	})
	c, err := h.Open(0)
	if errors.Is(err, unix.EPERM) || errors.Is(err, unix.EACCES) || errors.Is(err, unix.ENOSYS) {
		t.Skip("the kernel does not allow counting:", err)
	}
	require.NoError(t, err)
	assert.Len(t, c, HardwareEvents)
	require.NoError(t, c.Close())
}
