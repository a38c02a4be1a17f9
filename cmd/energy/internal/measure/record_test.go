// SPDX-License-Identifier: Apache-2.0

package measure

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/energyreceiver/energyreceiver/cmd/energy/internal/phase"
	"github.com/energyreceiver/energyreceiver/feed"
	"github.com/energyreceiver/energyreceiver/internal/power"
	"github.com/energyreceiver/energyreceiver/internal/units"
)

var (
	packages = power.Class{Zone: power.Package, Method: power.Measured}
	platform = power.Class{Zone: power.Platform, Method: power.Measured}
)

// history is a record with a package and a platform, in which windows end at times of the test.
type history struct {
	*record
	used units.CPUTime
	at   time.Time
}

func newHistory() *history {
	h := &history{at: time.Unix(1e9, 0)}
	h.record = &record{interval: time.Second, counted: func() (units.CPUTime, time.Time) { return h.used, h.at }}
	return h
}

// started returns a history that begins with the command.
func started() *history {
	h := newHistory()
	h.start(h.at, 0, nil)
	return h
}

// window lets time pass and ends a window with the energy of the package and the platform.
func (h *history) window(d, cpu time.Duration, of ...amounts) { h.end(&feed.Window{}, d, cpu, of) }

// collection is a window that ends a collection.
func (h *history) collection(d, cpu time.Duration, of ...amounts) {
	h.end(&feed.Window{EndsCollection: true}, d, cpu, of)
}

func (h *history) end(w *feed.Window, d, cpu time.Duration, of []amounts) {
	w.Start, w.End = h.at, h.at.Add(d)
	h.at, h.used = w.End, h.used+units.CPUTime(cpu)
	for i, kind := range []power.Class{packages, platform} {
		var e amounts
		if i < len(of) {
			e = of[i]
		}
		w.Kinds = append(w.Kinds, feed.Kind{Zone: string(kind.Zone), Method: string(kind.Method)})
		w.Active, w.Idle = append(w.Active, uint64(e.active)), append(w.Idle, uint64(e.idle))
		w.Unattributed = append(w.Unattributed, uint64(e.active-e.used))
	}
	h.take(w)
}

// finish ends the last sample.
func (h *history) finish(d time.Duration, cpu time.Duration, of ...amounts) *history {
	h.running, h.cut, h.wall = false, true, h.at.Add(d).Sub(h.began)
	h.collection(d, cpu, of...)
	h.complete()
	return h
}

func (h *history) fill() *Result {
	var r Result
	h.result(&r, func(kind power.Class) bool { return kind == packages })
	return &r
}

func TestEnergyBeforeTheCommandIsNotTheCommands(t *testing.T) {
	h := newHistory()
	h.window(time.Second, time.Second, amounts{7, 100, 200})
	h.start(h.at, h.used, nil)
	r := h.finish(time.Second, time.Second, amounts{3, 50, 30}).fill()
	assert.Equal(t, []Zone{{Name: "package", Source: "measured", Used: 3, Active: 50, Idle: 30}}, r.Zones)
	assert.Equal(t, time.Second, r.CPU)
	assert.Equal(t, time.Second, r.Wall)
}

// The windows cover 4 s before the command and 6 s after it, at the same power of the node.
func TestTheEnergyOfTheNodeIsThatOfTheTimeInWhichTheCommandRan(t *testing.T) {
	h := newHistory()
	h.interval = time.Minute
	h.window(time.Second, 0, amounts{0, 8, 2})
	h.start(h.at.Add(3*time.Second), 0, nil)
	h.window(5*time.Second, time.Second, amounts{5, 45, 15}) // 2 s of these
	h.mark("build")
	h.collection(time.Second, 0, amounts{1, 9, 3})
	h.marked()
	h.running, h.cut, h.wall = false, true, 7*time.Second
	h.collection(10*time.Second, time.Second, amounts{7, 87, 30}, amounts{13, 20, 34}) // 4 s of these, and 7 of the 17 s of the platform
	h.collection(time.Second, 0, amounts{0, 8, 3})                                     // after the end
	h.settleLate(func(power.Class) bool { return true })
	r := h.fill()
	assertSamplesAddUp(t, r)
	assert.Equal(t, []Zone{
		{Name: "package", Source: "measured", Used: 13, Active: 18 + 9 + 34, Idle: 6 + 3 + 12},
		{Name: "platform", Source: "measured", Besides: "package", Used: 13, Active: 13, Idle: 14},
	}, r.Zones)
	_, node := usedIn(r, 0)
	assert.Equal(t, []units.Energy{24 + 12, 34 + 12}, node)
}

func TestTheReadingsBeforeTheCommandAreTheBeginningOfTheFirstEnergy(t *testing.T) {
	for _, seen := range []bool{false, true} { // whether a window came before the command
		h := newHistory()
		if seen {
			h.window(time.Second, 0)
		}
		reading := map[power.Class]time.Time{packages: h.at.Add(2 * time.Second), platform: {}}
		h.start(h.at.Add(3*time.Second), 0, reading)
		r := h.finish(4*time.Second, 0, amounts{0, 20, 20}).fill() // 1 of 2 s after the reading
		assert.Equal(t, []units.Energy{20}, r.Samples[0].NodeUsed)
	}
}

func TestWindowsAreAddedUpToSamplesOfTheInterval(t *testing.T) {
	h := newHistory()
	h.sampled = make(chan units.Energy, 1)
	h.start(h.at, 0, nil)
	for range 25 { // late by 1 ms each
		h.window(101*time.Millisecond, 0, amounts{1, 1, 0})
	}
	h.window(3*time.Second, 0, amounts{1, 1, 0})
	h.collection(400*time.Millisecond, 0, amounts{1, 1, 0}) // not of a mark
	r := h.finish(100*time.Millisecond, 0, amounts{1, 1, 0}).fill()
	var ends []time.Duration
	for _, s := range r.Samples {
		ends = append(ends, s.End)
	}
	ms := time.Millisecond
	assert.Equal(t, []time.Duration{1010 * ms, 2020 * ms, 5525 * ms, 6025 * ms}, ends)
	assert.Equal(t, units.Energy(10), r.Samples[0].Used[0])
	assert.Equal(t, units.Energy(10), <-h.sampled, "the later ones were not taken")
}

// usedIn returns the energy in each sample.
func usedIn(r *Result, zone int) (used, node []units.Energy) {
	for _, s := range r.Samples {
		used, node = append(used, s.Used[zone]), append(node, s.NodeUsed[zone])
	}
	return used, node
}

func TestLateEnergyIsOfTheSamplesInWhichItWasUsed(t *testing.T) {
	h := started()
	h.window(time.Second, time.Second)
	h.window(time.Second, 3*time.Second)
	h.window(time.Second, 0, amounts{}, amounts{8, 20, 10})
	used, node := usedIn(h.finish(time.Second, time.Second, amounts{}, amounts{1, 1, 1}).fill(), 1)
	assert.Equal(t, []units.Energy{2, 6, 0, 1}, used)
	assert.Equal(t, []units.Energy{10, 10, 10, 2}, node)
}

func TestEnergyWithoutCPUTimeIsDividedByTime(t *testing.T) {
	h := started()
	h.window(time.Second, 0)
	h.window(3*time.Second, 0, amounts{4, 4, 0})
	used, _ := usedIn(h.finish(time.Second, time.Second, amounts{1, 1, 0}).fill(), 0)
	assert.Equal(t, []units.Energy{1, 3, 1}, used)
}

func TestEnergyAfterTheEndIsOfTheSamplesThatWaitForIt(t *testing.T) {
	h := started()
	h.window(time.Second, time.Second, amounts{1, 1, 0}, amounts{5, 5, 0})
	h.finish(time.Second, time.Second, amounts{1, 1, 0})
	h.collection(time.Second, 0, amounts{9, 9, 0}, amounts{7, 7, 0})
	h.settleLate(func(k power.Class) bool { return k == platform })
	got := h.fill()
	assert.Equal(t, []units.Energy{1, 5}, got.Samples[0].Used)
	assert.Equal(t, []units.Energy{1, 7}, got.Samples[1].Used)
	assert.Equal(t, units.Energy(12), got.Zones[1].Used)
	assert.Equal(t, units.Energy(2), got.Zones[0].Used, "its energy until the end was complete")
	assert.Equal(t, units.Energy(2), got.Used(), "the platform is not added to the package")
}

func TestAPhaseBeginsWithTheCollectionOfItsMark(t *testing.T) {
	h := started()
	h.mark("build")
	h.window(time.Millisecond, 0, amounts{1, 1, 0}) // before the collection
	h.collection(time.Millisecond, 0, amounts{2, 2, 0})
	h.window(time.Second, 0, amounts{3, 3, 0}) // before the mark was answered
	h.marked()
	h.mark("test")
	h.marked() // the collection failed
	r := h.finish(time.Second, 0, amounts{4, 4, 0}).fill()
	require.Len(t, r.Phases, 3)
	for i, want := range []Phase{{Name: phase.None, Used: []units.Energy{3}}, {Name: "build", Used: []units.Energy{3}}, {Name: "test", Used: []units.Energy{4}}} {
		assert.Equal(t, want, Phase{Name: r.Phases[i].Name, Used: r.Phases[i].Used})
	}
}

func TestWithoutACollectionAtTheEndTheLastSampleEndsAnyway(t *testing.T) {
	h := started()
	h.window(time.Second/4, time.Second, amounts{1, 1, 0})
	h.running, h.cut, h.wall = false, true, time.Minute
	h.window(time.Second, time.Second, amounts{1, 1, 0})
	h.complete()
	r := h.fill()
	require.Len(t, r.Samples, 1)
	assert.Equal(t, time.Minute, r.Wall)
	assert.Equal(t, 2*time.Second, r.CPU)
	assert.Equal(t, units.Energy(2), r.Zones[0].Used)
}

// Sums are exact to the microjoule whatever meters report, and whenever.
func TestSamplesAndPhasesAddUpToTheRun(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	phases := []string{phase.None, "build", "test"}
	for range 200 {
		h := started()
		var all [2]amounts
		some := func() []amounts {
			var of [2]amounts
			for i := range of {
				if rng.IntN(3) == 0 {
					active := units.Energy(rng.Uint64N(1e9))
					of[i] = amounts{units.Energy(rng.Uint64N(uint64(active) + 1)), active, units.Energy(rng.Uint64N(1e9))}
				}
				all[i].add(of[i])
			}
			return of[:]
		}
		for range 1 + rng.IntN(30) {
			d, cpu := time.Duration(rng.Uint64N(2e9)), time.Duration(rng.Uint64N(2e9))
			if rng.IntN(4) == 0 {
				h.mark(phases[rng.IntN(len(phases))])
				h.collection(d, cpu, some()...)
				h.marked()
				continue
			}
			h.window(d, cpu, some()...)
		}
		h.finish(time.Second, 0, some()...)
		h.collection(0, 0, some()...)
		h.settleLate(func(power.Class) bool { return true })
		got := h.fill()
		assertSamplesAddUp(t, got)
		for _, z := range got.Zones {
			want := all[slices.Index([]power.Class{packages, platform}, zoneKind(&z))]
			require.Equal(t, want, amounts{z.Used, z.Active, z.Idle})
		}
	}
}

// assertSamplesAddUp checks that the samples and phases of a result add up to it.
func assertSamplesAddUp(t *testing.T, r *Result) {
	t.Helper()
	whole := Phase{Name: "all", Wall: r.Wall, CPU: r.CPU, Used: []units.Energy{}, NodeUsed: []units.Energy{}}
	for i := range r.Zones {
		z := &r.Zones[i]
		require.LessOrEqual(t, z.Used, z.Active, z.Name)
		whole.Used, whole.NodeUsed = append(whole.Used, z.Used), append(whole.NodeUsed, z.Node())
	}
	samples, phases := slices.Clone(r.Samples), make([]Sample, len(r.Phases))
	for i, p := range r.Phases {
		phases[i] = Sample{Wall: p.Wall, CPU: p.CPU, Used: p.Used, NodeUsed: p.NodeUsed}
	}
	for _, parts := range [][]Sample{samples, phases} {
		for i := range parts {
			parts[i].Phase = whole.Name
		}
		if len(parts) > 0 { // else it has no phases
			require.Equal(t, []Phase{whole}, phasesOf(parts))
		}
	}
}

func TestAPhaseThatComesTwiceIsOne(t *testing.T) {
	e := func(used units.Energy) []units.Energy { return []units.Energy{used} }
	assert.Nil(t, phasesOf([]Sample{{Phase: ""}, {Phase: "none"}}), "without marks there are none")
	assert.Equal(t, []Phase{
		{Name: "none", Wall: 1, Used: e(1), NodeUsed: e(10)},
		{Name: "a", Wall: 6, CPU: 9, Used: e(6), NodeUsed: e(60)},
		{Name: "b", Wall: 3, Used: e(3), NodeUsed: e(0)},
	}, phasesOf([]Sample{
		{Wall: 1, Used: e(1), NodeUsed: e(10)}, {Wall: 2, Phase: "a", Used: e(2), NodeUsed: e(20)},
		{Wall: 3, Phase: "b", Used: e(3), NodeUsed: e(0)}, {Wall: 4, CPU: 9, Phase: "a", Used: e(4), NodeUsed: e(40)},
	}))
}
