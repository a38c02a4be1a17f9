// SPDX-License-Identifier: Apache-2.0

package model

import (
	"context"
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/energyreceiver/energyreceiver/internal/power"
	"github.com/energyreceiver/energyreceiver/internal/units"
)

var epoch = time.Now() // with a monotonic reading, like samples

// after returns the sample time d after the start of the test.
func after(d time.Duration) time.Time { return epoch.Add(d) }

func newPackage(c Curve) power.Meter { return New(nil, ZoneCurve{Kind: power.Package, Curve: c}) }

func mustCurve(t testing.TB, points ...Point) Curve {
	t.Helper()
	c, err := NewCurve(points)
	require.NoError(t, err)
	return c
}

// load returns the sample d after the start, with CPU times in seconds.
func load(d time.Duration, busy, total float64) power.Sample {
	return power.Sample{At: after(d), Busy: units.CPUTime(busy * 1e9), Total: units.CPUTime(total * 1e9)}
}

func readModel(t *testing.T, m power.Meter, s power.Sample) power.Reading {
	t.Helper()
	rs, err := m.Read(context.Background(), s)
	require.NoError(t, err)
	require.Len(t, rs, 1)
	require.NoError(t, rs[0].Err)
	return rs[0]
}

// expect reads a sample, and compares the total and the time until which it counts.
func expect(t *testing.T, m power.Meter, s power.Sample, joules units.Energy, at time.Duration) {
	t.Helper()
	r := readModel(t, m, s)
	assert.Equal(t, joules*units.Joule, r.Total)
	assert.Equal(t, after(at), r.At)
}

func TestCurveIsStraightBetweenItsPointsAndConstantBeyond(t *testing.T) {
	c := mustCurve(t, Point{0.1, 40}, Point{0.5, 100}, Point{0.9, 120})
	for u, want := range map[float64]float64{
		-1: 40, 0: 40, 0.1: 40, 0.3: 70, 0.5: 100, 0.7: 110, 0.9: 120, 1: 120, 2: 120, math.Inf(1): 120, math.Inf(-1): 40,
	} {
		assert.InDelta(t, want, c.Watts(u), 1e-9, u)
	}
	assert.InDelta(t, 40, c.Watts(math.NaN()), 0)
	assert.InDelta(t, 0, (Curve)(nil).Watts(0.5), 0)
}

func TestCurveErrorNamesThePoint(t *testing.T) {
	nan, inf := math.NaN(), math.Inf(1)
	for _, tc := range []struct {
		points []Point
		want   []string
	}{
		{nil, []string{"no points"}},
		{[]Point{{-0.1, 1}}, []string{"point 0", "-0.1", "between 0 and 1"}},
		{[]Point{{0, 1}, {1.1, 1}}, []string{"point 1", "1.1", "between 0 and 1"}},
		{[]Point{{nan, 1}}, []string{"point 0", "between 0 and 1"}},
		{[]Point{{0, 1}, {0.5, 1}, {0.5, 1}}, []string{"point 2", "not above"}},
		{[]Point{{0.5, 1}, {0.4, 1}}, []string{"point 1", "not above"}},
		{[]Point{{0, 1}, {1, -1}}, []string{"point 1", "-1 W"}},
		{[]Point{{0, nan}}, []string{"point 0", "NaN W"}},
		{[]Point{{0, inf}}, []string{"point 0", "+Inf W"}},
	} {
		_, err := NewCurve(tc.points)
		for _, part := range tc.want {
			assert.ErrorContains(t, err, part, tc.points)
		}
	}
}

func TestLinearRunsFromIdleToMaximum(t *testing.T) {
	c, err := Linear(40, 120)
	require.NoError(t, err)
	assert.Equal(t, Curve{{0, 40}, {1, 120}}, c)
	_, err = Linear(40, 40)
	require.NoError(t, err)
	for _, bad := range [][2]float64{{50, 40}, {-1, 40}, {40, math.Inf(1)}, {math.NaN(), 40}, {40, math.NaN()}} {
		_, err = Linear(bad[0], bad[1])
		assert.Error(t, err, bad)
	}
}

func TestModelIsOneModeledPackage(t *testing.T) {
	m := newPackage(mustCurve(t, Point{0, 10}))
	r := readModel(t, m, load(0, 5, 10))
	assert.Equal(t, (power.Zone{ID: "model:0", Name: "package-0", Kind: power.Package, Method: power.Modeled, Domain: units.NodeCPUs, MaxWatts: 30_000}), *r.Zone)
	assert.Equal(t, power.Reading{Zone: r.Zone, At: after(0), Event: power.Appeared, Raw: power.Raw{MaxWatts: 30_000}}, r, "a baseline")
	for range 2 {
		assert.NoError(t, m.Close())
	}
}

func TestModelCountsThePowerOfTheUtilization(t *testing.T) {
	m := newPackage(mustCurve(t, Point{0, 40}, Point{1, 120}))
	readModel(t, m, load(0, 100, 1000))
	if r := readModel(t, m, load(10*time.Second, 110, 1040)); r.Total != 600*units.Joule || r.Event != power.NoEvent {
		t.Errorf("25 %% for 10 s: %+v, want 600 J", r)
	} else {
		t.Attr("fake-meter", fmt.Sprintf("%g J", r.Total.Joules()))
	}
	expect(t, m, load(20*time.Second, 110, 1080), 1000, 20*time.Second) // idle
}

func TestModelEnergyIsLateNotLostWhileCPUTimeStandsStill(t *testing.T) {
	m := newPackage(mustCurve(t, Point{0, 40}, Point{1, 120}))
	readModel(t, m, load(0, 0, 0))
	readModel(t, m, load(time.Second, 0, 4))
	for i := 2; i < 5; i++ {
		expect(t, m, load(time.Duration(i)*time.Second, 0, 4), 40, time.Second)
	}
	expect(t, m, load(5*time.Second, 4, 8), 40+4*120, 5*time.Second)
}

func TestModelClampsUtilization(t *testing.T) {
	m := newPackage(mustCurve(t, Point{0, 40}, Point{1, 120}))
	readModel(t, m, load(0, 10, 10))
	assert.Equal(t, 120*units.Joule, readModel(t, m, load(time.Second, 15, 11)).Total)
	assert.Equal(t, 160*units.Joule, readModel(t, m, load(2*time.Second, 14, 12)).Total)
}

func TestModelGoesOnWhenTimesWentBack(t *testing.T) {
	m := newPackage(mustCurve(t, Point{0, 40}))
	readModel(t, m, load(0, 0, 100))
	expect(t, m, load(time.Second, 0, 5), 0, 0) // CPU time went back
	expect(t, m, load(2*time.Second, 0, 6), 80, 2*time.Second)
	expect(t, m, load(time.Second, 0, 7), 80, 2*time.Second) // the clock went back
}

// TestEachZoneOfAModelIsExact compares many short reads with one long one, for zones with fractions
// of a microjoule of their own.
func TestEachZoneOfAModelIsExact(t *testing.T) {
	curves := []ZoneCurve{
		{Kind: power.Package, Curve: mustCurve(t, Point{0, 100. / 3}, Point{1, 700. / 9})},
		{Kind: power.DRAM, Curve: mustCurve(t, Point{0, 22. / 7}, Point{0.3, 5}, Point{1, 50. / 7})},
		{Kind: power.Platform, Curve: mustCurve(t, Point{0.5, 1e-6 / 3})},
	}
	const reads, every = 100_000, 1_234_567 * time.Nanosecond
	m := New(nil, curves...)
	var rs []power.Reading
	var err error
	for i := range reads + 1 {
		if rs, err = m.Read(context.Background(), load(time.Duration(i)*every, float64(i), float64(4*i))); err != nil {
			t.Fatal(err)
		}
	}
	for i, c := range curves {
		want := c.Curve.Watts(0.25) * (reads * every).Seconds() * 1e6
		if got := float64(rs[i].Total); rs[i].Zone.Kind != c.Kind || got > want+1 || got < want-1 {
			t.Errorf("%s: %.0f µJ, want %.3f", c.Kind, got, want)
		}
		if !rs[i].At.Equal(after(reads * every)) {
			t.Errorf("%s: as of %v", c.Kind, rs[i].At)
		}
	}
	assert.NotEqual(t, rs[0].Zone.ID, rs[1].Zone.ID)
	assert.Equal(t, "dram", rs[1].Zone.Name)
	assert.Empty(t, rs[1].Zone.Parent)
}

func TestReadDoesNotAllocate(t *testing.T) {
	curve := mustCurve(t, Point{0, 10}, Point{0.5, 15}, Point{1, 20})
	m := New(nil, ZoneCurve{Kind: power.Package, Curve: curve}, ZoneCurve{Kind: power.DRAM, Curve: curve}, ZoneCurve{Kind: power.Platform, Curve: curve})
	d := time.Duration(0)
	assert.Zero(t, testing.AllocsPerRun(100, func() {
		d += time.Second
		_, _ = m.Read(context.Background(), load(d, d.Seconds(), 4*d.Seconds()))
	}))
}

func TestAModelIsAtMostTheLargestMachine(t *testing.T) {
	m := newPackage(mustCurve(t, Point{0, math.MaxFloat64}))
	readModel(t, m, load(0, 0, 0))
	assert.Equal(t, 108_000_000*units.Joule, readModel(t, m, load(time.Hour, 0, 1)).Total)
}

func TestAModelCountsTheTimeBeforeAndAfterARestSeparately(t *testing.T) {
	m := newPackage(mustCurve(t, Point{0, 40}, Point{0.5, 100}, Point{1, 120}))
	readModel(t, m, load(0, 0, 0))
	s := load(20*time.Second, 10, 20)
	s.Rest.At, s.Rest.Total = after(10*time.Second), 10*units.Second
	assert.Equal(t, 1600*units.Joule, readModel(t, m, s).Total, "10 s at 40 W and 10 s at 120 W")
}
