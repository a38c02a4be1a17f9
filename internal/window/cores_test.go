// SPDX-License-Identifier: Apache-2.0

package window

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/energyreceiver/energyreceiver/internal/attribution"
	"github.com/energyreceiver/energyreceiver/internal/units"
	"github.com/energyreceiver/energyreceiver/internal/usage/cpu/divide"
	"github.com/energyreceiver/energyreceiver/internal/usage/cpu/divide/dividetest"
	"github.com/energyreceiver/energyreceiver/internal/usage/proc"
	"github.com/energyreceiver/energyreceiver/internal/usage/weigh"
)

// newTestCores returns the cores of a node whose CPUs have these lists of the threads of their
// cores. A CPU without one is offline.
func newTestCores(t testing.TB, weight float64, lists ...string) *cores {
	root, files := t.TempDir(), map[string]string{}
	var online []string
	for i, list := range lists {
		if list != "" {
			online = append(online, strconv.Itoa(i))
			files[fmt.Sprintf("%scpu%d/topology/thread_siblings_list", dividetest.SysCPU, i)] = list + "\n"
		}
	}
	files[dividetest.SysCPU+"online"] = strings.Join(online, ",") + "\n"
	dividetest.Put(t, root, files)
	siblings, err := divide.OpenSiblings(root)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, siblings.Close()) })
	return newCores(siblings, weight)
}

const ms = units.CPUTime(time.Millisecond)

// ran is a claim on CPU time: where it was used, or of unknown if that is not known.
type ran struct {
	on      []proc.Slice
	unknown units.CPUTime
}

func on(slices ...proc.Slice) ran { return ran{on: slices} }

// countedIn returns the counted part of the CPU time of claims in an interval of 100 ms, relative
// to that time. busy is the time that the kernel counted so far, nil if it counted none.
func countedIn(c *cores, busy []units.CPUTime, claims ...ran) (counted []float64) {
	table := table{interval: attribution.Interval{Elapsed: 100 * time.Millisecond}}
	for _, r := range claims {
		used := r.unknown
		for _, slice := range r.on {
			used += slice.Used
		}
		table.rows = append(table.rows, row{Share: weigh.Share{CPU: used}, on: table.keepSlices(r.on)})
	}
	c.discount(&table, &Measurement{Table: &proc.Table{}, CPUs: busy})
	for i := range table.rows {
		r := &table.rows[i]
		counted = append(counted, float64(r.CPU-r.Discount)/float64(r.CPU))
	}
	return counted
}

// Two cores of two threads: CPUs 0 and 2, 1 and 3.
var twoCores = []string{"0,2", "1,3", "0,2", "1,3"}

func TestCPUTimeCountsForLessWhileASiblingIsBusy(t *testing.T) {
	for name, c := range map[string]struct {
		lists  []string
		claims []ran
		want   []float64
	}{
		"alone":          {twoCores, []ran{on(proc.Slice{CPU: 0, Used: 100 * ms})}, []float64{1}},
		"on other cores": {twoCores, []ran{on(proc.Slice{CPU: 0, Used: 100 * ms}), on(proc.Slice{CPU: 1, Used: 50 * ms})}, []float64{1, 1}},
		"on one core":    {twoCores, []ran{on(proc.Slice{CPU: 0, Used: 100 * ms}), on(proc.Slice{CPU: 2, Used: 100 * ms})}, []float64{0.6, 0.6}},
		"a busy part":    {twoCores, []ran{on(proc.Slice{CPU: 0, Used: 100 * ms}), on(proc.Slice{CPU: 2, Used: 25 * ms})}, []float64{0.9, 0.6}},
		"several on a CPU": {
			twoCores, []ran{on(proc.Slice{CPU: 0, Used: 100 * ms}), on(proc.Slice{CPU: 2, Used: 25 * ms}), on(proc.Slice{CPU: 2, Used: 50 * ms})},
			[]float64{0.7, 0.6, 0.6},
		},
		"its own threads": {twoCores, []ran{on(proc.Slice{CPU: 1, Used: 100 * ms}, proc.Slice{CPU: 3, Used: 100 * ms}, proc.Slice{CPU: 2, Used: 100 * ms})}, []float64{2.2 / 3}},
		"CPUs that there are not": { // 30 ms, of which the idle CPUs get 10 each
			twoCores, []ran{on(proc.Slice{CPU: 0, Used: 100 * ms}), on(proc.Slice{CPU: -1, Used: 10 * ms}, proc.Slice{CPU: 1 << 30, Used: 20 * ms})},
			[]float64{0.96, (2*0.96 + 0.6) / 3},
		},
		"an unknown CPU": { // 50 ms on each of the three idle CPUs
			twoCores, []ran{on(proc.Slice{CPU: 0, Used: 100 * ms}), {unknown: 150 * ms}}, []float64{1 - 0.4*0.5, (50*0.6 + 100*0.8) / 150},
		},
		"an unknown CPU, CPU 1 is offline": { // 75 ms on each of CPUs 2 and 3
			[]string{"0,2", "", "0,2", "3"}, []ran{on(proc.Slice{CPU: 0, Used: 100 * ms}), {unknown: 150 * ms}}, []float64{1 - 0.4*0.75, (0.6 + 1) / 2},
		},
		"cores of one thread": {[]string{"0", "1"}, []ran{on(proc.Slice{CPU: 0, Used: 100 * ms}), {unknown: 100 * ms}}, []float64{1, 1}},
	} {
		got := countedIn(newTestCores(t, 0.6, c.lists...), nil, c.claims...)
		assert.InDeltaSlice(t, c.want, got, 1e-6, name)
	}
}

func TestWhatTheKernelCountedOfACPUIsPreferredToClaims(t *testing.T) {
	c := newTestCores(t, 0.6, twoCores...)
	countedIn(c, []units.CPUTime{7, 7, 7, 7})
	busy := []units.CPUTime{7 + 100*ms, 7, 7 + 50*ms, 7}
	assert.InDeltaSlice(t, []float64{0.8}, countedIn(c, busy, on(proc.Slice{CPU: 0, Used: 100 * ms})), 1e-6, "an interrupt may have used the other")
	assert.InDeltaSlice(t, []float64{1}, countedIn(c, busy, on(proc.Slice{CPU: 0, Used: 100 * ms})), 1e-6, "nothing was busy since")
	assert.InDeltaSlice(t, []float64{1}, countedIn(c, []units.CPUTime{0, 0, 0, 0}, on(proc.Slice{CPU: 0, Used: 100 * ms})), 1e-6, "another source begins at 0")
}

// Of 250 ms of busy time 100 have a CPU; what is left is on CPU 1, alone, and on CPU 2, whose
// sibling is busy.
func TestTimeWithoutACPUCountsAsTheTimeThatIsLeftDoes(t *testing.T) {
	c := newTestCores(t, 0.6, twoCores...)
	countedIn(c, make([]units.CPUTime, 4))
	got := countedIn(c, []units.CPUTime{100 * ms, 100 * ms, 50 * ms, 0}, on(proc.Slice{CPU: 0, Used: 100 * ms}), ran{unknown: 150 * ms})
	assert.InDeltaSlice(t, []float64{0.8, (100 + 50*0.6) / 150}, got, 1e-6)
}

// Counters are not read in the moment in which the window ends.
func TestACPUIsBusyForNoLongerThanTheInterval(t *testing.T) {
	c := newTestCores(t, 0.6, twoCores...)
	countedIn(c, make([]units.CPUTime, 4))
	busy := []units.CPUTime{110 * ms, 0, 110 * ms, 0}
	got := countedIn(c, busy, on(proc.Slice{CPU: 0, Used: 110 * ms}), on(proc.Slice{CPU: 2, Used: 110 * ms}), ran{unknown: 5 * ms})
	assert.InDeltaSlice(t, []float64{0.6, 0.6, 0.6}, got, 1e-6, "what no CPU has counts as all does on average")
}

// A thread that runs all the time shows 80 ms of a window of 100 ms, and 120 ms in the next.
func TestTimeThatIsShownLateCountsInTheNextInterval(t *testing.T) {
	c, sum := newTestCores(t, 0.6, twoCores...), 0.0
	for i := range 20 {
		used := []units.CPUTime{80 * ms, 120 * ms}[i%2]
		sum += countedIn(c, nil, on(proc.Slice{CPU: 0, Used: 100 * ms}), on(proc.Slice{CPU: 2, Used: used}))[0]
	}
	assert.InDelta(t, 0.6*20, sum, 0.1, "only the first interval lacks something")
}

// Each further busy thread adds 0.2 to what the first draws, so all eight draw 2.4.
func TestEachFurtherThreadOfACoreAddsTheSame(t *testing.T) {
	lists := []string{"0-7", "0-7", "0-7", "0-7", "0-7", "0-7", "0-7", "0-7"}
	c := newTestCores(t, 0.6, lists...)
	for busy := 1; busy <= 8; busy++ {
		var claims []ran
		for i := range busy {
			claims = append(claims, on(proc.Slice{CPU: int32(i), Used: 100 * ms}))
		}
		sum := 0.0
		for _, counted := range countedIn(c, nil, claims...) {
			sum += counted
		}
		assert.InDelta(t, 1+0.2*float64(busy-1), sum, 1e-6, "%d threads", busy)
	}
}

// procfs shows the CPU of a process's first thread, which may be another one than where the process
// ran.
func TestTheCPUOfAProcessIsKnownWithBPFOrIfItHasOneThread(t *testing.T) {
	for _, exact := range []bool{false, true} {
		for threads := range int32(3) {
			b := &Collector{byCPU: true, Options: Options{Exact: exact}}
			p := proc.Process{Sight: proc.Sight{LastCPU: 2, Threads: threads}}
			var slices []proc.Slice
			if exact || threads < 2 {
				slices = []proc.Slice{{CPU: 2, Used: 5 * ms}}
			}
			assert.Equal(t, slices, b.slicesOf(&p, 0, 5*ms, &proc.Table{}), "exact %v, %d threads", exact, threads)
		}
	}
}

func TestDiscountsNeverExceedTheCPUTime(t *testing.T) {
	c := newTestCores(t, 0.5, "0-1", "0-1")
	for range 3 {
		table := table{interval: attribution.Interval{Elapsed: time.Second}}
		for _, used := range []units.CPUTime{0, 1, 3, maxClaim, 1<<64 - 1} {
			on := table.keepSlices([]proc.Slice{{CPU: 0, Used: used}, {CPU: 1, Used: used}})
			table.rows = append(table.rows, row{Share: weigh.Share{CPU: used}, on: on})
		}
		c.discount(&table, &Measurement{Table: &proc.Table{}, CPUs: []units.CPUTime{1 << 63, 1<<64 - 1}})
		for _, r := range table.rows {
			assert.LessOrEqual(t, r.Discount, r.CPU)
		}
	}
}

func TestDiscountsAllocateNothingInTheSteadyState(t *testing.T) {
	c, table := newTestCores(t, 0.6, twoCores...), newTable(0)
	m := &Measurement{Table: &proc.Table{}, CPUs: make([]units.CPUTime, 4)}
	assert.Zero(t, testing.AllocsPerRun(100, func() { discountRows(c, &table, m, 100, 4) }))
}

// discountRows discounts a number of rows, which ran on two of a number of CPUs each.
func discountRows(c *cores, table *table, m *Measurement, rows, cpus int32) {
	m.Table.Now += time.Second
	table.clearRows()
	table.interval.Elapsed = time.Second
	for i := range rows {
		on := table.keepSlices([]proc.Slice{{CPU: i % cpus, Used: ms}, {CPU: i * 7 % cpus, Used: 2 * ms}})
		table.rows = append(table.rows, row{Share: weigh.Share{CPU: 3 * ms}, on: on})
	}
	c.discount(table, m)
}

// One process runs for 50 ms in each package, and shares the core of the first one. Of a third that
// did the same and ended, only the last CPU is known.
func TestWeightsOfCoresGoToTheDomainsWhereTimeCounts(t *testing.T) {
	root := dividetest.MachineOf(t, [2]string{"0", "0"}, [2]string{"1", "0"}, [2]string{"0", "0"}, [2]string{"1", "0"})
	topology, err := divide.OpenTopology(root)
	require.NoError(t, err)
	defer func() { require.NoError(t, topology.Close()) }()
	k, table := NewKeys(KeyOptions{Keys: []Key{KeyCPUTime, KeyMemoryCPUTime}}), newTable(2)
	table.clearRows()
	table.interval.Elapsed = 100 * time.Millisecond
	for i, slices := range [][]proc.Slice{{{CPU: 0, Used: 50 * ms}, {CPU: 1, Used: 50 * ms}}, {{CPU: 2, Used: 100 * ms}}} {
		r := row{Share: weigh.Share{Resident: 1 << 20}, claimant: attribution.Claimant(i + 1), parts: make([]units.CPUTime, 2), on: table.keepSlices(slices)}
		for _, slice := range slices {
			r.CPU += slice.Used
			r.parts[topology.Of(slice.CPU)] += slice.Used
		}
		table.rows = append(table.rows, r)
	}
	table.rows = append(table.rows, row{
		Share: weigh.Share{CPU: 20 * ms}, claimant: 3, parts: []units.CPUTime{10 * ms, 10 * ms}, on: table.keepSlices([]proc.Slice{{CPU: 3, Used: 20 * ms}}),
	})
	m := &Measurement{Table: &proc.Table{}}
	newTestCores(t, 0.6, twoCores...).discount(&table, m)
	k.weigh(&table, m)
	newDivider(topology, nil, k).divide(&table, m)
	usage := table.interval.Domains[1:]
	first, second := usage[0].Claims, usage[1].Claims
	require.Len(t, first, 3)
	require.Len(t, second, 2)
	assert.InDelta(t, 30, float64(first[0].Weights[0])/float64(ms), 1e-3, "the sibling is busy all the time")
	assert.InDelta(t, 46, float64(second[0].Weights[0])/float64(ms), 1e-3, "the sibling is busy for a fifth of the time")
	assert.InDelta(t, 80, float64(first[1].Weights[0])/float64(ms), 1e-3, "the sibling is busy for half of the time")
	assert.InDelta(t, 8, float64(first[2].Weights[0])/float64(ms), 1e-3, "half of what counts, as of the CPU time")
	assert.InDelta(t, first[2].Weights[0], second[1].Weights[0], 1)
	assert.Equal(t, first[0].Weights[1], second[0].Weights[1], "memory is not about cores")
	assert.Equal(t, []units.CPUTime{50 * ms, 50 * ms}, []units.CPUTime{first[0].CPU, second[0].CPU})
}
