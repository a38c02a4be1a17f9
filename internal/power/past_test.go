// SPDX-License-Identifier: Apache-2.0

package power

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/energyreceiver/energyreceiver/internal/units"
)

// counting is a meter with counters.
type counting struct {
	fake
	counters []*counter
}

func (c *counting) zone(z *Zone, wrapAt units.Energy) *counting {
	c.readings = append(c.readings, Reading{Zone: z})
	c.counters = append(c.counters, newCounter(z.MaxWatts, wrapAt, ""))
	return c
}

// shows sets what the counter of a zone shows.
func (c *counting) shows(zone int, raw units.Energy, at time.Time) {
	counter, r := c.counters[zone], &c.readings[zone]
	energy, event := counter.add(raw, at)
	r.Total, r.Event, r.At, r.Raw, r.Err = r.Total+energy, event, at, counter.raw(), nil
}

func socket(id string) *Zone {
	return &Zone{ID: id, Name: "package-" + id, Kind: Package, Method: Measured, MaxWatts: 1000, Domain: units.NodeCPUs}
}

// resumedSet returns a set that resumes one zone, whose counter was at 5 µJ at the start.
func resumedSet(z *Zone, meter string, members ...Member) *Set {
	s := NewSet(members...)
	s.Resume(&Past{Zones: []PastZone{{Zone: *z, Meter: meter, At: after(0), Raw: Raw{Energy: 5, At: after(0)}}}})
	return s
}

// readAfter reads a set at a time after the start.
func readAfter(s *Set, d time.Duration) []Reading {
	return s.Read(context.Background(), Sample{At: after(d)})
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

func TestTheEnergyBetweenTwoReadingsOfACounter(t *testing.T) {
	const (
		kJ   = 1000 * units.Joule
		rng  = 65 * kJ
		most = MaxPlatformWatts * (10 + 60) * units.Joule // of a reported total, in 10 s and a minute
	)
	for name, c := range map[string]struct {
		past, now, wrapAt units.Energy
		elapsed           time.Duration
		epochs            string // of both
		want              units.Energy
		err               error
	}{
		"grows":                        {5, 5 + kJ, rng, time.Second, "", kJ, nil},
		"no time passed":               {5, 5 + 9*units.Joule, rng, 0, "", 9 * units.Joule, nil},
		"wraps":                        {rng - kJ/2, kJ / 4, rng, time.Second, "", 3 * kJ / 4, nil},
		"is reset":                     {40 * kJ, kJ / 100, rng, time.Second, "", 0, ErrReset},
		"is reset and has no range":    {40 * kJ, kJ / 100, 0, time.Hour, "", 0, ErrReset},
		"jumps":                        {5, 5 + 2*kJ, rng, time.Second, "", 0, ErrReset},
		"the clock was set back":       {5, 5 + 30*kJ, rng, -time.Hour, "", 0, ErrReset},
		"cannot have wrapped again":    {0, 10 * kJ, rng, 74 * time.Second, "", 10 * kJ, nil},
		"may have wrapped again":       {0, 10 * kJ, rng, 75 * time.Second, "", 10 * kJ, ErrMayHaveWrapped},
		"wraps and may have again":     {64 * kJ, 0, rng, time.Hour, "", kJ, ErrMayHaveWrapped},
		"has no range and an hour":     {5, 5 + 3000*kJ, 0, time.Hour, "", 3000 * kJ, nil},
		"at the end of its numbers":    {math.MaxUint64 - 7, math.MaxUint64, rng, time.Second, "", 7, nil},
		"is of another epoch":          {5, 9, 0, time.Second, "ab", 0, ErrReset},
		"reports":                      {5, 9, 0, time.Second, "aa", 4, nil},
		"reports the most possible":    {0, most, 0, 10 * time.Second, "aa", most, nil},
		"reports more than possible":   {0, most + 1, 0, 10 * time.Second, "aa", 0, ErrReset},
		"reports more than any energy": {0, math.MaxInt64, 0, 10 * time.Second, "aa", 0, ErrReset},
	} {
		past := Raw{Energy: c.past, At: after(0)}
		now := Raw{Energy: c.now, Range: c.wrapAt, MaxWatts: 1000, At: after(c.elapsed)}
		if c.epochs != "" {
			past.Epoch, now.Epoch = c.epochs[:1], c.epochs[1:]
		}
		if energy, err := past.until(&now); energy != c.want || !errors.Is(err, c.err) {
			t.Errorf("%s: %d µJ, %v; want %d, %v", name, energy, err, c.want, c.err)
		}
	}
}

func TestAZoneResumesOnlyIfItIsTheSame(t *testing.T) {
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
		now := *read
		c.zone(&now)
		m := new(counting).zone(&now, 0)
		s := resumedSet(read, "second", Member{Name: c.meter, Meter: &m.fake})
		m.shows(0, 12, after(time.Second))
		var got units.Energy
		for _, r := range readAfter(s, time.Second) {
			got += r.Total
		}
		assert.Equal(t, c.want, got, c.name)
	}
}

// Several polls may precede the first Read, so the reading has unmeasured time of its own.
func TestASensorOfPowerHasNoEnergyOfTheTimeDown(t *testing.T) {
	m := &fake{readings: []Reading{{Zone: socket("0"), At: after(time.Minute), Total: 3, Unmeasured: 20 * time.Second}}}
	s := NewSet(Member{Name: "bmc", Meter: m})
	s.Resume(&Past{Zones: []PastZone{{Zone: *socket("0"), Meter: "bmc", At: after(0)}}})
	assert.Equal(t, units.Energy(3), readAfter(s, time.Minute)[0].Total)
	assert.Equal(t, []Resumption{{Zone: *socket("0"), Elapsed: 40 * time.Second, Err: ErrNotCounted}}, s.Resumptions())
	readAfter(s, time.Hour)
	assert.Empty(t, s.Resumptions())
}

// The receiver restarts while a laptop is on mains power. Its battery is read an hour later.
func TestUnmeasuredTimeAroundARestartCountsOnce(t *testing.T) {
	battery := func() (*fake, *Set) {
		m := &fake{readings: []Reading{{Zone: socket("0"), At: after(0)}}}
		return m, NewSet(Member{Name: "battery", Meter: m})
	}
	m, s := battery()
	readAfter(s, 0)
	m.readings[0].Err, m.readings[0].Unmeasured = ErrUnmeasured, time.Minute
	readAfter(s, time.Minute)
	var past Past
	s.Past(&past)

	m, s = battery()
	s.Resume(&past)
	m.readings[0] = Reading{Zone: socket("0"), Err: ErrUnmeasured}
	readAfter(s, 3*time.Minute)
	require.Len(t, s.Resumptions(), 1)
	assert.ErrorIs(t, s.Resumptions()[0].Err, ErrNotCounted)
	assert.Equal(t, 2*time.Minute, s.Resumptions()[0].Elapsed)
	m.readings[0].Err, m.readings[0].At, m.readings[0].Unmeasured = nil, after(time.Hour), 57*time.Minute
	readings := readAfter(s, time.Hour)
	require.Len(t, readings, 1)
	assert.Zero(t, readings[0].Total)
	assert.Empty(t, s.Resumptions())
}

// A card that is suspended shows powers first.
func TestAZoneResumesWithTheFirstReadingOfItsCounter(t *testing.T) {
	m := new(counting).zone(socket("0"), 0)
	s := resumedSet(socket("0"), "hwmon", Member{Name: "hwmon", Meter: &m.fake})
	m.readings[0].At, m.readings[0].Total = after(time.Second), 3
	assert.Equal(t, units.Energy(3), readAfter(s, time.Second)[0].Total)
	m.shows(0, 25, after(2*time.Second))
	m.readings[0].Total = 3
	assert.Equal(t, units.Energy(20), readAfter(s, 2*time.Second)[0].Total)
}

func TestAZoneOfThePastIsAwaitedAndKept(t *testing.T) {
	slow, model := new(counting).zone(socket("0"), 0), &fake{readings: []Reading{{Zone: &Zone{ID: "model", Kind: Package}}}}
	slow.readings = nil // not polled yet
	s := resumedSet(socket("0"), "bmc", Member{Name: "bmc", Meter: &slow.fake}, Member{Name: "model", Meter: model, StandsIn: true})
	var past Past
	for i := range 3 {
		readings := readAfter(s, time.Duration(i+1)*time.Second)
		if len(readings) != 1 || *readings[0].Zone != *socket("0") || readings[0].Err == nil || len(s.Failed()) != 0 {
			t.Errorf("%+v, failed %+v", readings, s.Failed())
		}
		if s.Past(&past); len(past.Zones) != 1 || past.Zones[0].Raw.Energy != 5 || !past.Zones[0].At.Equal(after(0)) {
			t.Errorf("%+v", past)
		}
	}
	slow.readings = []Reading{{Zone: socket("0")}}
	slow.shows(0, 25, after(4*time.Second))
	if readings := readAfter(s, 4*time.Second); len(readings) != 1 || readings[0].Total != 20 || readings[0].Err != nil {
		t.Errorf("%+v", readings)
	}
}

func TestAMeterThatNeverAnswersIsReplacedAfterTwoMinutes(t *testing.T) {
	second := new(counting).zone(socket("1"), 0)
	s := resumedSet(socket("0"), "bmc", Member{Name: "bmc", Meter: new(fake)}, Member{Name: "rapl", Meter: &second.fake})
	second.shows(0, 9, after(time.Second))
	for _, c := range []struct {
		after time.Duration
		want  string
	}{{time.Second, "0"}, {2 * time.Minute, "0"}, {2*time.Minute + time.Second, "1"}} {
		assert.Equal(t, c.want, idsOf(readAfter(s, c.after)), c.after)
	}
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
	first.readings[0].Err = errUnreadable
	s := resumedSet(socket("0"), "powercap", Member{Name: "powercap", Meter: &first.fake, Family: "rapl"}, Member{Name: "perf", Meter: &second.fake, Family: "rapl"})
	second.shows(0, 9, after(time.Second))
	if readings := readAfter(s, time.Second); idsOf(readings) != "perf" || readings[0].Total != 0 {
		t.Errorf("%+v", readings)
	}
	first.shows(0, 1000, after(2*time.Second)) // the other meter has counted its energy
	if readings := readAfter(s, 2*time.Second); idsOf(readings) != "0" || readings[0].Total != 0 {
		t.Errorf("%+v", readings)
	}
}

func TestAModelResumesFromThePastSample(t *testing.T) {
	for name, c := range map[string]struct {
		method Method
		meter  string
		want   bool
	}{"the model stood in": {Modeled, "model", true}, "it did not": {Measured, "powercap", false}} {
		z := Zone{ID: "model:package", Kind: Package, Method: c.method}
		m := &sampled{fake: fake{readings: []Reading{{Zone: &z, At: after(time.Second), Total: 50}}}}
		s := NewSet(Member{Name: "powercap", Meter: new(fake)}, Member{Name: "model", Meter: m, StandsIn: true})
		past := &Past{Sample: Sample{At: after(0), Busy: 5, Total: 10}, Zones: []PastZone{{Zone: z, Meter: c.meter, At: after(0)}}}
		s.Resume(past)
		assert.Equal(t, c.want, slices.Equal(m.samples, []Sample{past.Sample}), name)
		readAfter(s, time.Second)
		if got := s.Resumptions(); c.want && (len(got) != 1 || got[0].Err != nil) {
			t.Errorf("%+v", got)
		}
	}
}

// sampled is a meter that keeps the samples of its reads.
type sampled struct {
	fake
	samples []Sample
}

func (m *sampled) Read(ctx context.Context, s Sample) ([]Reading, error) {
	m.samples = append(m.samples, s)
	return m.fake.Read(ctx, s)
}

// TestNoRestartLosesEnergy reads counters that wrap, now and then by a new set, and compares the sum
// of the totals of all sets with the truth. Every second machine has a correction.
func TestNoRestartLosesEnergy(t *testing.T) {
	const wrapAt = 5000 * units.Joule
	seeds := uint64(200)
	if testing.Short() {
		seeds = 40
	}
	for seed := range seeds {
		rng := rand.New(rand.NewPCG(seed, 1))
		n := 1 + rng.IntN(4)
		truth, sums, base := make([]units.Energy, n), make([]units.Energy, n), make([]units.Energy, n)
		correction := Correction{Lag: 3 * time.Second, Factor: Unscaled + seed%2*Unscaled, Offset: int64(seed%2) * 1_000_000}
		begin := func() (*counting, *Set) {
			m := new(counting)
			for i := range n {
				m.zone(socket(string(rune('a'+i))), wrapAt)
			}
			return m, NewSet(Member{Name: "rapl", Meter: &m.fake, Correction: correctedBy(correction)})
		}
		m, s := begin()
		var past Past
		var now time.Duration
		for step := range 300 {
			elapsed := time.Duration(rng.Int64N(450_000)) * time.Microsecond // a tenth of a range at 1 kW
			for i := range n {
				if truth[i] += units.Energy(rng.Int64N(elapsed.Microseconds()*1000 + 1)); step == 0 {
					truth[i], elapsed = 0, 0
				}
				if m.readings[i].Err = errUnreadable; step == 0 || step == 299 || rng.IntN(10) > 0 {
					m.shows(i, (units.Energy(seed)*1e6+truth[i])%wrapAt, after(now+elapsed))
				}
			}
			now += elapsed
			for i, r := range readAfter(s, now) {
				sums[i] = base[i] + r.Total
			}
			if step < 299 && rng.IntN(4) == 0 {
				s.Past(&past)
				m, s = begin()
				s.Resume(written(t, &past))
				copy(base, sums)
			}
		}
		for i := range n {
			if want := truth[i]*units.Energy(1+seed%2) + units.Energy(seed%2)*units.Energy(now.Microseconds()); sums[i] != want {
				t.Fatalf("seed %d, zone %d: %d µJ, want %d", seed, i, sums[i], want)
			}
		}
	}
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
