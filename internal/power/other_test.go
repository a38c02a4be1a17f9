// SPDX-License-Identifier: Apache-2.0

package power

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/energyreceiver/energyreceiver/internal/units"
)

// node is a machine whose zones the test reads, at times after the start.
type node struct {
	testing.TB
	remainder Remainder
	readings  []Reading
}

// zone adds a measured zone and returns its number.
func (n *node) zone(k Kind) int {
	n.readings = append(n.readings, Reading{Zone: &Zone{ID: string(k), Kind: k, Method: Measured, MaxWatts: 1000}})
	return len(n.readings) - 1
}

// count sets the total of a zone, in joules, as read at a time in seconds.
func (n *node) count(zone int, seconds, joules float64) {
	r := &n.readings[zone]
	r.At, r.Total = after(time.Duration(seconds*float64(time.Second))), units.Energy(joules*float64(units.Joule))
}

// read reads the machine at a time in seconds and returns the zone other, nil if there is none.
func (n *node) read(seconds float64) *Reading {
	readings := n.remainder.add(n.readings[:len(n.readings):len(n.readings)], after(time.Duration(seconds*float64(time.Second))))
	if len(readings) == len(n.readings) {
		return nil
	}
	return &readings[len(readings)-1]
}

// expect reads the machine and compares the total of the zone other, when it was brought up to date, and the deficit.
func (n *node) expect(seconds, joules, at, deficit float64) {
	n.Helper()
	r := n.read(seconds)
	if r == nil {
		n.Fatalf("after %g s: no zone", seconds)
	}
	if got := r.At.Sub(after(0)).Seconds(); r.Total.Joules() != joules || got != at || n.remainder.Deficit().Joules() != deficit {
		n.Errorf("after %g s: %g J at %g s, deficit %g J; want %g J at %g s, deficit %g J",
			seconds, r.Total.Joules(), got, n.remainder.Deficit().Joules(), joules, at, deficit)
	}
}

func (n *node) expectNone(seconds float64) {
	n.Helper()
	if r := n.read(seconds); r != nil {
		n.Errorf("after %g s: %+v, want no zone", seconds, *r)
	}
}

// newNode returns a machine with a platform and a package, of which the baseline is taken.
func newNode(t testing.TB) (n *node, platform, pkg int) {
	n = &node{TB: t}
	platform, pkg = n.zone(Platform), n.zone(Package)
	n.count(platform, 0, 0)
	n.count(pkg, 0, 0)
	n.expect(0, 0, 0, 0)
	return n, platform, pkg
}

func TestOtherIsThePlatformWithoutItsParts(t *testing.T) {
	n, platform, pkg := newNode(t)
	dram, gpu, core := n.zone(DRAM), n.zone(GPU), n.zone(Core)
	for _, zone := range []int{dram, gpu, core} {
		n.count(zone, 0, 5)
	}
	n.expect(0, 0, 0, 0)
	n.count(platform, 10, 1000)
	n.count(pkg, 10, 300)
	n.count(dram, 10, 55)
	n.count(gpu, 10, 105)
	n.count(core, 10, 205)
	n.expect(10, 550, 10, 0)
	want := Zone{ID: "other", Name: "other", Kind: Other, Method: Measured, Domain: units.NodeCPUs, MaxWatts: 1000}
	r := n.read(10)
	if *r.Zone != want || r.Err != nil {
		t.Errorf("%+v of %+v", *r, *r.Zone)
	}
	t.Attr("other", fmt.Sprintf("%g J", r.Total.Joules()))
}

func TestAMinuteOfShortWindowsIsRemembered(t *testing.T) {
	n, platform, pkg := newNode(t)
	for i := range 600 {
		s := float64(i+1) / 10
		n.count(pkg, s, 10*s)
		n.expect(s, 0, 0, 0)
	}
	n.count(platform, 5, 1000)
	n.expect(60.1, 950, 5, 0)
}

func TestAPartThatFailsIsWaitedForTwoMinutesAndThenIsADeficitWhenItReturns(t *testing.T) {
	n, platform, pkg := newNode(t)
	dram := n.zone(DRAM)
	n.count(dram, 0, 0)
	n.expect(0, 0, 0, 0)
	for s := 10.0; s <= 200; s += 10 {
		n.count(platform, s, 100*s)
		n.count(dram, s, 10*s)
		switch {
		case s < 130:
			n.expect(s, 0, 0, 0)
		case s == 130: // without the package
			n.expect(s, 900, 10, 0)
		default:
			n.expect(s, 90*s, s, 0)
		}
	}
	n.count(platform, 210, 21000)
	n.count(dram, 210, 2100)
	n.count(pkg, 210, 6300)
	n.expect(210, 18000, 210, 18000-(21000-2100-6300))
	n.count(platform, 220, 40000)
	n.count(dram, 220, 2200)
	n.expect(220, 18000, 210, 5400) // the package is waited for again
	n.count(pkg, 230, 6500)
	n.expect(230, 40000-2200-6400, 220, 0)
}

// A hypervisor gives a graphics card another ID every ten seconds.
func TestTracksOfVanishedZonesAreForgotten(t *testing.T) {
	n, platform, pkg := newNode(t)
	most := 0
	for second := range 1000 {
		if second%10 == 0 {
			n.readings = n.readings[:2]
			n.readings[n.zone(GPU)].Zone.ID = fmt.Sprint(second)
		}
		n.count(platform, float64(second), 100*float64(second))
		n.count(pkg, float64(second), 10*float64(second))
		n.count(2, float64(second), 7*float64(second%10))
		n.read(float64(second))
		most = max(most, len(n.remainder.tracks))
	}
	n.expect(999, (100-10)*999-100*7*9, 999, 0)
	assert.LessOrEqual(t, most, 2+62, "tracks of the last ten minutes")
}

func TestAForgottenPartIsSubtractedUntilItVanished(t *testing.T) {
	n, platform, pkg := newNode(t)
	dram := n.zone(DRAM)
	n.count(dram, 0, 0)
	n.expect(0, 0, 0, 0)
	n.count(dram, 10, 50)
	n.read(10)
	vanished := n.readings[dram]
	n.readings = n.readings[:dram]
	n.expect(611, 0, 0, 0) // the platform cannot be read
	assert.Len(t, n.remainder.tracks, 2)
	assert.Equal(t, PastOther{Known: true, Balance: -int64(50 * units.Joule)}, n.remainder.past())
	n.count(platform, 700, 1000)
	n.count(pkg, 700, 200)
	n.expect(700, 1000-200-50, 700, 0)
	n.readings = append(n.readings, vanished)
	n.count(dram, 710, 500) // what it used meanwhile is in other
	n.count(platform, 710, 2000)
	n.count(pkg, 710, 200)
	n.expect(710, 1750, 710, 0)
	n.count(dram, 720, 510)
	n.count(platform, 720, 3000)
	n.count(pkg, 720, 200)
	n.expect(720, 2740, 720, 0)
}

func TestThereIsNoOtherWithoutAWholeAndAPart(t *testing.T) {
	const whole, part = "platform or psys", "package, dram or gpu"
	for _, c := range []struct {
		kinds []Kind
		lacks string
	}{
		{[]Kind{Platform}, part}, {[]Kind{Platform, PSys, Core}, part}, {[]Kind{Package, DRAM}, whole}, {[]Kind{PSys, Other}, "package or dram"}, {nil, whole},
		{[]Kind{PSys, GPU}, "package or dram"}, {[]Kind{GPU}, whole},
	} {
		n := &node{TB: t}
		for _, k := range c.kinds {
			n.count(n.zone(k), 0, 0)
		}
		n.expectNone(0)
		assert.Equal(t, c.lacks, n.remainder.Lacks(), c.kinds)
	}
	n := &node{TB: t}
	platform, pkg := n.zone(Platform), n.zone(Package)
	n.count(platform, 0, 0)
	n.readings[pkg].Err = errUnreadable
	n.expectNone(0)
	n.count(platform, 5, 100)
	n.count(pkg, 10, 50)
	n.expect(10, 0, 5, 0)
	assert.Empty(t, n.remainder.Lacks())
}

func TestASetReportsOtherOfTheZonesThatItReports(t *testing.T) {
	s := newScene(t, "sensor model*")
	s.Remainder = new(Remainder)
	s.expect("model:dram", "model:dram", "")
	for at := range 3 {
		s.shows("sensor:package sensor:platform model:dram") // the memory's model gives way to platform
		s.zones["model:dram"].Method = Modeled
		s.meters["model"].readings[0].At = after(time.Second)
		for i, watts := range []units.Energy{10, 25} {
			r := &s.meters["sensor"].readings[i]
			r.Zone.Method, r.At, r.Total = Measured, after(time.Duration(at)*time.Second), units.Energy(at)*watts
		}
		readings := readAfter(s.Set, time.Duration(at)*time.Second)
		assert.Equal(t, "sensor:package sensor:platform other", idsOf(readings))
		assert.Equal(t, units.Energy(15*at), readings[len(readings)-1].Total)
	}
	assert.NoError(t, s.Remainder.Err())
}

func TestAPartThatIsNotMeasuredEndsOther(t *testing.T) {
	for _, method := range []Method{Modeled, Reported} {
		n, platform, pkg := newNode(t)
		measured := n.readings[pkg].Zone
		n.readings[pkg].Zone = &Zone{Kind: Package, Method: method}
		n.count(platform, 10, 1000)
		n.count(pkg, 10, 100)
		n.expectNone(10)
		assert.ErrorContains(t, n.remainder.Err(), "package is "+string(method))
		n.readings[pkg].Zone = measured
		n.count(platform, 20, 2000)
		n.count(pkg, 20, 200)
		n.expect(20, 0, 20, 0)
		assert.NoError(t, n.remainder.Err())
		n.readings = n.readings[1:]
		n.readings[0].Zone = &Zone{Kind: Package, Method: method}
		n.expectNone(30)
		assert.NoError(t, n.remainder.Err(), "there is no whole either")
	}
}

func TestADeficitIsToldOnceItIsMoreThanNoiseAndUntilItIsPaidBack(t *testing.T) {
	n, platform, pkg := newNode(t)
	second, from := 0.0, 0.0
	run := func(seconds, watts, used float64) { // since the last run
		for end := second + seconds; second < end; {
			second++
			n.count(platform, second, n.readings[platform].Total.Joules()+watts)
			from += used
			n.count(pkg, second, from)
			n.read(second)
		}
	}
	expect := func(told bool) {
		t.Helper()
		if err := n.remainder.Err(); (err != nil) != told {
			t.Errorf("after %g s: deficit %g J, error %v", second, n.remainder.Deficit().Joules(), err)
		}
	}
	run(1000, 200, 100)
	run(60, 200, 400) // a BMC that follows a minute late
	expect(false)
	run(60, 400, 200)
	run(80_000, 200, 201) // half a percent
	expect(false)
	run(900, 200, 100)
	require.Zero(t, n.remainder.Deficit())
	run(290, 200, 400)
	expect(false)
	run(20, 200, 400)
	expect(true)
	run(600, 200, 100)
	expect(true)
	run(21, 200, 100)
	expect(false)
}

func TestAClockThatIsSetBackStopsNothing(t *testing.T) {
	n, platform, pkg := newNode(t)
	n.count(platform, 100, 1000)
	n.count(pkg, 100, 100)
	n.expect(100, 900, 100, 0)
	n.count(platform, 50, 1500)
	n.count(pkg, 110, 110)
	n.expect(110, 900, 50, 0)
	n.count(platform, 60, 2500)
	n.expect(110, 900+1000-10, 60, 0)
}
