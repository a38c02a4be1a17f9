// SPDX-License-Identifier: Apache-2.0

package guest

import (
	"context"
	"fmt"
	"math"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/energyreceiver/energyreceiver/internal/power"
	"github.com/energyreceiver/energyreceiver/internal/units"
)

// reported is a Source whose report a test sets.
type reported struct {
	*Follower
	report *Report
	err    error
}

func (s *reported) Answer(_ context.Context, sample power.Sample) (power.Answer, error) {
	ordered()
	shown, err := []power.Shown(nil), error(nil)
	if s.err != nil {
		shown, err = s.Waiting(s.err, sample.At)
	} else {
		shown, err = s.Show(s.report, sample.At)
	}
	return power.Answer{Shown: shown}, err
}

func (s *reported) Close() error { return nil }

// order shows the race detector that a poll comes after what the test did before. The time of a bubble does not.
var order sync.Mutex

func ordered() {
	order.Lock()
	defer order.Unlock()
}

// bubble reads a poller of reports in a synctest bubble.
type bubble struct {
	*testing.T
	*reported
	meter *power.Poller
}

func follow(t *testing.T, test func(*bubble)) {
	synctest.Test(t, func(t *testing.T) {
		sensor := &reported{Follower: NewFollower("the tree", nil), report: &Report{Epoch: "a"}}
		b := &bubble{t, sensor, power.Poll(sensor, power.PollOptions{Name: "powercap", Every: time.Second})}
		defer func() { assert.NoError(t, b.meter.Close()) }()
		test(b)
	})
}

// direct is a meter of reports that is read at chosen times.
type direct struct {
	*testing.T
	source *reported
	meter  power.Meter
	now    time.Time
}

func newDirect(t *testing.T) *direct {
	source := &reported{Follower: NewFollower("the tree", nil)}
	return &direct{t, source, power.Direct("powercap", source), time.Now()}
}

// renew makes a new report at the duration after the last one, and returns the readings.
func (d *direct) renew(epoch string, after time.Duration, zones ...Zone) []power.Reading {
	d.Helper()
	generation := uint64(0)
	if d.source.report != nil {
		generation = d.source.report.Generation + 1
	}
	d.now = d.now.Add(after)
	d.source.report = &Report{Epoch: epoch, Generation: generation, Zones: zones}
	readings, err := d.meter.Read(d.Context(), power.Sample{At: d.now})
	require.NoError(d, err)
	return readings
}

func packageOf(e units.Energy) Zone { return Zone{Kind: power.Package, Energy: e} }

// renew makes the next report with the package's energy in joules.
func (b *bubble) renew(joules uint64) {
	zones := []Zone{{Kind: power.Package, Energy: units.Energy(joules) * units.Joule}}
	b.report = &Report{Epoch: b.report.Epoch, Generation: b.report.Generation + 2, Zones: zones}
}

// read returns the package's reading after a time.
func (b *bubble) read(after time.Duration) power.Reading {
	b.Helper()
	ordered()
	time.Sleep(after)
	synctest.Wait()
	readings, err := b.meter.Read(b.Context(), power.Sample{At: time.Now()})
	synctest.Wait()
	require.NoError(b, err)
	if len(readings) == 0 {
		return power.Reading{}
	}
	require.Len(b, readings, 1)
	return readings[0]
}

// begin reads the first report, of a total of 100 J.
func (b *bubble) begin() {
	b.Helper()
	b.renew(100)
	r := b.read(0)
	if r.Zone == nil { // the first poll had not ended
		r = b.read(time.Nanosecond)
	}
	require.Equal(b, power.Appeared, r.Event)
	require.Zero(b, r.Total)
}

func TestReportedZoneIsThatOfThePlace(t *testing.T) {
	follow(t, func(b *bubble) {
		b.begin()
		assert.Equal(t, power.Zone{
			ID: "intel-rapl:0", Name: "package-0", Kind: power.Package, Method: power.Reported, Domain: units.NodeCPUs, MaxWatts: 30_000,
		}, *b.read(0).Zone)
	})
}

func TestNewGenerationIsNewsAlsoWithoutEnergy(t *testing.T) {
	follow(t, func(b *bubble) {
		b.begin()
		first := b.read(5 * time.Second)
		b.renew(100)
		second := b.read(5 * time.Second)
		assert.Zero(t, second.Total)
		assert.Equal(t, 6*time.Second, second.At.Sub(first.At), "the poll after the report")
		assert.Equal(t, second.At, b.read(5*time.Second).At, "the same report again has nothing new")
	})
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
			d := newDirect(t)
			renewed := func(joules uint64, after time.Duration) power.Reading {
				return d.renew("a", after, packageOf(units.Energy(joules)*units.Joule))[0]
			}
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

// Each step alone is possible, since a report may be late by a minute.
func TestManyPossibleStepsAreBoundedTogether(t *testing.T) {
	for name, next := range map[string]func(i int) (epoch string, joules int){
		"up and down": func(i int) (string, int) { return "a", 1_800_000 * (i % 2) },
		"up":          func(i int) (string, int) { return "a", 1_800_000 * i },
		"epochs":      func(i int) (string, int) { return fmt.Sprint(i / 2), 1_800_000 * (i % 2) },
	} {
		t.Run(name, func(t *testing.T) {
			d, total := newDirect(t), units.Energy(0)
			const seconds = 600
			for i := range seconds {
				epoch, joules := next(i)
				total = d.renew(epoch, time.Second, packageOf(units.Energy(joules)*units.Joule))[0].Total
			}
			assert.LessOrEqual(t, total, units.Energy(30_000*(seconds+60))*units.Joule)
			assert.GreaterOrEqual(t, total, 1_800_000*units.Joule)
		})
	}
}

func TestAnotherEpochRebasesAlsoAZoneThatItLacksAtFirst(t *testing.T) {
	d := newDirect(t)
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
	follow(t, func(b *bubble) {
		b.begin()
		dram := Zone{Kind: power.DRAM, Energy: 7}
		b.renew(100)
		b.report.Zones = append(b.report.Zones, dram)
		readings := func(after time.Duration) []power.Reading {
			ordered()
			time.Sleep(after)
			synctest.Wait()
			readings, err := b.meter.Read(b.Context(), power.Sample{At: time.Now()})
			require.NoError(t, err)
			return slices.Clone(readings)
		}
		renewed := readings(2 * time.Second)
		require.Len(t, renewed, 2)
		for range 2 {
			b.renew(101)
			waits := readings(12 * time.Second)
			require.NoError(t, waits[1].Err)
			assert.Equal(t, renewed[1].At, waits[1].At, "it has nothing new")
			assert.True(t, waits[0].At.After(renewed[0].At))
		}
		b.renew(102)
		require.Error(t, readings(12 * time.Second)[1].Err)
		dram.Energy = 20
		b.renew(103)
		b.report.Zones = append(b.report.Zones, dram)
		back := readings(2 * time.Second)
		require.NoError(t, back[1].Err)
		assert.Equal(t, units.Energy(13), back[1].Total)
	})
}

func TestStaleNewsAreAnErrorAndTheirEnergyComesLater(t *testing.T) {
	follow(t, func(b *bubble) {
		b.begin()
		for range 4 {
			b.renew(100)
			b.read(20 * time.Second)
		}
		renewed := b.read(40 * time.Second)
		require.NoError(t, renewed.Err)
		stale := b.read(3 * time.Second)
		require.EqualError(t, stale.Err, "the tree is stale: nothing new is reported")
		assert.Equal(t, renewed.Total, stale.Total)
		assert.Equal(t, renewed.At, stale.At)
		text := stale.Err
		assert.Equal(t, text, b.read(time.Hour).Err, "the text of a lasting state")
		b.renew(900)
		back := b.read(time.Second)
		require.NoError(t, back.Err)
		assert.Equal(t, 800*units.Joule, back.Total)
	})
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
			follow(t, func(b *bubble) {
				b.begin()
				for _, gap := range c.gaps {
					b.renew(100)
					b.read(gap * time.Second)
				}
				require.NoError(t, b.read(c.patient).Err)
				require.Error(t, b.read(time.Minute).Err)
			})
		})
	}
}

func TestStaleErrorHasTheTimeOfTheHost(t *testing.T) {
	f := NewFollower("the tree", nil)
	now := time.Now()
	r := Report{Time: time.Date(2026, 11, 22, 8, 0, 0, 0, time.UTC), Zones: []Zone{{Kind: power.Package}}}
	_, err := f.Show(&r, now)
	require.NoError(t, err)
	_, err = f.Show(&r, now.Add(time.Hour))
	require.NoError(t, err)
	assert.EqualError(t, f.stale, "the tree is stale since 2026-11-22T08:00:00Z by the hypervisor's clock: nothing new is reported")
}

func TestTheHostsClockIsNotCompared(t *testing.T) {
	follow(t, func(b *bubble) {
		b.begin()
		for i, year := range []int{1970, 2262, 1, 2026} {
			b.renew(uint64(101 + i))
			b.report.Time = time.Date(year, 1, 1, 0, 0, 0, 0, time.UTC)
			r := b.read(10 * time.Second)
			require.NoError(t, r.Err)
			assert.Equal(t, units.Energy(1+i)*units.Joule, r.Total)
		}
	})
}

func TestImpossibleTotalIsAnErrorAndNoEnergy(t *testing.T) {
	follow(t, func(b *bubble) {
		b.begin()
		b.renew(0)
		b.report.Zones[0].Energy = math.MaxUint64
		r := b.read(time.Second)
		require.ErrorIs(t, r.Err, errBeyond)
		assert.Zero(t, r.Total)
		b.renew(105)
		r = b.read(time.Second)
		require.NoError(t, r.Err)
		assert.Equal(t, 5*units.Joule, r.Total)
	})
}

func TestWithoutAnEpochStepsAreBounded(t *testing.T) {
	follow(t, func(b *bubble) {
		b.report.Epoch = ""
		b.begin()
		b.renew(100 + 31_000)
		r := b.read(time.Second)
		require.EqualError(t, r.Err, impossible)
		assert.Zero(t, r.Total)
		b.renew(100 + 31_000 + 29_000)
		r = b.read(time.Second)
		assert.Equal(t, 29_000*units.Joule, r.Total)
	})
}

func TestWaitingForTheFirstReport(t *testing.T) {
	follow(t, func(b *bubble) {
		b.err = assert.AnError
		b.read(0)
		assert.Empty(t, b.read(29*time.Second))
		time.Sleep(3 * time.Second)
		synctest.Wait()
		_, err := b.meter.Read(t.Context(), power.Sample{At: time.Now()})
		require.ErrorIs(t, err, assert.AnError)
	})
}

func TestAZoneOfAnotherKindWithTheSameIDHasItsOwnTotal(t *testing.T) {
	d := newDirect(t)
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
		d := newDirect(t)
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
	d := newDirect(t)
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
	d := newDirect(t)
	d.renew("a", time.Second, packageOf(100))
	d.source.report.Generation--
	r := d.renew("b", time.Second, packageOf(70))[0]
	assert.Equal(t, power.Rebased, r.Event)
	assert.Equal(t, "b", r.Raw.Epoch)
}
