// SPDX-License-Identifier: Apache-2.0

package power

import (
	"context"
	"errors"
	"io/fs"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/energyreceiver/energyreceiver/internal/test/allocs"
	"github.com/energyreceiver/energyreceiver/internal/units"
)

// scripted is a Sensor that does what a test says.
type scripted struct {
	poll   func(context.Context) ([]Value, error)
	close  func() error
	polls  []time.Time // when they began
	closed int
}

func (s *scripted) Poll(ctx context.Context) ([]Value, error) {
	ordered()
	s.polls = append(s.polls, time.Now())
	return s.poll(ctx)
}

func (s *scripted) Close() error {
	s.closed++
	if s.close != nil {
		return s.close()
	}
	return nil
}

// asked returns a poller of a function, which a synctest bubble outlives.
func asked(t *testing.T, options PollOptions, poll func(context.Context) ([]Value, error)) (*Poller, *scripted) {
	t.Helper()
	sensor := &scripted{poll: poll}
	p := NewPoller(sensor, options)
	t.Cleanup(func() {
		assert.NoError(t, p.Close())
		assert.Equal(t, 1, sensor.closed)
	})
	return p, sensor
}

// order shows the race detector that a poll begins after what the test did before. The time of a bubble does not.
var order sync.Mutex

func ordered() {
	order.Lock()
	defer order.Unlock()
}

// pass lets time pass, and all goroutines do what they can do then.
func pass(d time.Duration) {
	ordered()
	time.Sleep(d)
	synctest.Wait()
}

// read reads once all goroutines have done what they can do now. It fails if the read takes any time.
func read(t *testing.T, p *Poller) ([]Reading, error) {
	t.Helper()
	synctest.Wait()
	began := time.Now()
	readings, err := p.Read(t.Context(), Sample{At: began})
	assert.Zero(t, time.Since(began))
	synctest.Wait()
	return readings, err
}

// start has the first poll begin, and end if it takes no time.
func start(t *testing.T, p *Poller) {
	t.Helper()
	if _, err := read(t, p); err != nil {
		t.Error(err)
	}
}

// one reads the only zone.
func one(t *testing.T, p *Poller) Reading {
	t.Helper()
	readings, _ := read(t, p)
	require.Len(t, readings, 1)
	return readings[0]
}

func platform(id string) *Zone {
	return &Zone{ID: id, Kind: Platform, Domain: units.NodeCPUs, MaxWatts: MaxPlatformWatts}
}

var errBroken = errors.New("broken")

func TestAPollerReturnsWhatTheLastPollFound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		zone := platform("psu")
		p, sensor := asked(t, PollOptions{Every: 5 * time.Second}, func(context.Context) ([]Value, error) {
			return []Value{PowerValue(zone, 100*watt, 0, time.Now())}, nil
		})
		pass(time.Hour)
		if len(sensor.polls) > 0 {
			t.Error("polled before the first read")
		}
		began := time.Now()
		if readings, err := read(t, p); len(readings) > 0 || err != nil {
			t.Errorf("before the first poll has ended: %v, %v", readings, err)
		}
		want := Reading{Zone: zone, At: began, Event: Appeared}
		assert.Equal(t, want, one(t, p))
		want.Event = NoEvent
		pass(4 * time.Second)
		assert.Equal(t, want, one(t, p))
		pass(3 * time.Second)
		want.Total, want.At = 500*units.Joule, began.Add(5*time.Second)
		assert.Equal(t, want, one(t, p))
	})
}

// finding is a Sensor that knows whether there is something to poll.
type finding struct {
	scripted
	err   error
	finds int
}

func (f *finding) Find() error { f.finds++; return f.err }

func TestAPollerOfNothingKnowsItAtOnceAndLooksEachMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &finding{err: fs.ErrNotExist}
		f.poll = func(context.Context) ([]Value, error) { return nil, ErrNoZones }
		p := NewPoller(f, PollOptions{})
		for s := range 119 {
			if _, err := p.Read(t.Context(), Sample{At: after(time.Duration(s) * time.Second)}); !errors.Is(err, fs.ErrNotExist) {
				t.Fatalf("after %d s: %v", s, err)
			}
		}
		synctest.Wait()
		if f.finds != 2 || len(f.polls) != 0 {
			t.Errorf("looked for %d times and polled %d times", f.finds, len(f.polls))
		}
		f.err = nil
		for s := range 3 {
			_, err := p.Read(t.Context(), Sample{At: after(time.Duration(120+s) * time.Second)})
			if synctest.Wait(); (err != nil) != (s > 0) {
				t.Errorf("after %d s: %v", 120+s, err)
			}
		}
		if f.finds != 3 || len(f.polls) != 1 {
			t.Errorf("looked for %d times and polled %d times", f.finds, len(f.polls))
		}
		if err := p.Close(); err != nil || f.closed != 1 {
			t.Error(err)
		}
	})
}

func TestAPollOfHalfAMinuteDelaysNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		zone := platform("bmc")
		p, sensor := asked(t, PollOptions{Every: 15 * time.Second}, func(ctx context.Context) ([]Value, error) {
			select {
			case <-time.After(30 * time.Second):
				return []Value{PowerValue(zone, 100*watt, 0, time.Now())}, nil
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		})
		start(t, p)
		pass(29 * time.Second)
		if readings, err := read(t, p); len(readings) > 0 || err != nil {
			t.Errorf("during the first poll: %v, %v", readings, err)
		}
		pass(10*time.Minute + time.Second)
		r := one(t, p)
		if r.Err != nil || r.Total != 60_000*units.Joule || r.Gaps > 0 {
			t.Errorf("after ten minutes at 100 W: %+v", r)
		}
		for i, at := range sensor.polls[1:] {
			assert.Equal(t, time.Minute, at.Sub(sensor.polls[i]))
		}
	})
}

func TestAPollThatFailsIsRepeatedLessAndLessOften(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broken := true
		p, sensor := asked(t, PollOptions{Every: 10 * time.Second}, func(context.Context) ([]Value, error) {
			if broken {
				return nil, errBroken
			}
			return nil, nil
		})
		start(t, p)
		pass(20 * time.Minute)
		if _, err := read(t, p); !errors.Is(err, errBroken) {
			t.Errorf("error %v", err)
		}
		pauses := func() (pauses []time.Duration) {
			for i, at := range sensor.polls[1:] {
				pauses = append(pauses, at.Sub(sensor.polls[i]))
			}
			sensor.polls = sensor.polls[:0]
			return pauses
		}
		const s = time.Second
		assert.Equal(t, []time.Duration{10 * s, 20 * s, 40 * s, 80 * s, 160 * s, 300 * s, 300 * s}, pauses()[:7])
		broken = false
		pass(10 * time.Minute)
		if _, err := read(t, p); err != nil {
			t.Errorf("after it recovered: %v", err)
		}
		got := pauses()
		assert.Equal(t, 10*s, slices.Max(got), got)
	})
}

// Errors of timeouts differ by where they strike. A changed text is logged again.
func TestAPollWithoutAnswerIsOneError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		zone, silent, polls := platform("bmc"), false, 0
		p, _ := asked(t, PollOptions{Name: "redfish", Every: 10 * time.Second, Timeout: 20 * time.Second}, func(ctx context.Context) ([]Value, error) {
			if polls++; silent {
				<-ctx.Done()
				return nil, errors.Join(ctx.Err(), errors.New(strings.Repeat("read: ", polls)))
			}
			return []Value{PowerValue(zone, 100*watt, 0, time.Now())}, nil
		})
		start(t, p)
		pass(15 * time.Second)
		silent = true
		before := one(t, p)
		pass(20 * time.Second)
		assert.NoError(t, one(t, p).Err)
		pass(5 * time.Second)
		for range 20 {
			pass(10 * time.Second)
			r := one(t, p)
			if r.Err == nil || r.Err.Error() != "redfish meter: no answer within 20s" {
				t.Fatalf("error %v", r.Err)
			}
			if !r.At.Equal(before.At) || r.Total != 1000*units.Joule {
				t.Fatalf("the poll before was good: %+v", r)
			}
		}
	})
}

// A sensor that ignores its context is a mistake, and must not delay the others.
func TestAPollThatIgnoresItsContextBlocksNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		zone, release := platform("bmc"), make(chan struct{})
		sensor, hang := &scripted{}, false
		sensor.poll = func(context.Context) ([]Value, error) {
			if hang {
				<-release
			}
			return []Value{PowerValue(zone, 100*watt, 0, time.Now())}, nil
		}
		p := NewPoller(sensor, PollOptions{Name: "ipmi", Every: 5 * time.Second, Timeout: 10 * time.Second})
		start(t, p)
		pass(time.Second)
		hang = true
		pass(20 * time.Second) // the poll at 5 s has 10 s, and a second to return
		for range 100 {
			r := one(t, p)
			if r.Err == nil || r.Err.Error() != "ipmi meter: no answer within 10s" {
				t.Fatalf("error %v", r.Err)
			}
			pass(time.Minute)
		}
		assert.Len(t, sensor.polls, 2)
		hang = false
		release <- struct{}{}
		if r := one(t, p); r.Err != nil || r.Gaps != 1 || r.Total != 0 {
			t.Errorf("once it returned: %+v", r)
		}
		hang = true
		pass(time.Minute)
		began := time.Now()
		err := p.Close()
		if took := time.Since(began); took > 5*time.Second {
			t.Errorf("Close took %v", took)
		}
		if err == nil || err.Error() != "ipmi meter: the sensor still did not return from its last poll" {
			t.Errorf("Close returned %v", err)
		}
		if sensor.closed > 0 {
			t.Error("the sensor was closed beside its poll")
		}
		assert.NoError(t, p.Close())
		release <- struct{}{}
		synctest.Wait()
		assert.Equal(t, 1, sensor.closed, "the sensor was not closed after its poll")
	})
}

func TestHungPollersCloseSideBySide(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		pollers := make([]*Poller, 4)
		for i := range pollers {
			pollers[i] = NewPoller(&scripted{poll: func(context.Context) ([]Value, error) {
				<-release
				return nil, nil
			}}, PollOptions{Name: "http"})
			_, _ = pollers[i].Read(t.Context(), Sample{})
		}
		synctest.Wait()
		began := time.Now()
		err := ClosePollers(pollers...)
		assert.Equal(t, maxClose, time.Since(began))
		if errs, ok := err.(interface{ Unwrap() []error }); !ok || len(errs.Unwrap()) != len(pollers) {
			t.Errorf("error %v, want one of each", err)
		}
		close(release)
	})
}

func TestCloseEndsAPollAndReturnsTheSensorsError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sensor := &scripted{close: func() error { return errBroken }}
		sensor.poll = func(ctx context.Context) ([]Value, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}
		p := NewPoller(sensor, PollOptions{Name: "http"})
		start(t, p)
		began := time.Now()
		if err := p.Close(); !errors.Is(err, errBroken) || time.Since(began) > 0 {
			t.Errorf("%v after %v", err, time.Since(began))
		}
		if _, err := p.Read(t.Context(), Sample{}); !errors.Is(err, fs.ErrClosed) {
			t.Errorf("a read after it: %v", err)
		}
		never := &scripted{}
		p = NewPoller(never, PollOptions{})
		if err := errors.Join(p.Close(), p.Close()); err != nil || never.closed != 1 {
			t.Errorf("one that was never read: %v, closed %d times", err, never.closed)
		}
	})
}

// answers is a sensor whose values a test sets.
type answers struct {
	values []Value
	err    error
}

func (a *answers) poll(context.Context) ([]Value, error) { return a.values, a.err }

// script polls once a second what a test sets.
func script(t *testing.T, options PollOptions) (*Poller, *answers, func(...Value) []Reading) {
	t.Helper()
	a := &answers{}
	options.Every = time.Second
	p, _ := asked(t, options, a.poll)
	start(t, p)
	pass(500 * time.Millisecond) // polls are in the middle of each second
	return p, a, func(values ...Value) []Reading {
		t.Helper()
		a.values = values
		pass(time.Second)
		readings, _ := read(t, p)
		return readings
	}
}

func TestATotalOfAnotherMomentIsNews(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, _, poll := script(t, PollOptions{})
		zone, began := platform("vm"), time.Now()
		const huge = 1 << 62 // no step is too large
		for i, c := range []struct {
			total units.Energy
			event Event
			at    time.Duration
		}{{0, Appeared, 0}, {0, NoEvent, 1}, {huge, NoEvent, 2}, {huge, Rebased, 3}, {huge, NoEvent, 3}} {
			r := poll(TotalValue(zone, c.total, Raw{}, c.event, began.Add(c.at)))[0]
			if r.Total != c.total || r.Event != c.event || !r.At.Equal(began.Add(c.at)) || r.Err != nil {
				t.Errorf("value %d: %+v, want %+v", i, r, c)
			}
		}
		if r := poll(FailedValue(zone, errBroken))[0]; r.Total != huge || !r.At.Equal(began.Add(3)) || r.Err == nil {
			t.Errorf("a zone that fails: %+v", r)
		}
	})
}

func TestARejectedPowerBetweenGoodOnesCostsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, _, poll := script(t, PollOptions{})
		zone := platform("acpi")
		poll(PowerValue(zone, 100*watt, 0, time.Now()))
		for i, bad := range []int64{math.MaxUint32 * 1000, -5 * watt, math.MinInt64, math.MaxInt64} {
			r := poll(PowerValue(zone, bad, 0, time.Now()))[0]
			if r.Err == nil || r.Err.Error() != "4294967295 mW is impossible" {
				t.Errorf("error %v, want that of the first as long as there is no good one", r.Err)
			}
			if r.Event != Rejected || r.Rejected != int64(i+1) || r.Total != 0 {
				t.Errorf("reading %d: %+v", i, r)
			}
		}
		r := poll(PowerValue(zone, 300*watt, 0, time.Now()))[0]
		if r.Err != nil || r.Total != 5*200*units.Joule || r.Rejected != 4 || r.Unmeasured != 0 {
			t.Errorf("the next good one: %+v", r)
		}
		if r = poll(PowerValue(zone, -1*watt, 0, time.Now()))[0]; r.Err == nil || r.Err.Error() != "-1000 mW is impossible" {
			t.Errorf("a new state: %v", r.Err)
		}
	})
}

func TestEventsBetweenTwoReadsAreCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, a, poll := script(t, PollOptions{LongestGap: 5 * time.Second})
		zone := platform("acpi")
		poll(PowerValue(zone, 100*watt, 0, time.Now()))
		a.values = []Value{PowerValue(zone, -1, 0, time.Now())}
		pass(10 * time.Second)
		a.values = []Value{PowerValue(zone, 100*watt, 0, time.Now().Add(500*time.Millisecond))}
		pass(time.Second)
		r := one(t, p)
		if r.Rejected != 10 || r.Gaps != 1 || r.Unmeasured != 11500*time.Millisecond || r.Event != Rejected {
			t.Errorf("%+v, want ten rejected and one gap of 11.5 s", r)
		}
		if r = one(t, p); r.Event != NoEvent || r.Rejected != 10 || r.Gaps != 1 {
			t.Errorf("read again: %+v", r)
		}
	})
}

func TestAZoneThatFailsHasItsErrorAndKeepsItsTotal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, a, poll := script(t, PollOptions{LongestGap: 10 * time.Second})
		zone, other := platform("psu-1"), platform("psu-2")
		now := func(watts int64) Value { return PowerValue(zone, watts*watt, 0, time.Now()) }
		second := func() Value { return PowerValue(other, watt, 0, time.Now()) }
		poll(now(100), second())
		poll(now(100), second())
		for i := range 5 {
			readings := poll(FailedValue(zone, errBroken), second())
			if r := readings[0]; !errors.Is(r.Err, errBroken) || r.Total != 100*units.Joule || r.Unmeasured != 0 {
				t.Errorf("%+v, want its error within the longest gap, and the total before", r)
			}
			if r := readings[1]; r.Err != nil || r.Total != units.Energy(i+2)*units.Joule {
				t.Errorf("the other zone: %+v", r)
			}
		}
		if r := poll(now(300), second())[0]; r.Err != nil || r.Total != 100*units.Joule+6*200*units.Joule || r.Gaps != 0 {
			t.Errorf("back within the longest gap: %+v", r)
		}
		a.err = errBroken
		for range 15 {
			for _, r := range poll() {
				assert.ErrorIs(t, r.Err, errBroken, r)
			}
		}
		a.err = nil
		pass(30 * time.Second) // the sensor is asked less often by now
		a.values = nil
		r := poll(now(300), second())[0]
		if r.Err != nil || r.Gaps != 1 || r.Total != 1300*units.Joule || r.Unmeasured < 15*time.Second {
			t.Errorf("back after a longer gap: %+v, want nothing assumed", r)
		}
	})
}

func TestAZoneThatIsNoLongerListedIsLeftOutAfterTheLongestGap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, _, poll := script(t, PollOptions{LongestGap: 5 * time.Second})
		stays, goes := platform("a"), platform("b")
		both := func(joules units.Energy) []Value {
			return []Value{EnergyValue(stays, joules*units.Joule, time.Now()), EnergyValue(goes, joules*units.Joule, time.Now())}
		}
		poll(both(10)...)
		poll(both(20)...)
		for i := range 10 {
			readings := poll(both(20)[:1]...)
			if i >= 5 {
				if len(readings) != 1 || readings[0].Zone != stays {
					t.Errorf("second %d: %+v", i, readings)
				}
				continue
			}
			if r := readings[1]; !errors.Is(r.Err, errNotListed) || r.Total != 10*units.Joule {
				t.Errorf("second %d: %+v", i, r)
			}
		}
		readings := poll(both(500)...)
		if r := readings[1]; len(readings) != 2 || r.Zone != goes || r.Err != nil || r.Total != 490*units.Joule {
			t.Errorf("back again: %+v, want what was missed", readings)
		}
	})
}

func TestAZoneThatIsReadInAnotherWayTakesThePlaceOfTheZoneWithItsID(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, _, poll := script(t, PollOptions{})
		counter, power := platform("redfish:1"), platform("redfish:1")
		poll(EnergyValue(counter, 100*units.Joule, time.Now()))
		poll(EnergyValue(counter, 150*units.Joule, time.Now()))
		poll(PowerValue(power, 20*watt, 0, time.Now()))
		readings := poll(PowerValue(power, 20*watt, 0, time.Now()))
		if len(readings) != 1 || readings[0].Zone != power || readings[0].Total != 20*units.Joule || readings[0].Err != nil {
			t.Errorf("%+v", readings)
		}
	})
}

func TestACounterThatStandsStillIsAnError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, a, poll := script(t, PollOptions{StandsStill: 10 * time.Second})
		zone := platform("bmc")
		poll(EnergyValue(zone, 1000*units.Joule, time.Now()))
		moved := poll(EnergyValue(zone, 1100*units.Joule, time.Now()))[0]
		for i := range 30 {
			a.err = nil
			if i == 20 {
				a.err = errBroken
			}
			r := poll(EnergyValue(zone, 1100*units.Joule, time.Now()))[0]
			switch {
			case r.Total != moved.Total || !r.At.Equal(moved.At):
				t.Fatalf("second %d: %+v, invented", i, r)
			case i == 20:
			case (r.Err != nil) != (i >= 10):
				t.Errorf("second %d: %v", i, r.Err)
			case i >= 10 && r.Err.Error() != "the energy counter stands still":
				t.Errorf("second %d: %v", i, r.Err)
			}
		}
		r := poll(EnergyValue(zone, 4000*units.Joule, time.Now()))[0]
		if r.Err != nil || r.Total != 3000*units.Joule || r.Event != NoEvent {
			t.Errorf("when it moves again: %+v, want what was missed", r)
		}
	})
}

func TestACounterMayStandStillForeverWithoutTheOption(t *testing.T) {
	z := newPolledZone(platform("plug"), time.Minute)
	for i := range 100 {
		v := EnergyValue(z.reading.Zone, 1, after(time.Duration(i)*time.Hour))
		if z.take(&v, 0); z.reading.Err != nil {
			t.Fatal(z.reading.Err)
		}
	}
}

// A counter that is gone for a while counts what powers added meanwhile. That must not be added twice.
func TestAZoneMayReportPowersWhileItsCounterIsGone(t *testing.T) {
	const j = units.Joule
	z := newPolledZone(platform("bmc"), time.Minute)
	take := func(second int, v Value, want units.Energy, event Event) {
		t.Helper()
		v.zone, v.at = z.reading.Zone, after(time.Duration(second)*time.Second)
		z.reading.Event = NoEvent
		if z.take(&v, 0); z.reading.Total != want || z.reading.Event != event || !z.reading.At.Equal(v.at) || z.reading.Err != nil {
			t.Errorf("second %d: %+v, want %d µJ and event %d", second, z.reading, want, event)
		}
	}
	power := func(watts int64) Value { return PowerValue(nil, watts*watt, 0, time.Time{}) }
	energy := func(joules units.Energy) Value { return EnergyValue(nil, joules*j, time.Time{}) }
	take(0, power(100), 0, Appeared)
	take(10, power(100), 1000*j, NoEvent)
	take(20, energy(50_000), 1000*j, Appeared) // the energy since the last power is not known
	assert.Equal(t, 10*time.Second, z.reading.Unmeasured)
	take(30, energy(51_000), 2000*j, NoEvent)
	take(40, power(200), 2000*j, Gap) // that of a moment
	take(50, power(200), 4000*j, NoEvent)
	take(60, power(200), 6000*j, NoEvent)
	take(70, energy(58_000), 9000*j, NoEvent) // all that it counted since 30
	take(80, energy(59_000), 10_000*j, NoEvent)
	take(90, power(500), 10_000*j, Gap)
	take(100, power(500), 15_000*j, NoEvent)
	take(110, energy(62_000), 15_000*j, NoEvent) // less than the powers: 2 kJ ahead
	take(120, energy(63_000), 15_000*j, NoEvent)
	take(130, energy(65_000), 16_000*j, NoEvent)
	take(140, power(500), 16_000*j, Gap)
	take(150, power(500), 21_000*j, NoEvent)
	take(160, energy(10), 21_000*j, Rebased) // says nothing of what was before
	take(170, energy(110), 21_100*j, NoEvent)
}

// Its clock stands still while the machine is suspended, as that of Linux does. What the meter
// measured meanwhile is not the machine's that is awake, and a counter may start again.
func TestASuspendedMachineHasNoEnergyOfTheNight(t *testing.T) {
	power, counter := newPolledZone(platform("acpi"), time.Minute), newPolledZone(platform("plug"), time.Minute)
	awake := func(d time.Duration, joules units.Energy) {
		v := PowerValue(power.reading.Zone, 100*watt, time.Second, after(d))
		power.take(&v, 0)
		v = EnergyValue(counter.reading.Zone, joules*units.Joule, after(d))
		counter.take(&v, 0)
	}
	awake(0, 1000)
	awake(10*time.Second, 2000)
	awake(20*time.Second, 400_000) // after a night
	awake(30*time.Second, 401_000)
	if power.reading.Total != 3000*units.Joule || power.reading.Gaps != 0 {
		t.Errorf("power: %+v", power.reading)
	}
	if counter.reading.Total != 2000*units.Joule || counter.reading.Event != Rebased {
		t.Errorf("counter: %+v", counter.reading)
	}
}

func TestAZoneWithoutABoundHasThatOfItsKind(t *testing.T) {
	z := newPolledZone(&Zone{ID: "vdd", Kind: Package}, time.Minute)
	for i, tc := range []struct {
		watts    int64
		rejected int64
	}{{MaxSocketWatts, 0}, {MaxSocketWatts + 1, 1}} {
		v := PowerValue(z.reading.Zone, tc.watts*watt, 0, after(time.Duration(i)*time.Second))
		if z.take(&v, 0); z.reading.Rejected != tc.rejected {
			t.Errorf("%d W: %+v", tc.watts, z.reading)
		}
	}
}

func TestAReadOfAPollerAllocatesNothing(t *testing.T) {
	zones := []*Zone{platform("a"), platform("b"), platform("c")}
	polled := make(chan struct{}, 1)
	sensor := &scripted{poll: func(context.Context) ([]Value, error) {
		defer func() { polled <- struct{}{} }()
		var values []Value
		for _, z := range zones {
			values = append(values, PowerValue(z, watt, 0, time.Now()))
		}
		return values, nil
	}}
	p := NewPoller(sensor, PollOptions{Every: time.Hour})
	defer func() {
		assert.NoError(t, p.Close())
	}()
	step := func() {
		if _, err := p.Read(context.Background(), Sample{}); err != nil {
			t.Error(err)
		}
	}
	step()
	<-polled
	step()
	assert.Zero(t, allocs.Count(1000, step))
}

func FuzzPolledZone(f *testing.F) {
	f.Add(uint64(1000), int64(100*watt), uint64(2000), int64(200*watt), int64(time.Second), int64(10*time.Second))
	f.Add(uint64(math.MaxUint64), int64(-1), uint64(0), int64(math.MaxInt64), int64(-1), int64(-time.Hour))
	f.Add(uint64(0), int64(0), uint64(math.MaxUint64), int64(math.MinInt64), int64(math.MaxInt64), int64(math.MaxInt64))
	f.Fuzz(func(t *testing.T, raw1 uint64, power1 int64, raw2 uint64, power2, average, elapsed int64) {
		z := newPolledZone(platform("any"), time.Minute)
		at := after(0)
		for i, v := range []Value{
			EnergyValue(nil, units.Energy(raw1), at), PowerValue(nil, power1, time.Duration(average), at),
			PowerValue(nil, power2, time.Duration(average), at), EnergyValue(nil, units.Energy(raw2), at),
			FailedValue(nil, errBroken), PowerValue(nil, power1, 0, at), EnergyValue(nil, units.Energy(raw1), at),
		} {
			v.at = at
			before := z.reading
			z.take(&v, time.Second)
			if r := z.reading; r.Total < before.Total || r.Unmeasured < before.Unmeasured || r.Err != nil && !r.At.Equal(before.At) {
				t.Fatalf("value %d: from %+v to %+v", i, before, r)
			}
			at = at.Add(time.Duration(elapsed))
		}
	})
}

func TestAPollPrecedesARead(t *testing.T) {
	for _, every := range []time.Duration{time.Second, 2500 * time.Millisecond} { // between Reads
		synctest.Test(t, func(t *testing.T) {
			zone := &Zone{ID: "card", Kind: GPU}
			p := NewPoller(alignedSensor{zone}, PollOptions{Name: "test", Every: time.Second, Lead: 50 * time.Millisecond})
			defer func() { assert.NoError(t, p.Close()) }()
			time.Sleep(300 * time.Millisecond)
			var ages []time.Duration
			for range 10 {
				readings, err := p.Read(t.Context(), Sample{At: time.Now()})
				require.NoError(t, err)
				for i := range readings {
					ages = append(ages, time.Since(readings[i].At))
				}
				time.Sleep(every)
			}
			if every == time.Second {
				assert.Equal(t, slices.Repeat([]time.Duration{50 * time.Millisecond}, 6), ages[len(ages)-6:])
			} else {
				assert.Less(t, slices.Max(ages), 2*time.Second, "polls go on")
			}
		})
	}
}

type alignedSensor struct{ zone *Zone }

func (s alignedSensor) Poll(context.Context) ([]Value, error) {
	return []Value{PowerValue(s.zone, 1, 0, time.Now())}, nil
}

func (alignedSensor) Close() error { return nil }
