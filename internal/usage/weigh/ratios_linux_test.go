// SPDX-License-Identifier: Apache-2.0

package weigh

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/energyreceiver/energyreceiver/internal/units"
)

// ticks is a simulated kernel that records samples.
type ticks struct {
	values [][2]uint64
	err    error
	reads  int
	closed bool
}

func (s *ticks) Read() ([][2]uint64, error) {
	s.reads++
	return s.values, s.err
}

func (s *ticks) Close() error {
	s.closed = true
	return nil
}

// add counts cycles of a CPU in thousands.
func (s *ticks) add(cpu int, mperf, aperf uint64) {
	s.values[cpu][0] += 1000 * mperf
	s.values[cpu][1] += 1000 * aperf
}

func replaceSamples(t *testing.T, s samples, err error) {
	t.Helper()
	original := openSamples
	t.Cleanup(func() { openSamples = original })
	openSamples = func() (samples, error) { return s, err }
}

// sampledClock returns the clock of a kernel with samples of two CPUs, and the number of perf events
// that it has opened.
func sampledClock(t *testing.T) (m *ByRate, s *ticks, opened *int) {
	t.Helper()
	s, opened = &ticks{values: [][2]uint64{{10, 10}, {10, 10}}}, new(int)
	replaceSamples(t, s, nil)
	replace(t, func(*unix.PerfEventAttr, int, int, int, int) (int, error) {
		*opened++
		return -1, unix.EACCES
	})
	m, err := NewClock(tree(t), 1)
	require.NoError(t, err)
	assert.Equal(t, "clock rate by APERF and MPERF, sampled by the scheduler", m.Name())
	return m, s, opened
}

func TestSampledRatesAreReadOnceAnIntervalWithoutPerfEvents(t *testing.T) {
	m, s, opened := sampledClock(t)
	shares := []*Share{{CPU: 10 * ms, LastCPU: 0}, {CPU: 10 * ms, LastCPU: 1}}
	s.add(0, 2, 4)
	s.add(1, 2, 1)
	assert.InDeltaSlice(t, []float64{20, 5}, workOf(t, m, began, shares...), 1e-3)
	assert.Equal(t, 2, s.reads, "the baseline, and one read for both CPUs")
	s.add(0, 2, 6)
	assert.InDeltaSlice(t, []float64{30, 5}, workOf(t, m, began.Add(time.Second), shares...), 1e-3, "a CPU without a tick keeps its rate")
	assert.Zero(t, *opened)
	require.NoError(t, m.Close())
	assert.True(t, s.closed)
}

func TestABusyCPUWithoutTicksIsCountedByPerfEvents(t *testing.T) {
	m, _, opened := sampledClock(t)
	for i := range 10 {
		_, err := m.Weigh(began.Add(time.Duration(i)*time.Second), []*Share{{CPU: unsampled / 10, LastCPU: 0}})
		if i < 9 {
			require.NoError(t, err)
			assert.Zero(t, *opened, i)
			continue
		}
		require.ErrorIs(t, err, unix.EACCES)
		assert.Equal(t, 1, *opened)
	}
}

func TestPerfEventsReplaceSamplesThatFail(t *testing.T) {
	m, s, opened := sampledClock(t)
	s.err = errors.New("gone")
	_, err := m.Weigh(began, []*Share{{CPU: ms, LastCPU: 0}})
	require.ErrorIs(t, err, unix.EACCES)
	assert.Equal(t, 1, *opened)
	assert.True(t, s.closed)

	replaceSamples(t, s, nil)
	_, err = NewClock(tree(t), 1)
	require.ErrorIs(t, err, unix.EACCES)
}

func TestAPerfEventIsReadAboutOnceASecondAndAfterMaterialTime(t *testing.T) {
	for name, c := range map[string]struct {
		window time.Duration
		cpu    units.CPUTime
		reads  int
	}{
		"busy, windows of a second":       {time.Second, 1000 * ms, 20},
		"busy, windows of 10 ms":          {10 * time.Millisecond, 10 * ms, 23},
		"2 ms every second":               {time.Second, 2 * ms, 4},
		"2 ms every 10 ms":                {10 * time.Millisecond, 2 * ms, 23},
		"busy, collections of 10 seconds": {10 * time.Second, 10_000 * ms, 2},
	} {
		t.Run(name, func(t *testing.T) {
			replaceSamples(t, nil, errNoCPU)
			var numbers []uint64
			for i := range uint64(100) {
				numbers = append(numbers, 2, i, 1000*(1+i), 2000*(1+i))
			}
			fd := pipe(t, numbers...)
			replace(t, func(_ *unix.PerfEventAttr, _, _, group, _ int) (int, error) {
				if group == -1 {
					return fd, nil
				}
				return pipe(t), nil
			})
			m, err := NewClock(tree(t), 1)
			require.NoError(t, err)
			left := func() int {
				n, err := unix.IoctlGetInt(fd, unix.TIOCINQ)
				require.NoError(t, err)
				return n / 32
			}
			baseline := left()
			for at := time.Duration(0); at < 20*time.Second; at += c.window {
				got := workOf(t, m, began.Add(at), &Share{CPU: c.cpu, LastCPU: 0})
				require.InDelta(t, 2*float64(c.cpu/ms), got[0], 1e-3)
			}
			assert.Equal(t, c.reads, baseline-left())
			require.NoError(t, m.Close())
		})
	}
}
