// SPDX-License-Identifier: Apache-2.0

package web

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/energyreceiver/energyreceiver/cmd/energy/internal/top"
	"github.com/energyreceiver/energyreceiver/internal/units"
)

// machine is a simulated source of frames.
type machine struct {
	*rand.Rand
	frame    top.Frame
	energies map[string]units.Energy // of programs since frame.Since
	all      map[string]units.Energy // of programs, in total
	points   bool                    // the last frame must have a point
	counted  sums                    // the energy that points must have
}

func newMachine(seed uint64) *machine {
	return &machine{
		Rand: rand.New(rand.NewPCG(seed, 0)), all: map[string]units.Energy{},
		frame: top.Frame{At: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)},
	}
}

// begin resets the energies, as if energy was started again.
func (m *machine) begin() {
	m.frame.Since, m.frame.Node, m.energies = m.frame.At, 0, map[string]units.Energy{}
	m.frame.Zones = []top.Zone{{Name: "package"}, {Name: "core", Besides: "package"}, {Name: "dram"}}
}

// next returns a frame: a later one, another one of the same collection, or the first one after a
// restart of the source or of energy. Programs vanish and appear again.
func (m *machine) next() *top.Frame {
	f := &m.frame
	f.Period = time.Duration(1+m.IntN(3000)) * time.Millisecond
	switch event := m.IntN(50); {
	case event == 0 || m.energies == nil:
		m.begin()
		if m.points = m.IntN(2) == 0; !m.points { // energy does not count from the start of the period
			f.Since = f.At.Add(-time.Second)
		}
		f.At = f.At.Add(f.Period)
	case event == 1:
		f.At, f.Period, m.points = f.At.Add(f.Period), 0, false
	case event > 4:
		f.At, m.points = f.At.Add(f.Period), true
	}
	z, un := &f.Zones[2*m.IntN(2)], units.Energy(m.IntN(1000))
	used := sums{Active: un, Unattributed: un}
	for range m.IntN(40) {
		name, e := fmt.Sprint("program ", m.IntN(60)), units.Energy(m.IntN(5_000_000))
		m.energies[name] += e
		m.all[name] += e
		used.Active += e
	}
	used.Node = used.Active + units.Energy(m.IntN(10_000_000))
	f.Node, z.Energy = f.Node+used.Node, z.Energy+used.Node
	z.ActiveEnergy, z.Unattributed = z.ActiveEnergy+used.Active, z.Unattributed+un
	f.Zones[1].Energy += 2 * used.Node // not added
	if m.points {
		m.counted = m.counted.plus(used)
	}
	next := *f
	next.Zones = slices.Clone(f.Zones)
	for name, e := range m.energies {
		if m.IntN(20) > 0 {
			next.Tables[top.Programs] = append(next.Tables[top.Programs], aRow(name, e))
		}
	}
	return &next
}

func aRow(name string, e units.Energy) top.Row {
	r := top.Row{Key: name, Energy: e, CPUTime: -1, Zones: []units.Energy{e}}
	r.Text[top.Name] = name
	return r
}

// checked checks the bounds of a history and that shares are parts of their points. It returns the
// energy of all points, and of each share.
func checked(t *testing.T, h *history) (all sums, shares map[id]units.Energy) {
	t.Helper()
	require.LessOrEqual(t, len(h.points), maxPoints)
	shares = map[id]units.Energy{}
	for i := range h.points {
		p := &h.points[i]
		all = all.plus(p.sums)
		require.True(t, p.Seconds > 0 && (i == 0 || h.points[i-1].End < p.End && h.points[i-1].version < p.version+1))
		for view, list := range p.Shares {
			left := p.Active - p.Unattributed
			if view == zones {
				left = p.Node
			}
			require.LessOrEqual(t, len(list), maxShares)
			for _, s := range list {
				require.True(t, s.Used > 0 && s.Used <= left && s.name != "" && s.name != "CPU cores")
				shares[s.ID] += s.Used
				left -= s.Used
			}
			require.True(t, view != zones || left == 0, "zones add up to the node")
		}
	}
	return all, shares
}

func TestPagesHaveTheEnergyOfTheSourceOnce(t *testing.T) {
	for seed := range uint64(4) {
		m, s, page, fresh := newMachine(seed), NewServer(Options{}), state{version: -1}, state{version: -1}
		for range 1500 {
			s.Show(m.next(), nil)
			if m.IntN(5) == 0 { // the page misses messages
				page.follow(t, s)
			}
		}
		page.follow(t, s)
		fresh.follow(t, s)
		all, shares := checked(t, s.history)
		require.Equal(t, m.counted, all, "seed %d", seed)
		sum := units.Energy(0)
		for name, e := range m.all {
			used := shares[idOf(s.history.seed, top.Programs.String(), name)]
			require.LessOrEqual(t, used, e)
			sum += used
		}
		assert.Greater(t, sum, (all.Active-all.Unattributed)/2, "most of it has a program")
		require.Len(t, fresh.Points, len(s.history.points))
		require.Equal(t, fresh.Points, page.Points)
		require.Equal(t, fresh.Now, page.Now)
		require.Subset(t, page.Names, fresh.Names)
	}
}

func TestAPointEndsAtTheTimeOfTheFiguresAndARestartIsAGap(t *testing.T) {
	h, at := newHistory(), time.UnixMilli(1_000_000)
	h.shortest = 100 // readings are joined, but not across a gap
	frame := func(seconds int, period time.Duration, node units.Energy) *top.Frame {
		return &top.Frame{At: at.Add(time.Duration(seconds) * time.Second), Since: at, Period: period, Node: node}
	}
	for i, f := range []*top.Frame{
		frame(0, 0, 0), frame(5, 5*time.Second, 50), frame(5, 5*time.Second, 50), frame(5, 5*time.Second, 51),
		frame(7, 0, 53), frame(9, 2*time.Second, 60), frame(2, 2*time.Second, 64), frame(4, 2*time.Second, 69), // the clock was set back
	} {
		assert.Equal(t, i != 2, h.add(f, int64(i)), "the third frame has no news")
	}
	require.Len(t, h.points, 3)
	for i, want := range [][]any{{1_005_000, 5.0, 51}, {1_009_000, 2.0, 7}, {1_004_000, 2.0, 5}} {
		p := h.points[i]
		assert.Equal(t, want, []any{int(p.End), p.Seconds, int(p.Node)})
	}
}

func TestARowThatAppearsWithEnergyOfEarlierTimesHasNoShare(t *testing.T) {
	h, f := newHistory(), &top.Frame{At: time.UnixMilli(0), Zones: []top.Zone{{Name: "package"}}}
	h.add(f, 0)
	f.At, f.Period, f.Node, f.Zones[0].ActiveEnergy = time.UnixMilli(1000), time.Second, 10, 10
	f.Tables[top.Programs] = []top.Row{aRow("old", 100), aRow("new", 6)}
	h.add(f, 1)
	want := []share{{idOf(h.seed, "programs", "new"), 6, "new"}}
	assert.Equal(t, want, h.points[0].Shares["programs"])
}

// The collector has other rows in each reading.
func TestSixHoursOfHostileNamesTakeLessThan10MB(t *testing.T) {
	text := strings.Repeat("<script>\u202e\U0001F4A3a\u0301\u0302\u0303\x1b[2J__proto__\"", 500)
	inUse := func() uint64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before, h := inUse(), newHistory()
	f := top.Frame{At: time.UnixMilli(0), Period: 2 * time.Second}
	for version := range int64(6 * 3600 / 2) {
		f.At, f.Node = f.At.Add(f.Period), f.Node+1e6
		f.Zones = []top.Zone{{Name: "z", Energy: f.Node, ActiveEnergy: f.Node}}
		read := strings.Clone(text) // names are parts of it
		for view := range top.NumViews {
			f.Tables[view] = f.Tables[view][:0]
			for i := range maxShares + 1 {
				r := aRow(read[61*i:], units.Energy(i+1))
				r.Key = fmt.Sprint(version, i)
				f.Tables[view] = append(f.Tables[view], r)
			}
		}
		h.add(&f, version)
	}
	used := int64(inUse()) - int64(before)
	all, _ := checked(t, h)
	t.Logf("%d points, %d kB", len(h.points), used/1000)
	assert.Less(t, used, int64(10_000_000))
	assert.Equal(t, f.Node-1e6, all.Node)
	runtime.KeepAlive(h)
}
