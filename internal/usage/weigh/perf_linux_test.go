// SPDX-License-Identifier: Apache-2.0

package weigh

import (
	"encoding/binary"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/energyreceiver/energyreceiver/internal/kernfs"
	"github.com/energyreceiver/energyreceiver/internal/perfevent"
	"github.com/energyreceiver/energyreceiver/internal/usage/cpu/divide/dividetest"
	"github.com/energyreceiver/energyreceiver/internal/usage/proc"
)

// Readings of a CPU of 2.1 GHz at its nominal rate, at 3.0 GHz, asleep, and at 0.7 GHz.
func TestTheRateIsThatOfAPERFOverMPERFSinceTheReadingBefore(t *testing.T) {
	var c ratio
	for i, step := range []struct {
		mperf, aperf uint64
		want         float64
	}{
		{884_736_112_934, 1_024_003_551_120, 0},
		{884_738_212_934, 1_024_005_651_120, 1},
		{884_740_312_934, 1_024_008_651_120, 10. / 7},
		{884_740_312_934, 1_024_008_651_120, 10. / 7},
		{884_742_412_934, 1_024_009_351_120, 1. / 3},
		{2_100_000, 2_100_000, 1. / 3}, // reset
		{4_200_000, 4_200_000, 1},
	} {
		c.advance([2]uint64{step.mperf, step.aperf})
		assert.InDelta(t, step.want, float64(c.rate)/one, 1e-6, "reading %d", i)
	}
}

// Readings of one CPU's counter in ns: it counted all the time, half of the time, not at all, and
// all the time again.
func TestCountsAreExtrapolatedForAsLongAsTheHardwareWasShared(t *testing.T) {
	var c perfCPU
	for _, step := range []struct{ value, enabled, running, want uint64 }{
		{1000, 5_000_000, 5_000_000, 1000},
		{1500, 9_000_000, 7_000_000, 1000},
		{1500, 11_000_000, 7_000_000, 0}, // the next reading covers this one
		{1700, 13_000_000, 9_000_000, 400},
	} {
		assert.Equal(t, step.want, c.advance([3]uint64{step.value, step.enabled, step.running}))
	}
}

// pipe returns a descriptor from which these numbers are read, like a counter's.
func pipe(t *testing.T, numbers ...uint64) int {
	t.Helper()
	var fds [2]int
	require.NoError(t, unix.Pipe(fds[:]))
	var b []byte
	for _, n := range numbers {
		b = binary.NativeEndian.AppendUint64(b, n)
	}
	_, err := unix.Write(fds[1], b)
	require.NoError(t, err)
	require.NoError(t, unix.Close(fds[1]))
	return fds[0]
}

// replace replaces the kernel's perf_event_open.
func replace(t *testing.T, open func(attr *unix.PerfEventAttr, pid, cpu, group, flags int) (int, error)) {
	t.Helper()
	original := perfevent.Kernel
	perfevent.Kernel = open
	t.Cleanup(func() { perfevent.Kernel = original })
}

// tree returns a root whose sysfs has the counters of clock cycles.
func tree(t *testing.T) string {
	t.Helper()
	root := t.TempDir()
	id, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	require.NoError(t, err)
	dividetest.Put(t, root, map[string]string{
		"proc/sys/kernel/random/boot_id": string(id),
		"sys/devices/msr/type":           "9\n",
		"sys/devices/msr/events/aperf":   "event=0x01\n",
		"sys/devices/msr/events/mperf":   "event=0x02\n",
		"sys/devices/system/cpu/present": "0-2\n",
		"proc/1/mountinfo":               "24 1 0:22 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw\n",
	})
	return root
}

func openDescriptors(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	require.NoError(t, err)
	return len(entries)
}

func TestWithoutSamplesTheClockCountersAreTakenWhereTheKernelAllowsIt(t *testing.T) {
	replaceSamples(t, nil, errNoCPU)
	before := openDescriptors(t)
	var configs []uint64
	replace(t, func(attr *unix.PerfEventAttr, pid, _, group, flags int) (int, error) {
		assert.NotZero(t, flags&unix.PERF_FLAG_FD_CLOEXEC)
		assert.EqualValues(t, unix.PERF_FORMAT_GROUP|unix.PERF_FORMAT_TOTAL_TIME_ENABLED, attr.Read_format)
		assert.EqualValues(t, 9, attr.Type)
		assert.Equal(t, -1, pid)
		configs = append(configs, attr.Config)
		if attr.Config == 2 {
			assert.Equal(t, -1, group)
			fd := pipe(t, 2, 1, 1000, 1000, 2, 2, 3000, 4000)
			return fd, nil
		}
		assert.NotEqual(t, -1, group)
		return pipe(t), nil
	})
	m, err := NewClock(tree(t), 2)
	require.NoError(t, err)
	assert.Equal(t, "clock rate by APERF and MPERF, counted about once a second; rejected: "+errNoCPU.Error(), m.Name())
	assert.Equal(t, []uint64{2, 1}, configs)
	got := workOf(t, m, began, &Share{CPU: 10 * ms, LastCPU: 0})
	assert.InDeltaSlice(t, []float64{22.5}, got, 1e-3, "3000 cycles in the time of 2000, to the power of 2")
	_, err = m.Weigh(began.Add(time.Second), []*Share{{CPU: material, LastCPU: 0}})
	require.ErrorIs(t, err, perfevent.ErrShort)
	assert.Equal(t, before, openDescriptors(t), "both are closed")
	_, err = m.Weigh(began.Add(2*retryAfter), []*Share{{CPU: ms, LastCPU: 0}})
	require.NoError(t, err)
	assert.Equal(t, before+2, openDescriptors(t))
	require.NoError(t, m.Close())
	assert.Equal(t, before, openDescriptors(t))
}

func TestEachEventHasItsPerfNumber(t *testing.T) {
	for event, config := range map[proc.Event]uint64{proc.Cycles: 0, proc.Instructions: 1, proc.CacheMisses: 3} { // include/uapi/linux/perf_event.h
		replace(t, func(attr *unix.PerfEventAttr, _, _, _, _ int) (int, error) {
			assert.EqualValues(t, 0, attr.Type)
			assert.Equal(t, config, attr.Config, event)
			assert.EqualValues(t, 3, attr.Read_format)
			return -1, unix.ENOENT
		})
		_, err := OpenNodeCounter(tree(t), event)
		require.EqualError(t, err, "the machine does not count "+event.String())
	}
}

// Otherwise the collector could open no other file.
func TestCountersUseAtMostHalfOfTheDescriptors(t *testing.T) {
	held := kernfs.Descriptors()
	t.Cleanup(kernfs.LimitDescriptors(2 * (held + 7)))
	opened := 0
	replace(t, func(*unix.PerfEventAttr, int, int, int, int) (int, error) {
		opened++
		return pipe(t, 7, 100, 100), nil
	})
	for range 2 { // two events, on three CPUs each
		c, err := OpenNodeCounter(tree(t), proc.Cycles)
		require.NoError(t, err)
		defer func() { require.NoError(t, c.Close()) }()
	}
	_, err := OpenNodeCounter(tree(t), proc.Cycles)
	require.ErrorContains(t, err, "LimitNOFILE")
	_, err = NewClock(tree(t), 1)
	require.ErrorContains(t, err, "LimitNOFILE")
	assert.Equal(t, 6, opened, "there is room for one more, which would be closed at once")
}

func TestTheErrorOfOpeningSaysWhatIsMissing(t *testing.T) {
	replace(t, func(*unix.PerfEventAttr, int, int, int, int) (int, error) { return -1, unix.EACCES })
	root, copied := tree(t), t.TempDir()
	_, err := NewClock(root, 1)
	require.ErrorContains(t, err, "open MPERF and APERF: permission denied: requires CAP_PERFMON")
	_, err = OpenNodeCounter(root, proc.Instructions)
	require.ErrorContains(t, err, "count instructions: permission denied: requires CAP_PERFMON")
	_, err = OpenNodeCounter(copied, proc.Cycles)
	require.ErrorIs(t, err, perfevent.ErrOtherKernel)
	_, err = NewClock(copied, 1)
	require.ErrorIs(t, err, perfevent.ErrOtherKernel)
}

func TestAMalformedTreeIsAnError(t *testing.T) {
	for name, text := range map[string]string{
		"sys/devices/msr/type":         "msr\n",
		"sys/devices/msr/events/aperf": "0x01\n",
		"sys/devices/msr/events/mperf": "event=high\n",
	} {
		root := tree(t)
		dividetest.Put(t, root, map[string]string{name: text})
		_, err := NewClock(root, 1)
		require.ErrorContains(t, err, "cannot parse", name)
	}
	root := tree(t)
	dividetest.Put(t, root, map[string]string{"sys/devices/system/cpu/present": "0-x\n"})
	_, err := OpenNodeCounter(root, proc.Cycles)
	require.ErrorContains(t, err, "cpu/present: not a decimal number")
}

// nodeCounter is a NodeCounter that is read every retryAfter.
type nodeCounter struct {
	*testing.T
	*NodeCounter
	now time.Time
}

func (c *nodeCounter) reads(want uint64, reason error) {
	c.Helper()
	c.now = c.now.Add(retryAfter)
	n, err := c.Read(c.now)
	require.ErrorIs(c.T, err, reason)
	assert.Equal(c.T, want, n)
}

// Offline CPUs have no counter. The kernel removes the counters of a CPU that goes offline: they can
// be read, and do not count. After an error all counters are closed.
func TestANodeCounterCountsSinceTheLastReadOnEachCPUThatIsOnline(t *testing.T) {
	root, held := tree(t), openDescriptors(t)
	var refused error
	replace(t, func(_ *unix.PerfEventAttr, _, cpu, _, _ int) (int, error) {
		switch {
		case cpu == 1:
			return -1, unix.ENODEV
		case cpu == 2 && refused != nil:
			return -1, refused
		}
		return pipe(t, 0, 0, 0, 7, 100, 100, 9, 200, 200, 9, 200, 200), nil
	})
	opened, err := OpenNodeCounter(root, proc.Cycles)
	require.NoError(t, err)
	c := &nodeCounter{t, opened, began}
	c.reads(0, nil)
	c.reads(14, nil)
	c.reads(4, nil)
	c.reads(0, ErrRestarted) // they have stopped
	c.reads(0, nil)
	c.reads(14, nil)
	dividetest.Put(t, root, map[string]string{"sys/devices/system/cpu/online": "0,2\n"})
	c.reads(0, ErrRestarted)
	c.reads(0, nil)
	for _, cpu := range c.counters {
		_, err := unix.Read(cpu.fd, make([]byte, 100)) // the rest
		require.NoError(t, err)
	}
	c.reads(0, perfevent.ErrShort)
	assert.Equal(t, held, openDescriptors(t))
	refused = unix.EMFILE
	c.reads(0, ErrRestarted)
	assert.Equal(t, held, openDescriptors(t), "the counter of CPU 0 is closed too")
	refused = nil
	_, err = c.Read(c.now.Add(retryAfter - 1))
	require.ErrorIs(t, err, ErrRestarted)
	assert.Equal(t, held, openDescriptors(t), "too soon")
	c.reads(0, ErrRestarted)
	c.reads(0, nil)
	require.NoError(t, c.Close())
	assert.Equal(t, held, openDescriptors(t))
}

// If CPUs are of two kinds, the generic event number counts on one kind only.
func TestEachKindOfCPUsHasItsOwnCounter(t *testing.T) {
	root := tree(t)
	set := func(files ...string) {
		for i := 0; i < len(files); i += 2 {
			dividetest.Put(t, root, map[string]string{"sys/devices/" + files[i]: files[i+1] + "\n"})
		}
	}
	configs := map[int]uint64{}
	replace(t, func(attr *unix.PerfEventAttr, _, cpu, _, _ int) (int, error) {
		configs[cpu] = attr.Config
		return pipe(t, 0, 0, 0, 7, 100, 100), nil
	})
	set("cpu_core/type", "4", "cpu_core/cpus", "0", "cpu_atom/type", "10", "cpu_atom/cpus", "1-2")
	opened, err := OpenNodeCounter(root, proc.Instructions)
	require.NoError(t, err)
	c := &nodeCounter{t, opened, began}
	expect := func(want map[int]uint64) {
		t.Helper()
		assert.Equal(t, want, configs)
		clear(configs)
	}
	expect(map[int]uint64{0: 4<<32 | 1, 1: 10<<32 | 1, 2: 10<<32 | 1})
	c.reads(0, nil) // a machine without the file has no hotplug
	// The kernel reports neither kind nor event of offline CPUs.
	set("system/cpu/online", "0", "cpu_atom/cpus", "")
	c.reads(0, ErrRestarted)
	expect(map[int]uint64{0: 4<<32 | 1})
	set("system/cpu/online", "0,2", "cpu_atom/cpus", "2")
	c.reads(0, ErrRestarted)
	expect(map[int]uint64{0: 4<<32 | 1, 2: 10<<32 | 1})
	set("system/cpu/online", "0-1", "cpu_atom/cpus", "x")
	c.reads(0, ErrRestarted)
	expect(map[int]uint64{})
	set("cpu_atom/cpus", "1")
	c.reads(0, ErrRestarted)
	expect(map[int]uint64{0: 4<<32 | 1, 1: 10<<32 | 1})
	c.reads(0, nil)
	require.NoError(t, c.Close())

	set("cpu_atom/cpus", "x")
	_, err = OpenNodeCounter(root, proc.Cycles)
	require.ErrorContains(t, err, "cpu_atom/cpus: not a decimal number")
}
