// SPDX-License-Identifier: Apache-2.0

package power

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/energyreceiver/energyreceiver/internal/units"
)

// counting is a meter with counters.
type counting struct {
	fake
	counters []*Counter
}

func (c *counting) zone(z *Zone, wrapAt units.Energy) *counting {
	c.readings = append(c.readings, Reading{Zone: z})
	c.counters = append(c.counters, NewCounter(z.MaxWatts, wrapAt))
	return c
}

// shows sets what the counter of a zone shows.
func (c *counting) shows(zone int, raw units.Energy, at time.Time) {
	counter, r := c.counters[zone], &c.readings[zone]
	_, r.Event = counter.Add(raw, at)
	r.Total, r.At, r.Raw, r.Err = counter.Total(), at, counter.Raw(), nil
}

func socket(id string) *Zone {
	return &Zone{ID: id, Name: "package-" + id, Kind: Package, Method: Measured, MaxWatts: 1000, Domain: units.NodeCPUs}
}

// written returns a past as it is after it was written and read: without the clock of this process,
// as of the same moments.
func written(t testing.TB, p *Past) *Past {
	t.Helper()
	text, err := json.Marshal(p)
	var read Past
	if err == nil {
		err = json.Unmarshal(text, &read)
	}
	require.NoError(t, err)
	return &read
}

func TestACounterGoesOnWhereItWas(t *testing.T) {
	const mJ = units.Joule / 1000
	for _, c := range []struct {
		name      string
		past, now units.Energy
		wrapAt    units.Energy
		elapsed   time.Duration // awake
		want      units.Energy
		err       error
	}{
		{name: "grows", past: 5 * units.Joule, now: 905 * units.Joule, wrapAt: 65_000 * units.Joule, elapsed: time.Second, want: 900 * units.Joule},
		{name: "stands still", past: 5, now: 5, wrapAt: 65_000 * units.Joule, elapsed: time.Second},
		{name: "no time passed", past: 5, now: 5 + 9*units.Joule, wrapAt: 65_000 * units.Joule, want: 9 * units.Joule},
		{name: "wraps", past: 64_990 * units.Joule, now: 10 * units.Joule, wrapAt: 65_000 * units.Joule, elapsed: time.Second, want: 20 * units.Joule},
		{name: "is reset", past: 40_000 * units.Joule, now: 10 * units.Joule, wrapAt: 65_000 * units.Joule, elapsed: time.Second, err: ErrReset},
		{name: "is reset and has no range", past: 40_000 * units.Joule, now: 10 * units.Joule, elapsed: time.Hour, err: ErrReset},
		{name: "steps back a little", past: 40_000 * units.Joule, now: 40_000*units.Joule - mJ, wrapAt: 65_000 * units.Joule, elapsed: time.Minute, err: ErrReset},
		{name: "jumps", past: 5, now: 5 + 2000*units.Joule, wrapAt: 65_000 * units.Joule, elapsed: time.Second, err: ErrReset},
		{name: "jumps after a night asleep and a second awake", past: 5, now: 5 + 30_000*units.Joule, wrapAt: 65_000 * units.Joule, elapsed: time.Second, err: ErrReset},
		{name: "was read before the clock was set back", past: 5, now: 5 + 30_000*units.Joule, wrapAt: 65_000 * units.Joule, elapsed: -time.Hour, err: ErrReset},
		{name: "cannot have wrapped again", past: 0, now: 10_000 * units.Joule, wrapAt: 65_000 * units.Joule, elapsed: 74 * time.Second, want: 10_000 * units.Joule},
		{name: "may have wrapped", past: 0, now: 10_000 * units.Joule, wrapAt: 65_000 * units.Joule, elapsed: 75 * time.Second, want: 10_000 * units.Joule, err: ErrMayHaveWrapped},
		{name: "wraps and may have wrapped again", past: 64_000 * units.Joule, now: 0, wrapAt: 65_000 * units.Joule, elapsed: time.Hour, want: 1000 * units.Joule, err: ErrMayHaveWrapped},
		{name: "stands still and may have wrapped", past: 5, now: 5, wrapAt: 65_000 * units.Joule, elapsed: time.Minute + 5*time.Second, err: ErrMayHaveWrapped},
		{name: "has no range and an hour", past: 5, now: 5 + 3_000_000*units.Joule, elapsed: time.Hour, want: 3_000_000 * units.Joule},
		{name: "at the end of its numbers", past: math.MaxUint64 - 7, now: math.MaxUint64, elapsed: time.Second, want: 7},
	} {
		t.Run(c.name, func(t *testing.T) {
			before := new(counting).zone(socket("0"), c.wrapAt)
			s := setOf(new(fake), &before.fake, new(fake))
			before.shows(0, c.past, after(0))
			s.Read(context.Background(), Sample{At: after(0)})
			var past Past
			s.Past(&past)

			now := new(counting).zone(socket("0"), c.wrapAt)
			s = setOf(new(fake), &now.fake, new(fake))
			s.Resume(written(t, &past))
			now.shows(0, c.now, after(c.elapsed))
			readings := s.Read(context.Background(), Sample{At: after(c.elapsed)})
			if len(readings) != 1 || readings[0].Total != c.want || readings[0].Err != nil {
				t.Errorf("%+v, want %d µJ", readings, c.want)
			}
			if got := s.Resumptions(); len(got) != 1 || !errors.Is(got[0].Err, c.err) || got[0].Energy != c.want || got[0].Elapsed != max(c.elapsed, 0) {
				t.Errorf("%+v, want %d µJ in %v, error %v", got, c.want, c.elapsed, c.err)
			}

			now.shows(0, min(c.now, math.MaxUint64-3)+3, after(c.elapsed+time.Second)) // from here on it is as ever
			rest := min(c.now, math.MaxUint64-3) + 3 - c.now
			readings = s.Read(context.Background(), Sample{At: after(c.elapsed + time.Second)})
			if readings[0].Total != c.want+rest || len(s.Resumptions()) != 0 {
				t.Errorf("later: %+v, %+v, want %d µJ more", readings, s.Resumptions(), rest)
			}
		})
	}
}

func TestAZoneGoesOnOnlyWhereItIsTheSame(t *testing.T) {
	read := socket("0")
	for _, c := range []struct {
		name  string
		meter string
		zone  func(*Zone)
		want  units.Energy
	}{
		{"the same", "second", func(*Zone) {}, 7},
		{"another bound of its power", "second", func(z *Zone) { z.MaxWatts++ }, 7},
		{"read by another meter", "first", func(*Zone) {}, 0},
		{"with another ID", "second", func(z *Zone) { z.ID = "1" }, 0},
		{"with another name", "second", func(z *Zone) { z.Name = "package-1" }, 0},
		{"of another kind", "second", func(z *Zone) { z.Kind = DRAM }, 0},
		{"inside another", "second", func(z *Zone) { z.Parent = "9" }, 0},
		{"of other hardware", "second", func(z *Zone) { z.Domain = units.GPU("0000:01:00.0") }, 0},
		{"from another source", "second", func(z *Zone) { z.Method = Reported }, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			now := *read
			c.zone(&now)
			m := new(counting).zone(&now, 0)
			s := NewSet(Member{Name: c.meter, Meter: &m.fake})
			s.Resume(&Past{Zones: []PastZone{{Zone: *read, Meter: "second", At: after(0), Raw: Raw{Energy: 5, At: after(0)}}}})
			m.shows(0, 12, after(time.Second))
			var got units.Energy
			for _, r := range s.Read(context.Background(), Sample{At: after(time.Second)}) {
				got += r.Total
			}
			assert.Equal(t, c.want, got)
		})
	}
}

func TestASensorOfPowerHasNothingOfTheTimeDown(t *testing.T) {
	m := new(fake).has("bmc", Platform)
	s := NewSet(Member{Name: "bmc", Meter: m})
	s.Resume(&Past{Zones: []PastZone{{Zone: *m.readings[0].Zone, Meter: "bmc", At: after(0)}}})
	m.readings[0].At, m.readings[0].Total = after(time.Minute), 3
	r := s.Read(context.Background(), Sample{At: after(time.Minute)})[0]
	if got := s.Resumptions(); r.Total != 3 || len(got) != 1 || !errors.Is(got[0].Err, ErrNotCounted) || got[0].Elapsed != time.Minute {
		t.Errorf("%+v, %+v", r, got)
	}
}

func TestAZoneThatTellsPowersFirstGoesOnWithItsCounter(t *testing.T) {
	card := socket("0")
	z := newPolledZone(card, time.Minute)
	m := new(fake)
	s := NewSet(Member{Name: "hwmon", Meter: m})
	s.Resume(&Past{Zones: []PastZone{{Zone: *card, Meter: "hwmon", At: after(0), Raw: Raw{Energy: 5 * units.Joule, At: after(0)}}}})
	read := func(v Value) units.Energy {
		t.Helper()
		z.take(&v, 0)
		m.readings = []Reading{z.reading}
		readings := s.Read(context.Background(), Sample{At: after(0)})
		require.Len(t, readings, 1)
		return readings[0].Total
	}
	read(PowerValue(card, 1e6, 0, after(10*time.Second)))
	assert.Equal(t, units.Joule, read(PowerValue(card, 1e6, 0, after(11*time.Second))))
	assert.Equal(t, 20*units.Joule, read(EnergyValue(card, 25*units.Joule, after(12*time.Second))))
	assert.Equal(t, 22*units.Joule, read(EnergyValue(card, 27*units.Joule, after(13*time.Second))))
}

func TestAZoneOfThePastIsAwaitedAndKept(t *testing.T) {
	slow, other := new(counting).zone(socket("0"), 0), new(fake).has("model", Package)
	zone := slow.readings[0].Zone
	slow.readings = nil // not polled yet
	s := NewSet(Member{Name: "bmc", Meter: &slow.fake}, Member{Name: "model", Meter: other, StandsIn: true})
	s.Resume(&Past{Zones: []PastZone{{Zone: *zone, Meter: "bmc", At: after(0), Raw: Raw{Energy: 5, At: after(0)}}}})
	var past Past
	for i := range 3 {
		readings := s.Read(context.Background(), Sample{At: after(time.Duration(i+1) * time.Second)})
		if len(readings) != 1 || *readings[0].Zone != *zone || readings[0].Err == nil || len(s.Failed()) != 0 {
			t.Errorf("%+v, failed %+v", readings, s.Failed())
		}
		if s.Past(&past); len(past.Zones) != 1 || past.Zones[0].Raw.Energy != 5 || !past.Zones[0].At.Equal(after(0)) {
			t.Errorf("%+v", past)
		}
	}
	slow.readings = []Reading{{Zone: zone}}
	slow.shows(0, 25, after(4*time.Second))
	if readings := s.Read(context.Background(), Sample{At: after(4 * time.Second)}); len(readings) != 1 || readings[0].Total != 20 || readings[0].Err != nil {
		t.Errorf("%+v", readings)
	}
}

func TestAMeterThatNeverAnswersIsReplacedAfterTwoMinutes(t *testing.T) {
	silent, second := new(fake), new(counting).zone(socket("1"), 0)
	s := NewSet(Member{Name: "bmc", Meter: silent}, Member{Name: "rapl", Meter: &second.fake})
	s.Resume(&Past{Zones: []PastZone{{Zone: *socket("0"), Meter: "bmc", At: after(0), Raw: Raw{Energy: 5, At: after(0)}}}})
	second.shows(0, 9, after(time.Second))
	expect := func(d time.Duration, want ...string) {
		t.Helper()
		var got []string
		for _, r := range s.Read(context.Background(), Sample{At: after(d)}) {
			got = append(got, r.Zone.ID)
		}
		assert.Equal(t, want, got, d)
	}
	expect(time.Second, "0")
	expect(2*time.Minute, "0")
	expect(2*time.Minute+time.Second, "1")
	if got := s.Resumptions(); len(got) != 1 || !errors.Is(got[0].Err, ErrOtherMeter) || got[0].Zone.ID != "0" {
		t.Errorf("%+v", got)
	}
	var past Past
	if s.Past(&past); len(past.Zones) != 1 || past.Zones[0].ID != "1" {
		t.Errorf("%+v", past.Zones)
	}
}

func TestAMeterThatMayNoLongerReadIsReplacedAtOnce(t *testing.T) {
	first, second := new(counting).zone(socket("0"), 0), new(counting).zone(socket("perf"), 0)
	first.fail(Package, errUnreadable)
	s := NewSet(Member{Name: "powercap", Meter: &first.fake, Family: "rapl"}, Member{Name: "perf", Meter: &second.fake, Family: "rapl"})
	s.Resume(&Past{Zones: []PastZone{{Zone: *socket("0"), Meter: "powercap", At: after(0), Raw: Raw{Energy: 5, At: after(0)}}}})
	second.shows(0, 9, after(time.Second))
	readings := s.Read(context.Background(), Sample{At: after(time.Second)})
	if len(readings) != 1 || readings[0].Zone.ID != "perf" || readings[0].Total != 0 {
		t.Errorf("%+v", readings)
	}
	first.shows(0, 1000, after(2*time.Second)) // its energy has been counted by the other one
	readings = s.Read(context.Background(), Sample{At: after(2 * time.Second)})
	if len(readings) != 1 || readings[0].Zone.ID != "0" || readings[0].Total != 0 {
		t.Errorf("%+v", readings)
	}
}

func TestTheModelGoesOnFromThePastSample(t *testing.T) {
	m := &resuming{fake: *new(fake).has("model", Package)}
	m.readings[0].Zone.Method = Modeled
	past := &Past{
		Sample: Sample{At: after(0), Busy: 5, Total: 10},
		Zones:  []PastZone{{Zone: *m.readings[0].Zone, Meter: "model", At: after(0)}},
	}
	s := NewSet(Member{Name: "model", Meter: m, StandsIn: true})
	s.Resume(past)
	assert.Equal(t, past.Sample, m.from)
	m.readings[0].At, m.readings[0].Total = after(time.Second), 50
	s.Read(context.Background(), Sample{At: after(time.Second)})
	if got := s.Resumptions(); len(got) != 1 || got[0].Err != nil || got[0].Energy != 50 {
		t.Errorf("%+v", got)
	}

	past.Zones[0].Meter, past.Zones[0].Method = "powercap", Measured // the model did not stand in then
	m.from = Sample{}
	NewSet(Member{Name: "powercap", Meter: new(fake)}, Member{Name: "model", Meter: m, StandsIn: true}).Resume(past)
	assert.Equal(t, (Sample{}), m.from)
}

type resuming struct {
	fake
	from Sample
}

func (r *resuming) Resume(s Sample) { r.from = s }

func TestCountersOfDifferentEpochsHaveNothingInCommon(t *testing.T) {
	past, now := Raw{Energy: 5, At: after(0), Epoch: "a"}, Raw{Energy: 9, At: after(time.Second), MaxWatts: 1000, Epoch: "b"}
	if energy, err := past.until(&now); energy != 0 || !errors.Is(err, ErrReset) {
		t.Errorf("%d µJ, %v", energy, err)
	}
	past.Epoch = "b"
	if energy, err := past.until(&now); energy != 4 || err != nil {
		t.Errorf("%d µJ, %v", energy, err)
	}
}

func TestAReportedTotalIsBoundedByThePowerAndTheTime(t *testing.T) {
	const most = MaxPlatformWatts * (10 + 60) * units.Joule // in 10 s and a minute
	for _, tc := range []struct {
		energy, want units.Energy
		err          error
	}{{most, most, nil}, {most + 1, 0, ErrReset}, {math.MaxInt64, 0, ErrReset}} {
		past, now := Raw{At: after(0), Epoch: "a"}, Raw{Energy: tc.energy, At: after(10 * time.Second), MaxWatts: 1000, Epoch: "a"}
		if energy, err := past.until(&now); energy != tc.want || !errors.Is(err, tc.err) {
			t.Errorf("%d: %d µJ, %v; want %d, %v", tc.energy, energy, err, tc.want, tc.err)
		}
	}
}

func TestTheRawCounterOfAPolledZoneHasWhatItsPowersAdded(t *testing.T) {
	zone := socket("0")
	z := newPolledZone(zone, time.Minute)
	take := func(v Value) Raw {
		z.take(&v, 0)
		return z.reading.Raw
	}
	if raw := take(PowerValue(zone, 2e6, 0, after(0))); !raw.IsZero() {
		t.Errorf("%+v of a zone that only told powers", raw)
	}
	take(EnergyValue(zone, 100*units.Joule, after(time.Second)))
	take(PowerValue(zone, 2e6, 0, after(2*time.Second)))
	assert.Equal(t, 102*units.Joule, take(PowerValue(zone, 2e6, 0, after(3*time.Second))).Energy)
	assert.Equal(t, 102*units.Joule, take(EnergyValue(zone, 101*units.Joule, after(4*time.Second))).Energy)
	assert.Equal(t, 104*units.Joule, take(EnergyValue(zone, 104*units.Joule, after(5*time.Second))).Energy)
}

// TestNoRestartLosesEnergy reads counters that wrap, now and then by a new set, and compares the
// sum of what all of them reported with the truth.
func TestNoRestartLosesEnergy(t *testing.T) {
	seeds := uint64(200)
	if testing.Short() {
		seeds = 40
	}
	for seed := range seeds {
		rng := rand.New(rand.NewPCG(seed, 1))
		n := 1 + rng.IntN(4)
		truth, told, base := make([]units.Energy, n), make([]units.Energy, n), make([]units.Energy, n)
		const wrapAt = 5000 * units.Joule
		begin := func() (*counting, *Set) {
			m := new(counting)
			for i := range n {
				m.zone(socket(string(rune('a'+i))), wrapAt)
			}
			return m, NewSet(Member{Name: "rapl", Meter: &m.fake})
		}
		m, s := begin()
		now, awake := time.Duration(0), false
		var past Past
		for step := range 300 {
			elapsed := time.Duration(rng.Int64N(int64(450 * time.Millisecond))) // a tenth of a range at 1 kW
			now += elapsed
			for i := range n {
				if step > 0 {
					truth[i] += units.Energy(rng.Int64N(elapsed.Microseconds()*1000 + 1))
				}
				if rng.IntN(10) > 0 || step == 0 {
					m.shows(i, (units.Energy(seed)*1e6+truth[i])%wrapAt, after(now))
				} else {
					m.readings[i].Err = errUnreadable
				}
			}
			for i, r := range s.Read(context.Background(), Sample{At: after(now)}) {
				told[i] = base[i] + r.Total
			}
			if awake = rng.IntN(4) > 0; awake {
				continue
			}
			s.Past(&past)
			m, s = begin()
			s.Resume(written(t, &past))
			copy(base, told)
		}
		now += 10 * time.Millisecond
		for i := range n {
			m.shows(i, (units.Energy(seed)*1e6+truth[i])%wrapAt, after(now))
		}
		for i, r := range s.Read(context.Background(), Sample{At: after(now)}) {
			if got := base[i] + r.Total; got != truth[i] {
				t.Fatalf("seed %d, zone %d: %d µJ, want %d", seed, i, got, truth[i])
			}
		}
	}
}

func TestTakingThePastAllocatesNothing(t *testing.T) {
	m := new(counting).zone(socket("0"), 0).zone(socket("1"), 0)
	s := NewSet(Member{Name: "rapl", Meter: &m.fake})
	s.Remainder = new(Remainder)
	m.shows(0, 1, after(0))
	m.shows(1, 1, after(0))
	s.Read(context.Background(), Sample{At: after(0)})
	var past Past
	assert.Zero(t, testing.AllocsPerRun(100, func() { s.Past(&past) }))
	second := NewSet(Member{Name: "rapl", Meter: &m.fake})
	second.Resume(&past)
	assert.Zero(t, testing.AllocsPerRun(100, func() { second.Read(context.Background(), Sample{At: after(0)}) }))
}

// restarted returns the machine as another receiver finds it: its zones count from the last reading of the one before.
func (n *node) restarted() *node {
	next := &node{TB: n.TB}
	past := n.remainder.past()
	if past.Known {
		next.remainder.resume(past)
	}
	for i := range n.readings {
		zone := *n.readings[i].Zone
		next.readings = append(next.readings, Reading{Zone: &zone, since: n.readings[i].At})
	}
	return next
}

func TestOtherWaitsForZonesOfThePast(t *testing.T) {
	n, platform, pkg := newNode(t)
	n.count(platform, 10, 1000)
	n.count(pkg, 10, 400)
	n.expect(10, 600, 10, 0)
	past := n.remainder.past()
	n = n.restarted()
	n.readings[platform].Err = errAwaited
	n.count(pkg, 20, 100)
	if r := n.read(20); r == nil || r.Err == nil || r.Zone.Kind != Other || !r.At.IsZero() {
		t.Errorf("%+v", r)
	}
	assert.Equal(t, past, n.remainder.past())
	n.readings[platform].Err = nil
	n.count(platform, 25, 1500)
	n.count(pkg, 30, 200)
	n.expect(30, 1500-150, 25, 0)
}

// TestNoRestartLosesOther restarts receivers of meters that are slow, and compares the zones of all
// of them with what the meters counted.
func TestNoRestartLosesOther(t *testing.T) {
	for seed := range uint64(200) {
		rng := rand.New(rand.NewPCG(seed, 2))
		n, platform, pkg := newNode(t)
		var told, whole, part, wholeNow, partNow float64 // of earlier receivers, and of this one
		now := 0.0
		for range 200 {
			now += float64(1 + rng.IntN(20))
			if rng.IntN(3) > 0 {
				wholeNow += float64(rng.IntN(5000))
				n.count(platform, now, wholeNow)
			}
			if rng.IntN(3) > 0 {
				partNow += float64(rng.IntN(3000))
				n.count(pkg, now, partNow)
			}
			r := n.read(now)
			if rng.IntN(5) > 0 || r == nil || r.At.IsZero() {
				continue
			}
			told += r.Total.Joules()
			whole, part, wholeNow, partNow = whole+wholeNow, part+partNow, 0, 0
			n = n.restarted()
		}
		for range 2 { // once all zones have been read at once, and their past is settled
			now += 10
			wholeNow, partNow = wholeNow+10_000_000, partNow+100
			n.count(platform, now, wholeNow)
			n.count(pkg, now, partNow)
		}
		n.read(now)
		r := n.read(now)
		if got, want := told+r.Total.Joules(), whole+wholeNow-part-partNow; math.Abs(got-want) > 1e-3 {
			t.Fatalf("seed %d: %g J, want %g J", seed, got, want)
		}
	}
}
