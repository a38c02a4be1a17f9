// SPDX-License-Identifier: Apache-2.0

package weigh

import (
	"errors"
	"fmt"
	"math"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/energyreceiver/energyreceiver/internal/power/model/ridge"
	"github.com/energyreceiver/energyreceiver/internal/units"
	"github.com/energyreceiver/energyreceiver/internal/usage/proc"
)

const ms = units.CPUTime(time.Millisecond)

var began = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// ghz is a source of CPUs with these rates in MHz. 0 is a CPU that cannot be read, below 0 one
// whose rate is not known yet.
type ghz struct {
	mhz   map[int32]int
	reads int
	fails error // error of reading CPU 13, which is not offline
}

var errNoCPU = fmt.Errorf("no such CPU: %w", syscall.ENODEV)

func (g *ghz) read(cpu int32, _ time.Time, _ units.CPUTime) (rate uint64, ok bool, err error) {
	g.reads++
	switch mhz := g.mhz[cpu]; {
	case cpu == 13 && g.fails != nil:
		return 0, false, g.fails
	case mhz == 0:
		return 0, false, errNoCPU
	case mhz < 0:
		return 0, false, nil
	default:
		return uint64(mhz) * one / 1000, true, nil
	}
}
func (*ghz) close() error { return nil }

func clockOf(exponent int, mhz map[int32]int) (*ByRate, *ghz) {
	g := &ghz{mhz: mhz}
	return newByRate(&clock{rates: g, exponent: exponent}), g
}

// workOf weighs shares, and returns the work in ms at 1 GHz.
func workOf(t *testing.T, m *ByRate, now time.Time, shares ...*Share) (work []float64) {
	t.Helper()
	_, err := m.Weigh(now, shares)
	require.NoError(t, err)
	for _, s := range shares {
		work = append(work, float64(s.Work)/float64(ms))
	}
	return work
}

func TestTimeIsWeighedByTheClockRateToAPower(t *testing.T) {
	for exponent, want := range map[int][]float64{1: {200, 50, 30}, 2: {400, 25, 90}, 3: {800, 12.5, 270}} {
		m, _ := clockOf(exponent, map[int32]int{0: 2000, 1: 500, 7: 3000})
		got := workOf(t, m, began,
			&Share{CPU: 100 * ms, LastCPU: 0}, &Share{CPU: 100 * ms, LastCPU: 1}, &Share{CPU: 10 * ms, LastCPU: 7})
		assert.InDeltaSlice(t, want, got, 1e-3, "exponent %d", exponent)
	}
}

func TestDiscountedTimeCountsForLess(t *testing.T) {
	shares := []*Share{{CPU: 100 * ms, LastCPU: 0, Discount: 40 * ms}, {CPU: 10 * ms, LastCPU: 0}, {LastCPU: 0}}
	measured, err := CPUTime{}.Weigh(began, shares)
	require.NoError(t, err)
	assert.True(t, measured)
	assert.Equal(t, []uint64{uint64(60 * ms), uint64(10 * ms), 0}, []uint64{shares[0].Work, shares[1].Work, shares[2].Work})

	m, _ := clockOf(2, map[int32]int{0: 2000})
	assert.InDeltaSlice(t, []float64{240, 40, 0}, workOf(t, m, began, shares...), 1e-3)
}

func TestMemoryIsWeighedByHoldingTimeOrCPUTime(t *testing.T) {
	const page = 4096
	shares := []*Share{
		{CPU: 10 * ms, Resident: 3 * page, Held: 10 * time.Second},
		{CPU: 20 * ms, Resident: 5 * page, Held: 4 * time.Second},
		{CPU: 0, Resident: 2 * page, Held: 10 * time.Second}, // sleeps
		{CPU: 30 * ms, ShortLived: true, Work: 9},
	}
	for byCPUTime, want := range map[bool][]uint64{
		false: {3 * 10_000, 5 * 4_000, 2 * 10_000, 0},
		// The short-lived claim has the 130 page-ms per 30 ms of the others.
		true: {3 * 10_000, 5 * 20_000, 0, 130_000},
	} {
		measured, err := NewMemory(byCPUTime).Weigh(began, shares)
		require.NoError(t, err)
		assert.True(t, measured)
		assert.Equal(t, want, works(shares), byCPUTime)
	}
}

func TestUnknownRatesCountAsTheAverage(t *testing.T) {
	m, g := clockOf(1, map[int32]int{0: 1000, 1: 3000, 2: -1})
	got := workOf(t, m, began,
		&Share{CPU: 100 * ms, LastCPU: 0}, &Share{CPU: 300 * ms, LastCPU: 1},
		&Share{CPU: 10 * ms, LastCPU: -1}, &Share{CPU: 10 * ms, LastCPU: 2}, &Share{CPU: 10 * ms, LastCPU: 9},
		&Share{CPU: 10 * ms, LastCPU: math.MaxInt32})
	assert.InDeltaSlice(t, []float64{100, 900, 25, 25, 25, 25}, got, 1e-3)

	g.mhz = map[int32]int{0: 1000}
	got = workOf(t, m, began.Add(time.Second), &Share{CPU: 10 * ms, LastCPU: -1})
	assert.InDeltaSlice(t, []float64{25}, got, 1e-3, "of earlier intervals where nothing is")
}

func TestWithoutAnyRateTheKeyIsNotMeasured(t *testing.T) {
	m, g := clockOf(2, nil)
	shares := []*Share{{CPU: 10 * ms, LastCPU: 0}, {CPU: 30 * ms, LastCPU: 1}}
	for range 3 { // the second time it is not retried
		measured, err := m.Weigh(began, shares)
		assert.False(t, measured)
		require.ErrorIs(t, err, errNoCPU)
	}
	measured, err := m.Weigh(began, nil)
	assert.True(t, measured, "no process ran")
	require.ErrorIs(t, err, errNoCPU, "the error is unchanged")

	g.mhz = map[int32]int{1: 500}
	measured, err = m.Weigh(began.Add(retryAfter), shares)
	require.NoError(t, err, "one that is offline is none")
	assert.True(t, measured)
	measured, err = m.Weigh(began.Add(retryAfter+1), shares[:1])
	require.NoError(t, err)
	assert.False(t, measured, "it alone ran")
}

func TestACPUIsReadOncePerIntervalAndSkippedAfterAFailure(t *testing.T) {
	m, g := clockOf(1, map[int32]int{0: 1000})
	at := began
	share := func() {
		workOf(t, m, at, &Share{CPU: ms, LastCPU: 0}, &Share{CPU: ms, LastCPU: 0}, &Share{CPU: ms, LastCPU: 1})
	}
	share()
	assert.Equal(t, 2, g.reads)
	at = at.Add(time.Second)
	share()
	assert.Equal(t, 3, g.reads, "the second is not tried again")
	at = at.Add(retryAfter)
	g.mhz[1] = 3000
	got := workOf(t, m, at, &Share{CPU: ms, LastCPU: 0}, &Share{CPU: ms, LastCPU: 1})
	assert.Equal(t, 5, g.reads)
	assert.InDeltaSlice(t, []float64{1, 3}, got, 1e-6)
}

func TestWorkSaturates(t *testing.T) {
	m, _ := clockOf(3, map[int32]int{0: math.MaxInt32})
	shares := []*Share{{CPU: math.MaxUint64, LastCPU: 0}, {CPU: math.MaxUint64, LastCPU: 0}}
	_, err := m.Weigh(began, shares)
	require.NoError(t, err)
	assert.Equal(t, uint64(math.MaxUint64), shares[0].Work)
}

func TestWeighingAllocatesNothingInTheSteadyState(t *testing.T) {
	byClock, _ := clockOf(2, map[int32]int{0: 1000, 1: 3000})
	for name, m := range map[string]*ByRate{"clock": byClock, "events": NewEvents(proc.CacheMisses)} {
		shares := []*Share{{CPU: ms, LastCPU: 0}, {CPU: ms, LastCPU: 1}, {CPU: ms, LastCPU: -1}}
		shares[0].Events, shares[0].Counted = proc.Events{3, 2, 1}, true
		at := began
		assert.Zero(t, testing.AllocsPerRun(100, func() {
			at = at.Add(time.Second)
			if _, err := m.Weigh(at, shares); err != nil {
				panic(err)
			}
		}), name)
	}
	m := newModeled()
	for name, model := range map[string]*ByRate{"model": NewModel(&ridge.Model{}), "SmartWatts": NewSmartWatts(SmartWattsOptions{})} {
		weigh := func() {
			m.at, m.total = m.at.Add(time.Second), m.total+20*units.Joule
			m.weigh(model)
		}
		m.run()
		for range 180 {
			weigh()
		}
		assert.Zero(t, testing.AllocsPerRun(100, weigh), name)
	}
}

// An offline CPU is no error, and neither is a CPU where no process runs any more.
func TestAnUnreadableCPUIsReported(t *testing.T) {
	m, g := clockOf(1, map[int32]int{0: 1000})
	g.fails = errors.New("too many open files")
	at := began
	run := func(cpus ...int32) error {
		var shares []*Share
		for _, cpu := range cpus {
			shares = append(shares, &Share{CPU: ms, LastCPU: cpu})
		}
		_, err := m.Weigh(at, shares)
		return err
	}
	require.NoError(t, run(0, 1))
	require.ErrorIs(t, run(0, 1, 13), g.fails)
	at = at.Add(time.Second)
	require.ErrorIs(t, run(0), g.fails, "a process may still run there")
	at = at.Add(retryAfter)
	require.ErrorIs(t, run(0, 13), g.fails)
	at = at.Add(rememberFor)
	require.ErrorIs(t, run(0), g.fails)
	at = at.Add(retryAfter)
	require.NoError(t, run(0))
	g.fails = nil
	require.NoError(t, run(0, 13))
}

// With a memory key too, sleeping processes are among the shares. Reading the rate of a CPU
// interrupts it.
func TestRatesAreNotReadOfCPUsWithoutUsage(t *testing.T) {
	m, g := clockOf(1, map[int32]int{0: 1000, 1: 1000})
	workOf(t, m, began, &Share{CPU: ms, LastCPU: 0}, &Share{LastCPU: 1})
	assert.Equal(t, 1, g.reads)
}
