// SPDX-License-Identifier: Apache-2.0

package guest

import (
	"context"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/energyreceiver/energyreceiver/internal/power"
	"github.com/energyreceiver/energyreceiver/internal/units"
)

// following is a meter of the reports that a test makes, which is read at chosen times.
type following struct {
	*testing.T
	*Follower
	meter  power.Meter
	report *Report
	now    time.Time
}

func follow(t *testing.T) *following {
	f := &following{T: t, Follower: NewFollower("the tree", nil), now: time.Now()}
	f.meter = power.Direct("powercap", f)
	return f
}

// Answer implements power.Source.
func (f *following) Answer(_ context.Context, sample power.Sample) (power.Answer, error) {
	shown, err := f.Show(f.report, sample.At)
	return power.Answer{Shown: shown}, err
}

func (f *following) Close() error { return nil }

// read returns the readings at the duration after the last ones.
func (f *following) read(after time.Duration) []power.Reading {
	f.Helper()
	f.now = f.now.Add(after)
	readings, err := f.meter.Read(f.Context(), power.Sample{At: f.now})
	require.NoError(f, err)
	return readings
}

// renew makes a new report at the duration after the last one, and returns the readings.
func (f *following) renew(epoch string, after time.Duration, zones ...Zone) []power.Reading {
	f.Helper()
	generation := uint64(0)
	if f.report != nil {
		generation = f.report.Generation + 1
	}
	f.report = &Report{Epoch: epoch, Generation: generation, Zones: zones}
	return f.read(after)
}

func packageOf(e units.Energy) Zone { return Zone{Kind: power.Package, Energy: e} }

func joules(j uint64) Zone { return packageOf(units.Energy(j) * units.Joule) }

func TestReportedZoneIsThatOfThePlace(t *testing.T) {
	assert.Equal(t, power.Zone{
		ID: "intel-rapl:0", Name: "package-0", Kind: power.Package, Method: power.Reported, Domain: units.NodeCPUs, MaxWatts: 30_000,
	}, *follow(t).renew("a", 0, packageOf(100))[0].Zone)
}

func TestNewGenerationIsNewsAlsoWithoutEnergy(t *testing.T) {
	f := follow(t)
	f.renew("a", 0, packageOf(100))
	r := f.renew("a", 5*time.Second, packageOf(100))[0]
	assert.Zero(t, r.Total)
	assert.Equal(t, f.now, r.At)
	assert.Equal(t, r.At, f.read(5 * time.Second)[0].At, "the same report again has nothing new")
}

const impossible = "the energy rose by more than is possible in the elapsed time: this increase is not counted"

func TestAStepIsBoundedByTheTimeSinceTheTotalChanged(t *testing.T) {
	const most = 30_000 * (10 + 60) // J: 30 kW for 10 s and a minute
	for name, c := range map[string]struct {
		joules  uint64
		after   time.Duration
		counted bool
	}{
		"usual":                                {100, 10 * time.Second, true},
		"the most that is possible":            {most, 10 * time.Second, true},
		"more than is possible":                {most + 1, 10 * time.Second, false},
		"what a BMC counted that was away":     {1_000_000_000, 10 * time.Hour, true},
		"what a machine used while suspended":  {1_500_000, time.Second, true},
		"the range of a tree's counter":        {math.MaxInt64/uint64(units.Joule) - 200, 10 * time.Second, false},
		"the range of a tree's counter, later": {math.MaxInt64/uint64(units.Joule) - 200, 365 * 24 * time.Hour, false},
	} {
		t.Run(name, func(t *testing.T) {
			f := follow(t)
			renewed := func(j uint64, after time.Duration) power.Reading { return f.renew("a", after, joules(j))[0] }
			renewed(100, 0)
			for range 3 { // news without energy are no reason for another step
				renewed(100, c.after/4)
			}
			r := renewed(100+c.joules, c.after-3*(c.after/4))
			if c.counted {
				require.NoError(t, r.Err)
				assert.Equal(t, units.Energy(c.joules)*units.Joule, r.Total)
				return
			}
			require.EqualError(t, r.Err, impossible)
			assert.Zero(t, r.Total)
			r = renewed(100+c.joules+5, time.Second)
			require.NoError(t, r.Err)
			assert.Equal(t, 5*units.Joule, r.Total, "counting continues from the new total")
		})
	}
}

func TestAnotherEpochRebasesAlsoAZoneThatItLacksAtFirst(t *testing.T) {
	d := follow(t)
	renewed := func(epoch string, zones ...Zone) (totals []units.Energy) {
		readings := d.renew(epoch, time.Second, zones...)
		require.Len(t, readings, 2, "what is not renewed yet waits")
		return append(totals, readings[0].Total, readings[1].Total)
	}
	dram := func(e units.Energy) Zone { return Zone{Kind: power.DRAM, Energy: e} }
	renewed("a", packageOf(100), dram(200))
	assert.Equal(t, []units.Energy{1, 2}, renewed("a", packageOf(101), dram(202)))
	assert.Equal(t, []units.Energy{1, 2}, renewed("b", packageOf(5000)))
	assert.Equal(t, []units.Energy{4, 2}, renewed("b", packageOf(5003), dram(9000)))
	assert.Equal(t, []units.Energy{4, 5}, renewed("b", packageOf(5003), dram(9003)))
}

func TestAZoneThatNewsLackWaitsForAWhile(t *testing.T) {
	f := follow(t)
	dram := Zone{Kind: power.DRAM, Energy: 7}
	f.renew("a", 0, packageOf(100))
	renewed := f.renew("a", 2*time.Second, packageOf(100), dram)[1].At
	for range 2 {
		waits := f.renew("a", 12*time.Second, packageOf(101))
		require.NoError(t, waits[1].Err)
		assert.Equal(t, renewed, waits[1].At, "it has nothing new")
		assert.Equal(t, f.now, waits[0].At)
	}
	require.Len(t, f.renew("a", 13*time.Second, packageOf(102)), 1)
	dram.Energy = 20
	back := f.renew("a", 2*time.Second, packageOf(103), dram)[1]
	require.NoError(t, back.Err)
	assert.Equal(t, units.Energy(13), back.Total)
}

func TestStaleNewsAreAnErrorAndTheirEnergyComesLater(t *testing.T) {
	f := follow(t)
	for range 5 {
		f.renew("a", 20*time.Second, joules(100))
	}
	renewed := f.read(60 * time.Second)[0]
	require.NoError(t, renewed.Err)
	stale := f.read(time.Second)[0]
	require.EqualError(t, stale.Err, "the tree is stale: nothing new is reported")
	assert.Equal(t, renewed.Total, stale.Total)
	assert.Equal(t, renewed.At, stale.At)
	assert.Equal(t, stale.Err, f.read(time.Hour)[0].Err, "the text of a lasting state")
	back := f.renew("a", time.Second, joules(900))[0]
	require.NoError(t, back.Err)
	assert.Equal(t, 800*units.Joule, back.Total)
}

func TestPatienceDependsOnTheUsualInterval(t *testing.T) {
	for name, c := range map[string]struct {
		gaps    []time.Duration
		patient time.Duration
	}{
		"one report":          {nil, 3 * time.Minute},
		"a report per second": {[]time.Duration{1, 1, 1, 1, 1}, 30 * time.Second},
		"one late report":     {[]time.Duration{1, 1, 3600, 1}, 30 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			f := follow(t)
			f.renew("a", 0, joules(100))
			for _, gap := range c.gaps {
				f.renew("a", gap*time.Second, joules(100))
			}
			require.NoError(t, f.read(c.patient)[0].Err)
			require.Error(t, f.read(time.Nanosecond)[0].Err)
		})
	}
}

func TestTheHostsClockIsOfErrorsOnly(t *testing.T) {
	f, now := NewFollower("the tree", nil), time.Now()
	for i, year := range []int{1970, 2262, 1, 2026} {
		now = now.Add(10 * time.Second)
		r := Report{Generation: uint64(i), Time: time.Date(year, 11, 22, 8, 0, 0, 0, time.UTC), Zones: []Zone{packageOf(units.Energy(i))}}
		shown, err := f.Show(&r, now)
		require.NoError(t, err)
		require.Len(t, shown, 1)
		require.NoError(t, shown[0].Err)
		assert.Equal(t, units.Energy(i), shown[0].Counter)
		assert.Equal(t, now, shown[0].At)
	}
	shown, err := f.Waiting(errNothingNew, now.Add(time.Hour))
	require.NoError(t, err)
	assert.EqualError(t, shown[0].Err, "the tree is stale since 2026-11-22T08:00:00Z by the hypervisor's clock: nothing new is reported")
}

func TestImpossibleTotalIsAnErrorAndNoEnergy(t *testing.T) {
	f := follow(t)
	f.renew("a", 0, joules(100))
	r := f.renew("a", time.Second, packageOf(math.MaxUint64))[0]
	require.ErrorIs(t, r.Err, errBeyond)
	assert.Zero(t, r.Total)
	r = f.renew("a", time.Second, joules(105))[0]
	require.NoError(t, r.Err)
	assert.Equal(t, 5*units.Joule, r.Total)
}

func TestWithoutAnEpochStepsAreBounded(t *testing.T) {
	f := follow(t)
	f.renew("", 0, joules(100))
	r := f.renew("", time.Second, joules(100+31_000))[0]
	require.EqualError(t, r.Err, impossible)
	assert.Zero(t, r.Total)
	assert.Equal(t, 29_000*units.Joule, f.renew("", time.Second, joules(100+31_000+29_000))[0].Total)
}

func TestWaitingForTheFirstReport(t *testing.T) {
	f, now := NewFollower("the tree", nil), time.Now()
	for _, after := range []time.Duration{0, 30 * time.Second} {
		_, err := f.Waiting(assert.AnError, now.Add(after))
		require.NoError(t, err)
	}
	_, err := f.Waiting(assert.AnError, now.Add(31*time.Second))
	require.ErrorIs(t, err, assert.AnError)
}

func TestAZoneOfAnotherKindWithTheSameIDHasItsOwnTotal(t *testing.T) {
	d := follow(t)
	for _, kind := range []power.Kind{power.PSys, power.Package} {
		for i := range units.Energy(3) {
			readings := d.renew("a", time.Second, Zone{ID: "intel-rapl:1", Name: string(kind), Kind: kind, Energy: 9 + i})
			require.Len(t, readings, 1)
			assert.Equal(t, i, readings[0].Total)
			assert.Equal(t, kind, readings[0].Zone.Kind)
		}
	}
}

func TestAZoneWithoutARangeForATimeKeepsItsTotal(t *testing.T) {
	for _, ranges := range [][]units.Energy{{0, 10_000, 10_000}, {10_000, 0, 10_000}} {
		d := follow(t)
		var zones []*power.Zone
		for i, e := range []units.Energy{9_800, 9_900, 50} { // the counter wraps
			readings := d.renew("", time.Second, Zone{Kind: power.Package, Energy: e * units.Joule, Range: ranges[i] * units.Joule})
			require.Len(t, readings, 1)
			assert.Equal(t, []units.Energy{0, 100, 250}[i]*units.Joule, readings[0].Total)
			zones = append(zones, readings[0].Zone)
		}
		assert.Same(t, zones[0], zones[2])
	}
}

func TestARangeThatAppearsLaterBoundsThePower(t *testing.T) {
	d := follow(t)
	d.renew("", time.Second, Zone{Kind: power.Package, Energy: 5 * units.Joule})
	d.renew("", time.Second, Zone{Kind: power.Package, Energy: 250_000 * units.Joule, Range: 262_143 * units.Joule})
	before := d.renew("", time.Second, Zone{Kind: power.Package, Energy: 250_001 * units.Joule, Range: 262_143 * units.Joule})
	r := d.renew("", time.Second, Zone{Kind: power.Package, Energy: 1 * units.Joule, Range: 262_143 * units.Joule})
	require.Len(t, r, 1)
	assert.Equal(t, power.Rebased, r[0].Event, "12 kJ in a second is not a package's")
	assert.Equal(t, before[0].Total, r[0].Total)
	assert.Equal(t, uint64(power.MaxSocketWatts), r[0].Raw.MaxWatts)
}

func TestOnlyWantedKindsAreFollowed(t *testing.T) {
	f := NewFollower("the tree", func(k power.Kind) bool { return k == power.DRAM })
	r := Report{Zones: []Zone{{Kind: power.Package}}}
	_, err := f.Show(&r, time.Now())
	require.EqualError(t, err, "the tree: no zone of a configured zone kind")
	r = Report{Generation: 1, Zones: []Zone{{Kind: power.Package}, {Kind: power.DRAM}}}
	values, err := f.Show(&r, time.Now())
	require.NoError(t, err)
	assert.Len(t, values, 1)
}

func TestFollowingAllocatesNothing(t *testing.T) {
	f := NewFollower("the tree", nil)
	r := Report{Epoch: "a", Zones: []Zone{{Kind: power.Package}, {Kind: power.DRAM}}}
	now := time.Now()
	assert.Zero(t, testing.AllocsPerRun(100, func() {
		now = now.Add(time.Second)
		r.Generation += 2
		r.Zones[0].Energy += 1000
		_, _ = f.Show(&r, now)
	}))
}

func TestAnotherEpochWithTheSameGenerationIsANewReport(t *testing.T) {
	d := follow(t)
	d.renew("a", time.Second, packageOf(100))
	d.report.Generation--
	r := d.renew("b", time.Second, packageOf(70))[0]
	assert.Equal(t, power.Rebased, r.Event)
	assert.Equal(t, "b", r.Raw.Epoch)
}
