// SPDX-License-Identifier: Apache-2.0

//go:build amd64 || arm64

package energyreceiver

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/energyreceiver/energyreceiver/internal/test/hostsim"
)

var (
	simSeed    = flag.Uint64("sim.seed", 0, "the `seed` of the one history to simulate, 0 for several")
	simN       = flag.Int("sim.events", 400, "how many events a history has")
	simRuns    = flag.Int("sim.histories", someHistories, "how many histories to simulate")
	simSeconds = flag.Int("sim.seconds", 12, "for how many seconds a thousand processes are born in each")
	simKeep    = flag.String("sim.keep", "", "the events of the history to keep, as `from-to,...`; empty is all")
)

const (
	// someHistories are enough for every event to occur once.
	someHistories = 24
	// manyHistories are enough for each fault to occur a hundred times.
	manyHistories = 2000
)

// simulate runs a history and returns the first rule that was broken. The world's time is that of a bubble, in which
// hanging stores can be waited for.
func simulate(t *testing.T, p plan, events []hostsim.Event) (w *world, err error) {
	synctest.Test(t, func(t *testing.T) {
		w = newWorld(t, p)
		defer w.close()
		defer func() {
			if wrong := recover(); wrong != nil {
				w.rule, err = "nothing panics", fmt.Errorf("panic: %v\n%s", wrong, debug.Stack())
			}
		}()
		w.start()
		for i, e := range events {
			if *simSeed != 0 {
				t.Logf("%v event %d: %v %s", w.life.Now(), i, e, acts[e.Act].name)
			}
			if w.apply(e); w.wrong != nil {
				err = fmt.Errorf("event %d (%+v): %w", i, e, w.wrong)
				return
			}
		}
		w.end()
		err = w.wrong
	})
	return w, err
}

// simulateMany runs histories of the seeds from 1 on, or of the seed of -sim.seed. It returns how often each fault and
// act took effect. The history that breaks a rule is shortened.
func simulateMany(t *testing.T, restarts bool) map[string]int {
	var mu sync.Mutex
	fired := map[string]int{}
	simulateOne := func(seed uint64) {
		p := plan{seed: seed, restarts: restarts}
		events := selected(t, hostsim.NewHistory(seed, *simN, p.weights()), *simKeep)
		w, err := simulate(t, p, events)
		if err != nil {
			keep := *simKeep
			if *simSeed == 0 {
				keep = shrink(len(events), 30*time.Second, func(keep string) bool {
					again, err := simulate(t, p, selected(t, events, keep))
					return err != nil && again.rule == w.rule
				})
			}
			t.Errorf("seed %d: %v\nTo see it again: go test ./receiver -run %s -v -sim.seed=%d -sim.events=%d -sim.keep=%s",
				seed, err, t.Name(), seed, *simN, keep)
		}
		mu.Lock()
		defer mu.Unlock()
		for _, counts := range []map[string]int{w.fired, w.faults.Fired, {"intervals": w.run.intervals, "collections": w.run.scrapes, "starts": w.run.number}} {
			for name, n := range counts {
				fired[name] += n
			}
		}
	}
	if *simSeed != 0 {
		simulateOne(*simSeed)
		return fired
	}
	var next atomic.Uint64
	var workers sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		workers.Go(func() {
			for seed := next.Add(1); seed <= uint64(*simRuns) && !t.Failed(); seed = next.Add(1) {
				simulateOne(seed)
			}
		})
	}
	workers.Wait()
	for _, name := range slices.Sorted(maps.Keys(fired)) {
		t.Logf("%8d %s", fired[name], name)
	}
	return fired
}

// requireEach requires that each of these has happened, if there were enough histories: what never happened proves nothing.
func requireEach(t *testing.T, fired map[string]int, least, histories int, names ...string) {
	if *simSeed != 0 || *simRuns < histories || t.Failed() {
		return
	}
	for _, name := range names {
		assert.GreaterOrEqual(t, fired[name], least, name)
	}
}

// TestNothingIsLostWhateverHappens runs random histories with random faults. With -sim.seed it runs one.
func TestNothingIsLostWhateverHappens(t *testing.T) {
	descriptors := openFiles(t)
	fired := simulateMany(t, false)
	assert.LessOrEqual(t, openFiles(t), descriptors, "descriptors are left open")
	var names []string
	for act := hostsim.FirstFault; act.String() != ""; act++ {
		names = append(names, act.String())
	}
	for _, err := range hostsim.Errors {
		names = append(names, err.Error())
	}
	requireEach(t, fired, 100, manyHistories, names...)
	requireEach(t, fired, 1, someHistories, chargedOfCards)
}

// TestRestartsLoseAndInventNothing runs random histories in which the receiver restarts. With -sim.seed it runs one.
func TestRestartsLoseAndInventNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { foreignState(t) })
	fired := simulateMany(t, true)
	requireEach(t, fired, 1, someHistories, slices.Concat(crashes[1:], bootNames[:], []string{
		"stopped", storeFull, storeReadOnly, storeHangs, storeIsLate, killedWrite, hasWaited, expired,
	})...)
}

func openFiles(t *testing.T) int {
	files, err := os.ReadDir("/proc/self/fd")
	require.NoError(t, err)
	return len(files)
}

// selected returns the events of a history that a list like "0-10,15" selects.
func selected(t *testing.T, events []hostsim.Event, list string) (some []hostsim.Event) {
	if list == "" {
		return events
	}
	for part := range strings.SplitSeq(list, ",") {
		from, to, isRange := strings.Cut(part, "-")
		if !isRange {
			to = from
		}
		i, err := strconv.Atoi(from)
		require.NoError(t, err)
		j, err := strconv.Atoi(to)
		require.NoError(t, err)
		some = append(some, events[i:j+1]...)
	}
	return some
}

// shrink removes events from a history of n events while it still fails, and lists the rest.
func shrink(n int, budget time.Duration, fails func(keep string) bool) string {
	kept := make([]string, n)
	for i := range kept {
		kept[i] = strconv.Itoa(i)
	}
	until := time.Now().Add(budget)
	for size := n / 2; size > 0; size /= 2 {
		for from := 0; from < len(kept) && time.Now().Before(until); {
			without := slices.Concat(kept[:from], kept[min(from+size, len(kept)):])
			if len(without) > 0 && fails(strings.Join(without, ",")) {
				kept = without
			} else {
				from += size
			}
		}
	}
	return strings.Join(kept, ",")
}

// TestMemoryIsFlatUnderAThousandBirthsASecond creates and ends a thousand processes a second, in intervals of a second.
// A third of them are seen by a scan, the others live between two scans.
func TestMemoryIsFlatUnderAThousandBirthsASecond(t *testing.T) {
	for name, seed := range map[string]uint64{"procfs": 1, "BPF": 2} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, plan{seed: seed})
			defer w.close()
			w.start()
			w.life.MaxTasks, w.life.Programs = 2000, nil
			w.life.LimitPIDs(32768)
			born := uint32(0)
			second := func() {
				for range 1000 {
					born++
					act := hostsim.Flicker
					if born%3 == 0 {
						act = hostsim.Fork
					}
					w.life.Apply(hostsim.Event{Act: act, A: 4 * born, B: 40_000 + born%500})
				}
				for i := 0; len(w.life.Tasks) > 400 && i < 1000; i++ {
					w.life.Apply(hostsim.Event{Act: hostsim.Exit, A: born, B: 2})
				}
				w.run.passed = time.Second
				w.life.Step(time.Second)
				w.collect()
				w.backend.forget()
			}
			for range *simSeconds / 2 {
				second()
			}
			before := heap()
			for range *simSeconds / 2 {
				second()
			}
			after := heap()
			require.NoError(t, w.wrong)
			t.Logf("%d births: %.1f MiB, then %.1f MiB", born, float64(before)/(1<<20), float64(after)/(1<<20))
			assert.Less(t, float64(after), 1.1*float64(before)+1<<18)
		})
	}
}
