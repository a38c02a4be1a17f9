// SPDX-License-Identifier: Apache-2.0

package power

import (
	"context"
	"errors"
	"io/fs"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/energyreceiver/energyreceiver/internal/units"
)

// fake is a meter whose readings the test sets.
type fake struct {
	readings []Reading
	err      error
	reads    int
	closed   int
	closes   time.Duration // how long Close takes
}

func (f *fake) Read(context.Context, Sample) ([]Reading, error) { f.reads++; return f.readings, f.err }
func (f *fake) Close() error                                    { time.Sleep(f.closes); f.closed++; return f.err }

var errUnreadable = errors.New("cannot be read")

// scene is a set whose meters show the zones that a text lists.
type scene struct {
	*Set
	t      testing.TB
	meters map[string]*fake
	zones  map[string]*Zone
}

// newScene returns a set of meters such as "ipmi", "perf/rapl" of a family, "lib=gpu" for one kind,
// "model*" that stands in and "model+" that stands in and completes sensors.
func newScene(t testing.TB, meters string) *scene {
	s := &scene{t: t, meters: map[string]*fake{}, zones: map[string]*Zone{}}
	var members []Member
	for _, word := range strings.Fields(meters) {
		name, family, _ := strings.Cut(word, "/")
		name, only, _ := strings.Cut(name, "=")
		m := Member{Family: family, Only: Kind(only), StandsIn: strings.ContainsAny(name, "*+"), Completes: strings.HasSuffix(name, "+")}
		m.Name = strings.TrimRight(name, "*+")
		s.meters[m.Name] = new(fake)
		m.Meter = s.meters[m.Name]
		members = append(members, m)
	}
	s.Set = NewSet(members...)
	return s
}

// shows sets the zones of all meters: "rapl:dram" is a zone of the meter rapl, "rapl:dram!" one that
// cannot be read, "lib:gpu@3" a card with a PCI address, and "cray:gpu@a3" one without.
func (s *scene) shows(zones string) {
	for _, m := range s.meters {
		m.readings = nil
	}
	for _, word := range strings.Fields(zones) {
		id, unreadable := strings.CutSuffix(word, "!")
		if s.zones[id] == nil {
			s.zones[id] = newZone(id)
		}
		r := Reading{Zone: s.zones[id]}
		if unreadable {
			r.Err = errUnreadable
		}
		meter, _, _ := strings.Cut(id, ":")
		s.meters[meter].readings = append(s.meters[meter].readings, r)
	}
}

func newZone(id string) *Zone {
	_, name, _ := strings.Cut(id, ":")
	kind, card, _ := strings.Cut(name, "@")
	z := &Zone{ID: id, Kind: Kind(kind)}
	switch {
	case strings.HasPrefix(card, "a"):
		z.Domain = units.GPU("accel" + card)
	case card != "":
		z.Domain = units.GPU("0000:0" + card + ":00.0")
	}
	return z
}

// expect reads the set while the meters show zones, and compares the zones that it reports and those that failed.
func (s *scene) expect(shows, reports, failed string) {
	s.t.Helper()
	s.shows(shows)
	got := idsOf(s.Read(context.Background(), Sample{}))
	assert.Equal(s.t, reports, got, "reported of %s", shows)
	assert.Equal(s.t, failed, idsOf(s.Failed()), "failed of %s", shows)
}

// expectTook compares the zone kinds that the last Read gave to a meter.
func (s *scene) expectTook(meter string, want ...Kind) {
	s.t.Helper()
	i := slices.IndexFunc(s.Status(), func(st Status) bool { return st.Name == meter })
	assert.ElementsMatch(s.t, want, s.Status()[i].Took, meter)
}

func idsOf(readings []Reading) string {
	var ids []string
	for i := range readings {
		ids = append(ids, readings[i].Zone.ID)
	}
	return strings.Join(ids, " ")
}

func TestTheStatusOfAMeter(t *testing.T) {
	s := newScene(t, "first/rapl second/rapl third model*")
	s.meters["third"].err = fs.ErrNotExist
	s.expect("first:package! second:package third:package model:package", "second:package", "")
	for i, want := range []struct {
		readings        int
		err             error
		inUse, replaced bool
	}{{1, nil, false, true}, {1, nil, true, false}, {1, fs.ErrNotExist, false, false}, {1, nil, false, false}} {
		st := &s.Status()[i]
		assert.Equal(t, want.err, st.Err, st.Name)
		if len(st.Readings) != want.readings || st.InUse != want.inUse || st.Replaced != want.replaced {
			t.Errorf("%s: %d readings, in use %t, replaced %t", st.Name, len(st.Readings), st.InUse, st.Replaced)
		}
	}
	s.expect("first:package second:package", "first:package", "")
	if st := s.Status()[1]; !st.Replaced || st.InUse || st.Err != nil || len(st.Readings) > 0 {
		t.Errorf("a closed meter: %+v", st)
	}
}

func TestAMeterTakesAKindOnce(t *testing.T) {
	s := newScene(t, "lib hwmon model*")
	const shows = "lib:gpu@1 lib:gpu@2 hwmon:gpu@2 hwmon:gpu@3 hwmon:package! model:package"
	s.expect(shows, "lib:gpu@1 lib:gpu@2 hwmon:gpu@3 model:package", "hwmon:package")
	s.expectTook("lib", GPU)
	s.expectTook("hwmon", GPU)
	s.expectTook("model", Package)
	s.expect(shows+" hwmon:gpu@1", "lib:gpu@1 lib:gpu@2 hwmon:gpu@3 model:package", "hwmon:package") // the library's
	for _, meter := range []string{"lib", "hwmon", "model"} {
		s.expectTook(meter)
	}
	s.expect(shows+" hwmon:gpu@4", "lib:gpu@1 lib:gpu@2 hwmon:gpu@3 hwmon:gpu@4 model:package", "hwmon:package")
	s.expectTook("hwmon", GPU)
}

func TestMetersThatHangAreNotWaitedForInARead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t, "first second=platform third")
		s.meters["second"].closes, s.meters["third"].closes = 3*time.Second, 2*time.Second
		began := time.Now()
		s.expect("first:platform", "first:platform", "")
		assert.Zero(t, time.Since(began))
		assert.NoError(t, s.Close())
		assert.Equal(t, 3*time.Second, time.Since(began))
	})
}

func TestCloseReturnsTheErrorsOfAllMeters(t *testing.T) {
	s := newScene(t, "first second third")
	s.meters["first"].err, s.meters["second"].err = errUnreadable, fs.ErrClosed
	err := s.Close()
	assert.ErrorIs(t, err, errUnreadable)
	assert.ErrorIs(t, err, fs.ErrClosed)
	assert.Equal(t, 1, s.meters["third"].closed)
}

func TestTheSoonestWrapIsThatOfAReportedZone(t *testing.T) {
	s := newScene(t, "first second model*")
	s.shows("first:package second:package second:dram model:package")
	for name, joules := range map[string]units.Energy{"first": 120_000, "second": 60_000, "model": 1000} {
		s.meters[name].readings[0].Raw = Raw{Range: joules * units.Joule, MaxWatts: 1000}
	}
	assert.Zero(t, s.SoonestWrap())
	s.Read(context.Background(), Sample{})
	assert.Equal(t, 2*time.Minute, s.SoonestWrap())
	s.meters["second"].readings[1].Raw = s.meters["second"].readings[0].Raw
	s.Read(context.Background(), Sample{})
	assert.Equal(t, time.Minute, s.SoonestWrap())
}

func TestAPollerReadsItsCountersBeforeTheyWrap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shown := []Shown{{Zone: platform("vm"), Range: 60_000 * units.Joule}}
		poller, _ := asked(t, PollOptions{}, func(context.Context) ([]Shown, error) { return shown, nil })
		direct := Direct("powercap", &shower{answer: Answer{Shown: shown}})
		for meter, want := range map[Meter]time.Duration{poller: 0, direct: 2 * time.Second} {
			s := NewSet(Member{Meter: meter})
			s.Read(t.Context(), Sample{At: time.Now()})
			pass(time.Second)
			readings := s.Read(t.Context(), Sample{At: time.Now()})
			require.Len(t, readings, 1)
			assert.Equal(t, want, s.SoonestWrap())
			assert.Equal(t, shown[0].Range, readings[0].Raw.Range, "another process needs the range to resume")
		}
	})
}

// The set chooses, corrects, resumes, separates a module and derives other.
func TestASetAllocatesNothing(t *testing.T) {
	s := newScene(t, "first/rapl second/rapl lib hwmon model+")
	for i := range s.Set.meters {
		s.Set.meters[i].corrections.of = correctedBy(Correction{Lag: time.Second, Factor: 1_190_000, Offset: -3})
	}
	s.Remainder = new(Remainder)
	s.shows("first:package first:dram! first:platform lib:gpu@1 lib:gpu@2 hwmon:gpu@2 hwmon:gpu@3 model:package model:dram")
	s.zones["lib:gpu@1"].Includes = "package-0"
	var past Past
	second := time.Duration(0)
	read := func() {
		second++
		for _, m := range s.meters {
			for i := range m.readings {
				r := &m.readings[i]
				r.Zone.Method, r.At, r.Total = Measured, after(second*time.Second), units.Energy(second)*units.Joule
				r.Raw = Raw{Energy: r.Total, MaxWatts: 1000, At: r.At}
			}
		}
		readAfter(s.Set, second*time.Second)
		s.Past(&past)
	}
	read()
	s.Resume(&past)
	read()
	assert.NotEmpty(t, s.Resumptions())
	assert.Zero(t, testing.AllocsPerRun(1000, read))
	assert.True(t, past.Other.Known)
}
