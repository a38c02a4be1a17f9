// SPDX-License-Identifier: Apache-2.0

package power

import (
	"context"
	"errors"
	"io/fs"
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

// scripted is a Source that does what a test says.
type scripted struct {
	poll   func(context.Context) ([]Shown, error)
	close  func() error
	polls  []time.Time // when they began
	closed int
}

func (s *scripted) Answer(ctx context.Context, _ Sample) (Answer, error) {
	ordered()
	s.polls = append(s.polls, time.Now())
	shown, err := s.poll(ctx)
	return Answer{Shown: shown}, err
}

func (s *scripted) Close() error {
	s.closed++
	if s.close != nil {
		return s.close()
	}
	return nil
}

// asked returns a poller of a function, which a synctest bubble outlives.
func asked(t *testing.T, options PollOptions, poll func(context.Context) ([]Shown, error)) (*Poller, *scripted) {
	t.Helper()
	sensor := &scripted{poll: poll}
	p := Poll(sensor, options)
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
	_, err := read(t, p)
	assert.NoError(t, err)
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

func TestAPollerReturnsWhatTheLastPollFound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		zone := platform("psu")
		p, sensor := asked(t, PollOptions{Every: 5 * time.Second}, func(context.Context) ([]Shown, error) {
			return []Shown{powerOf(zone, 100*watt)}, nil
		})
		pass(time.Hour)
		assert.Empty(t, sensor.polls, "before the first read")
		began := time.Now()
		if readings, err := read(t, p); len(readings) > 0 || err != nil {
			t.Errorf("before the first poll has ended: %v, %v", readings, err)
		}
		want := Reading{Zone: zone, At: began, Event: Appeared, polled: true}
		assert.Equal(t, want, one(t, p))
		want.Event = NoEvent
		pass(4 * time.Second)
		assert.Equal(t, want, one(t, p))
		pass(3 * time.Second)
		want.Total, want.At = 500*units.Joule, began.Add(5*time.Second)
		assert.Equal(t, want, one(t, p))
	})
}

func TestAPollerOfNothingKnowsItAtOnceAndLooksEachMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := &scripted{poll: func(context.Context) ([]Shown, error) { return nil, ErrNoZones }}
		finds, missing := 0, fs.ErrNotExist
		p := Poll(source, PollOptions{Find: func() error { finds++; return missing }})
		for s := range 119 {
			if _, err := p.Read(t.Context(), Sample{At: after(time.Duration(s) * time.Second)}); !errors.Is(err, fs.ErrNotExist) {
				t.Fatalf("after %d s: %v", s, err)
			}
		}
		synctest.Wait()
		assert.Equal(t, 2, finds)
		assert.Empty(t, source.polls)
		missing = nil
		for s := range 3 {
			_, err := p.Read(t.Context(), Sample{At: after(time.Duration(120+s) * time.Second)})
			if synctest.Wait(); (err != nil) != (s > 0) {
				t.Errorf("after %d s: %v", 120+s, err)
			}
		}
		assert.Equal(t, 3, finds)
		assert.Len(t, source.polls, 1)
		if err := p.Close(); err != nil || source.closed != 1 {
			t.Error(err)
		}
	})
}

func TestAPollOfHalfAMinuteDelaysNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		zone := platform("bmc")
		p, sensor := asked(t, PollOptions{Every: 15 * time.Second}, func(ctx context.Context) ([]Shown, error) {
			select {
			case <-time.After(30 * time.Second):
				return []Shown{powerOf(zone, 100*watt)}, nil
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
		p, sensor := asked(t, PollOptions{Every: 10 * time.Second}, func(context.Context) ([]Shown, error) {
			if broken {
				return nil, errBroken
			}
			return nil, nil
		})
		start(t, p)
		pass(20 * time.Minute)
		_, err := read(t, p)
		assert.ErrorIs(t, err, errBroken)
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
		_, err = read(t, p)
		assert.NoError(t, err, "after it recovered")
		got := pauses()
		assert.Equal(t, 10*s, slices.Max(got), got)
	})
}

// Errors of timeouts differ by where they strike. A changed text is logged again.
func TestAPollWithoutAnswerIsOneError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		zone, silent, polls := platform("bmc"), false, 0
		p, _ := asked(t, PollOptions{Name: "redfish", Every: 10 * time.Second, Timeout: 20 * time.Second}, func(ctx context.Context) ([]Shown, error) {
			if polls++; silent {
				<-ctx.Done()
				return nil, errors.Join(ctx.Err(), errors.New(strings.Repeat("read: ", polls)))
			}
			return []Shown{powerOf(zone, 100*watt)}, nil
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
			require.EqualError(t, r.Err, "redfish meter: no answer within 20s")
			require.Equal(t, before.At, r.At)
			require.Equal(t, 1000*units.Joule, r.Total, "the poll before was good")
		}
	})
}

// A sensor that ignores its context is a mistake, and must not delay the others.
func TestAPollThatIgnoresItsContextBlocksNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		zone, release, hang := platform("bmc"), make(chan struct{}), false
		sensor := &scripted{poll: func(context.Context) ([]Shown, error) {
			if hang {
				<-release
			}
			return []Shown{powerOf(zone, 100*watt)}, nil
		}}
		p := Poll(sensor, PollOptions{Name: "ipmi", Every: 5 * time.Second, Timeout: 10 * time.Second})
		start(t, p)
		pass(time.Second)
		hang = true
		pass(20 * time.Second) // the poll at 5 s has 10 s, and a second to return
		for range 100 {
			assert.EqualError(t, one(t, p).Err, "ipmi meter: no answer within 10s")
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
		assert.EqualError(t, p.Close(), "ipmi meter: the sensor has not returned from its last poll")
		assert.Equal(t, maxClose, time.Since(began))
		assert.Zero(t, sensor.closed, "the sensor was closed during its poll")
		close(release)
		synctest.Wait()
		assert.Equal(t, 1, sensor.closed, "the sensor was not closed after its poll")
	})
}

func TestHungPollersCloseSideBySide(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hangs := func(ctx context.Context) ([]Shown, error) {
			<-ctx.Done()
			time.Sleep(2 * time.Second)
			return nil, nil
		}
		a, b := Poll(&scripted{poll: hangs, close: func() error { return errBroken }}, PollOptions{}), Poll(&scripted{poll: hangs}, PollOptions{})
		start(t, a)
		start(t, b)
		began := time.Now()
		assert.ErrorIs(t, ClosePollers(a, b), errBroken)
		assert.Equal(t, 2*time.Second, time.Since(began))
		_, err := a.Read(t.Context(), Sample{})
		assert.ErrorIs(t, err, fs.ErrClosed)
		never := &scripted{}
		p := Poll(never, PollOptions{})
		assert.NoError(t, errors.Join(p.Close(), p.Close()))
		assert.Equal(t, 1, never.closed, "a poller that was never read")
	})
}

// script polls once a second what a test sets.
func script(t *testing.T, options PollOptions) (*shower, func(...Shown) []Reading) {
	t.Helper()
	a := &shower{}
	options.Every = time.Second
	p, _ := asked(t, options, func(context.Context) ([]Shown, error) { return a.answer.Shown, a.err })
	start(t, p)
	pass(500 * time.Millisecond) // polls are in the middle of each second
	return a, func(shown ...Shown) []Reading {
		t.Helper()
		a.answer.Shown = shown
		pass(time.Second)
		readings, _ := read(t, p)
		return readings
	}
}

func TestAZoneThatFailsHasItsErrorAndKeepsItsTotal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, poll := script(t, PollOptions{LongestGap: 10 * time.Second})
		zone, other := platform("psu-1"), platform("psu-2")
		poll(powerOf(zone, 100*watt), powerOf(other, watt))
		poll(powerOf(zone, 100*watt), powerOf(other, watt))
		for i := range 5 {
			readings := poll(Shown{Zone: zone, Err: errBroken}, powerOf(other, watt))
			if r := readings[0]; !errors.Is(r.Err, errBroken) || r.Total != 100*units.Joule || r.Unmeasured != 0 {
				t.Errorf("%+v, want its error within the longest gap, and the total before", r)
			}
			if r := readings[1]; r.Err != nil || r.Total != units.Energy(i+2)*units.Joule {
				t.Errorf("the other zone: %+v", r)
			}
		}
		if r := poll(powerOf(zone, 300*watt))[0]; r.Err != nil || r.Total != 100*units.Joule+6*200*units.Joule || r.Gaps != 0 {
			t.Errorf("back within the longest gap: %+v", r)
		}
		a.err = errBroken
		for _, r := range poll() {
			assert.ErrorIs(t, r.Err, errBroken, r)
		}
		pass(30 * time.Second)
		a.err = nil
		pass(30 * time.Second) // the sensor is asked less often by now
		if r := poll(powerOf(zone, 300*watt))[0]; r.Err != nil || r.Gaps != 1 || r.Total != 1300*units.Joule || r.Unmeasured < 15*time.Second {
			t.Errorf("back after a longer gap: %+v, want nothing assumed", r)
		}
	})
}

func TestAZoneThatIsNoLongerListedIsLeftOutAfterTheLongestGap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, poll := script(t, PollOptions{LongestGap: 5 * time.Second})
		stays, goes := platform("a"), platform("b")
		both := func(joules units.Energy) []Shown {
			return []Shown{counterOf(stays, joules*units.Joule), counterOf(goes, joules*units.Joule)}
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

func TestAReadOfAPollerAllocatesNothing(t *testing.T) {
	zones := []*Zone{platform("a"), platform("b"), platform("c")}
	polled := make(chan struct{}, 1)
	sensor := &scripted{poll: func(context.Context) ([]Shown, error) {
		defer func() { polled <- struct{}{} }()
		var values []Shown
		for _, z := range zones {
			values = append(values, powerOf(z, watt))
		}
		return values, nil
	}}
	p := Poll(sensor, PollOptions{Every: time.Hour})
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

func TestAPollPrecedesARead(t *testing.T) {
	for _, every := range []time.Duration{time.Second, 2500 * time.Millisecond} { // between Reads
		synctest.Test(t, func(t *testing.T) {
			zone := &Zone{ID: "card", Kind: GPU}
			p := Poll(&scripted{poll: func(context.Context) ([]Shown, error) { return []Shown{powerOf(zone, 1)}, nil }},
				PollOptions{Name: "test", Every: time.Second, Lead: 50 * time.Millisecond})
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
