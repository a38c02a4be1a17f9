// SPDX-License-Identifier: Apache-2.0

package power

import (
	"context"
	"errors"
	"io/fs"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
)

// fake is a meter whose readings the test sets.
type fake struct {
	readings []Reading
	err      error
	reads    int
	closed   int
	wrap     time.Duration
}

func (f *fake) Read(context.Context, Sample) ([]Reading, error) { f.reads++; return f.readings, f.err }
func (f *fake) Close() error                                    { f.closed++; return f.err }
func (f *fake) SoonestWrap() time.Duration                      { return f.wrap }

// has gives the meter readable zones, one of each kind.
func (f *fake) has(id string, kinds ...Kind) *fake {
	for _, k := range kinds {
		f.readings = append(f.readings, Reading{Zone: &Zone{ID: id + ":" + string(k), Kind: k}})
	}
	return f
}

var errUnreadable = errors.New("cannot be read")

func (f *fake) fail(k Kind, err error) {
	for i := range f.readings {
		if f.readings[i].Zone.Kind == k {
			f.readings[i].Err = err
		}
	}
}

// setOf returns a set of two sensors and a model.
func setOf(first, second, model *fake) *Set {
	return NewSet(Member{Name: "first", Meter: first}, Member{Name: "second", Meter: second},
		Member{Name: "model", Meter: model, StandsIn: true})
}

// expectZones reads the set and compares the IDs of the zones.
func expectZones(t *testing.T, s *Set, want ...string) {
	t.Helper()
	var got []string
	for _, r := range s.Read(context.Background(), Sample{}) {
		got = append(got, r.Zone.ID)
	}
	assert.Equal(t, want, got)
}

func expectFailed(t *testing.T, s *Set, want ...string) {
	t.Helper()
	var got []string
	for _, r := range s.Failed() {
		got = append(got, r.Zone.ID)
	}
	assert.Equal(t, want, got)
}

// expectTook compares which zone kinds each meter provided in the last read.
func expectTook(t *testing.T, s *Set, want ...[]Kind) {
	t.Helper()
	for i, st := range s.Status() {
		assert.ElementsMatch(t, want[i], st.Took, st.Name)
	}
}

func TestEachKindHasTheZonesOfThePreferredMeter(t *testing.T) {
	first, second := new(fake).has("first", Package, PSys), new(fake).has("second", Package, DRAM)
	s := setOf(first, second, new(fake).has("model", Package))
	expectZones(t, s, "first:package", "first:psys", "second:dram")
	expectTook(t, s, []Kind{Package, PSys}, []Kind{DRAM}, nil)
	expectZones(t, s, "first:package", "first:psys", "second:dram")
	expectTook(t, s, nil, nil, nil)
	for i, want := range []bool{true, true, false} {
		assert.Equal(t, want, s.Status()[i].InUse, i)
	}
}

func TestAModelIsUsedOnlyUntilTheSensorCanBeRead(t *testing.T) {
	first, model := new(fake).has("first", Package, DRAM), new(fake).has("model", Package)
	s := setOf(first, new(fake), model)
	first.fail(Package, errUnreadable)
	expectZones(t, s, "first:dram", "model:package")
	expectFailed(t, s, "first:package")
	expectTook(t, s, []Kind{DRAM}, nil, []Kind{Package})
	dram := s.readings[0].Zone

	first.fail(Package, nil)
	expectZones(t, s, "first:package", "first:dram")
	expectFailed(t, s)
	expectTook(t, s, []Kind{Package}, nil, nil)
	if s.Status()[2].InUse || s.readings[1].Zone != dram {
		t.Errorf("model in use: %t; dram is another zone: %t", s.Status()[2].InUse, s.readings[1].Zone != dram)
	}

	first.fail(Package, errUnreadable)
	expectZones(t, s, "first:package", "first:dram")
	expectFailed(t, s, "first:package")
	first.readings = nil
	expectZones(t, s)
}

func TestAModelOfTheWholeMachineIsUsedBesidePSys(t *testing.T) {
	s := setOf(new(fake).has("first", PSys), new(fake), new(fake).has("model", Platform))
	expectZones(t, s, "first:psys", "model:platform")
}

// A model has a package and memory. Which of them is used depends on what else can be read, then and later.
func TestAModelOfPackageAndMemoryStandsInForWhatNothingMeasures(t *testing.T) {
	const pkg, dram = "model:package", "model:dram"
	appears := func(kinds ...Kind) func(*fake) { return func(sensor *fake) { sensor.has("sensor", kinds...) } }
	fails := func(kinds ...Kind) func(*fake) {
		return func(sensor *fake) {
			for _, k := range kinds {
				sensor.fail(k, errUnreadable)
			}
		}
	}
	vanishes := func(sensor *fake) { sensor.readings = nil }
	type step struct {
		does func(*fake)
		want []string
	}
	for name, steps := range map[string][]step{
		"nothing is measured":               {{appears(), []string{pkg, dram}}},
		"the package is measured":           {{appears(Package), []string{"sensor:package", dram}}},
		"the memory is measured":            {{appears(DRAM), []string{"sensor:dram", pkg}}},
		"both are measured":                 {{appears(Package, DRAM), []string{"sensor:package", "sensor:dram"}}},
		"psys is measured":                  {{appears(PSys), []string{"sensor:psys"}}},
		"platform is measured":              {{appears(Platform), []string{"sensor:platform"}}},
		"package and platform are measured": {{appears(Package, Platform), []string{"sensor:package", "sensor:platform"}}},
		"package and psys are measured":     {{appears(Package, PSys), []string{"sensor:package", "sensor:psys"}}},
		"a graphics card is measured":       {{appears(GPU), []string{"sensor:gpu", pkg, dram}}},
		"the package's sensor appears late": {
			{appears(), []string{pkg, dram}},
			{appears(Package), []string{"sensor:package", dram}},
			{fails(Package), []string{"sensor:package", dram}},
		},
		"the memory's sensor appears late and is lost": {
			{appears(Package), []string{"sensor:package", dram}},
			{appears(DRAM), []string{"sensor:package", "sensor:dram"}},
			{fails(DRAM), []string{"sensor:package", "sensor:dram"}},
			{vanishes, nil},
		},
		"the whole machine's sensor appears late and is lost": {
			{appears(Package), []string{"sensor:package", dram}},
			{appears(Platform), []string{"sensor:package", "sensor:platform"}},
			{fails(Platform), []string{"sensor:package", "sensor:platform"}},
			{vanishes, nil},
		},
		"the memory's sensor cannot be read": {
			{func(sensor *fake) { sensor.has("sensor", Package, DRAM).fail(DRAM, errUnreadable) }, []string{"sensor:package", dram}},
			{appears(Platform), []string{"sensor:package", "sensor:dram", "sensor:platform"}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			sensor := new(fake)
			s := setOf(sensor, new(fake), new(fake).has("model", Package, DRAM))
			s.meters[2].Completes = true
			for _, step := range steps {
				step.does(sensor)
				expectZones(t, s, step.want...)
				expectZones(t, s, step.want...)
			}
		})
	}
}

// family returns a set of two sensors that read the same registers, another one and a model.
func family(first, second, third, model *fake) *Set {
	return NewSet(Member{Name: "first", Meter: first, Family: "rapl"}, Member{Name: "second", Meter: second, Family: "rapl"},
		Member{Name: "third", Meter: third}, Member{Name: "model", Meter: model, StandsIn: true})
}

func TestOfAFamilyOnlyTheFirstThatCanBeReadIsUsed(t *testing.T) {
	first, second := new(fake).has("first", Package), new(fake).has("second", Package, DRAM, PSys)
	s := family(first, second, new(fake).has("third", DRAM), new(fake))
	expectZones(t, s, "first:package", "third:dram")
	expectZones(t, s, "first:package", "third:dram")
	s.closing.Wait()
	if second.reads != 0 || second.closed != 1 {
		t.Errorf("the second one of the family was read %d times and closed %d times", second.reads, second.closed)
	}
	first.fail(Package, errUnreadable)
	expectZones(t, s, "first:package", "third:dram")
	expectFailed(t, s, "first:package")
	if err := s.Close(); err != nil || first.closed != 1 || second.closed != 1 {
		t.Errorf("closed %d and %d times, error %v", first.closed, second.closed, err)
	}
}

func TestAFamilyIsReadByTheSecondWhileTheFirstCannotBeRead(t *testing.T) {
	first, second := new(fake).has("first", Package, DRAM, Core), new(fake).has("second", Package, DRAM)
	for _, k := range []Kind{Package, DRAM, Core} {
		first.fail(k, errUnreadable)
	}
	s := family(first, second, new(fake), new(fake).has("model", Package))
	expectZones(t, s, "second:package", "second:dram")
	expectFailed(t, s) // the same registers are read
	for i, want := range []bool{true, false, false, false} {
		assert.Equal(t, want, s.Status()[i].Replaced, i)
	}

	first.fail(DRAM, nil) // takes over, with what it can read
	expectZones(t, s, "first:dram", "first:core", "model:package")
	expectFailed(t, s, "first:package", "first:core")
	expectTook(t, s, []Kind{DRAM}, nil, nil, []Kind{Package})
	s.closing.Wait()
	if second.reads != 1 || second.closed != 1 || s.Status()[0].Replaced || !s.Status()[1].Replaced {
		t.Errorf("the second one was read %d times and closed %d times", second.reads, second.closed)
	}
	first.fail(Package, nil)
	expectZones(t, s, "first:package", "first:dram", "first:core")
}

func TestAFamilyThatNobodyCanReadIsThatOfTheFirst(t *testing.T) {
	first, second := new(fake).has("first", Package), new(fake).has("second", Package)
	first.fail(Package, errUnreadable)
	second.fail(Package, errUnreadable)
	s := family(first, second, new(fake), new(fake))
	expectZones(t, s, "first:package")
	expectFailed(t, s, "first:package", "second:package")
	if first.reads != 1 || second.reads != 1 {
		t.Errorf("read %d and %d times", first.reads, second.reads)
	}
}

func TestAMeterOfOneKindIsClosedOnceAPreferredOneHasReadTheKind(t *testing.T) {
	first, second := new(fake).has("first", Platform), new(fake).has("second", Platform)
	s := NewSet(Member{Name: "first", Meter: first, Only: Platform}, Member{Name: "second", Meter: second, Only: Platform})
	first.fail(Platform, errUnreadable)
	expectZones(t, s, "second:platform")
	expectZones(t, s, "second:platform")

	first.fail(Platform, nil)
	expectZones(t, s, "first:platform")
	first.fail(Platform, errUnreadable)
	expectZones(t, s, "first:platform")
	s.closing.Wait()
	if second.reads != 2 || second.closed != 1 || first.closed != 0 {
		t.Errorf("read %d times, closed %d times; the preferred one closed %d times", second.reads, second.closed, first.closed)
	}
	if st := s.Status()[1]; !st.Replaced || st.InUse || st.Err != nil || len(st.Readings) > 0 {
		t.Errorf("%+v", st)
	}
	if err := s.Close(); err != nil || second.closed != 1 || first.closed != 1 {
		t.Errorf("closed %d and %d times, error %v", first.closed, second.closed, err)
	}
}

// hanging is a meter that takes its time to close.
type hanging struct {
	fake
	takes time.Duration
}

func (h *hanging) Close() error { time.Sleep(h.takes); return h.fake.Close() }

func TestMetersThatHangAreNotWaitedForInARead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		first, second, third := new(fake), &hanging{takes: 3 * time.Second}, &hanging{takes: 2 * time.Second}
		s := NewSet(Member{Name: "first", Meter: first}, Member{Name: "second", Meter: second, Only: Platform}, Member{Name: "third", Meter: third})
		second.has("second", Platform)
		expectZones(t, s, "second:platform")
		first.has("first", Platform)
		began := time.Now()
		expectZones(t, s, "first:platform")
		assert.Zero(t, time.Since(began))
		if err := s.Close(); err != nil || second.closed != 1 || third.closed != 1 {
			t.Errorf("closed %d and %d times, error %v", second.closed, third.closed, err)
		}
		assert.Equal(t, 3*time.Second, time.Since(began))
	})
}

func TestTheStatusOfAMeterHasItsErrorAndAllItsZones(t *testing.T) {
	first, second := new(fake).has("first", Package), new(fake).has("second", Package)
	second.err = fs.ErrNotExist
	s := setOf(first, second, new(fake))
	expectZones(t, s, "first:package")
	if st := s.Status()[1]; st.Name != "second" || !errors.Is(st.Err, fs.ErrNotExist) || len(st.Readings) != 1 || st.InUse {
		t.Errorf("%+v", st)
	}
}

func TestTheSoonestWrapIsThatOfAMeterInUse(t *testing.T) {
	first, second := new(fake).has("first", Package), new(fake).has("second", DRAM)
	first.wrap, second.wrap = 2*time.Minute, time.Minute
	model := new(fake).has("model", Package)
	model.wrap = time.Second
	s := setOf(first, second, model)
	assert.Zero(t, s.SoonestWrap())
	second.fail(DRAM, errUnreadable)
	s.Read(context.Background(), Sample{})
	assert.Equal(t, 2*time.Minute, s.SoonestWrap())
	second.fail(DRAM, nil)
	s.Read(context.Background(), Sample{})
	assert.Equal(t, time.Minute, s.SoonestWrap())
}

func TestCloseClosesAllMeters(t *testing.T) {
	first, second := &fake{err: errUnreadable}, &fake{err: fs.ErrClosed}
	err := setOf(first, second, new(fake)).Close()
	if first.closed != 1 || second.closed != 1 || !errors.Is(err, errUnreadable) || !errors.Is(err, fs.ErrClosed) {
		t.Errorf("closed %d and %d times, error %v", first.closed, second.closed, err)
	}
}

func TestReadingASetAllocatesNothing(t *testing.T) {
	first := new(fake).has("first", Package, DRAM, PSys)
	first.fail(DRAM, errUnreadable)
	s := setOf(first, new(fake), new(fake).has("model", Package, DRAM))
	s.Read(context.Background(), Sample{})
	assert.Zero(t, testing.AllocsPerRun(100, func() { s.Read(context.Background(), Sample{}) }))
}
