// SPDX-License-Identifier: Apache-2.0

package gpus

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/energyreceiver/energyreceiver/extension/nvml/internal/nvml"
)

// watch polls a GPU every second, for so long, and returns what the polls returned.
func watch(t *testing.T, g *gpu, length time.Duration) *account {
	t.Helper()
	r := New((&driver{devices: []nvml.Device{g}}).open)
	a := newAccount(g.idle)
	for began := time.Now(); time.Since(began) < length; time.Sleep(time.Second) {
		devices, err := r.Poll(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		a.take(t, &devices[0])
	}
	return a
}

func jitter(most time.Duration) func(int) time.Duration {
	rng := rand.New(rand.NewPCG(1, 2))
	shows := map[int]time.Duration{}
	return func(i int) time.Duration {
		if _, ok := shows[i]; !ok {
			shows[i] = time.Duration(rng.Int64N(int64(most)))
		}
		return shows[i]
	}
}

// bursts returns which process runs: bursts of random length, of random processes, with pauses.
func bursts(seed uint64, processes int, shortest, longest time.Duration) func(at time.Duration) uint32 {
	rng := rand.New(rand.NewPCG(seed, 3))
	var until time.Duration
	var pid uint32
	return func(at time.Duration) uint32 {
		for at >= until {
			until += shortest + time.Duration(rng.Int64N(int64(longest-shortest)))
			pid = uint32(rng.IntN(processes + 1))
		}
		return pid
	}
}

// misattributed returns how far the energy of a process is off at most, and how much of all active
// energy its process did not get.
func misattributed(g *gpu, got map[uint32]float64) (worst, all float64) {
	var missing, sum float64
	for pid, truth := range g.active {
		worst = max(worst, math.Abs(got[pid]-truth)/truth)
		missing += max(truth-got[pid], 0)
		sum += truth
	}
	return worst, missing / sum
}

var lags = []struct {
	name string
	of   func(int) time.Duration
}{
	{"none", func(int) time.Duration { return 0 }},
	{"half", func(int) time.Duration { return time.Second / 2 }},
	{"batch", func(i int) time.Duration { return time.Second - time.Duration(i%6)*time.Second/6 }},
	{"jitter", jitter(time.Second)},
}

// sinceBoot is a clock that starts a while before the test.
func sinceBoot(began time.Time) func(at time.Time) uint64 {
	return func(at time.Time) uint64 { return uint64((58*24*time.Hour + at.Sub(began)).Microseconds()) }
}

// Bursts of five processes, 0.1 to 3 s long, that draw the same power. The energy of a window is
// that of the time that its samples are of, however late they show.
func TestBurstsAreAttributedWithinFivePercentAtOneSecond(t *testing.T) {
	for _, boot := range []bool{false, true} {
		for _, lag := range lags {
			t.Run(fmt.Sprintf("boot=%v lag=%v", boot, lag.name), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					g := newGPU(bursts(1, 5, 100*time.Millisecond, 3*time.Second))
					g.lag = lag.of
					if boot {
						g.clock = sinceBoot(g.began)
					}
					a := watch(t, g, 20*time.Minute)
					worst, all := misattributed(g, a.joules)
					t.Logf("worst process %.2f %%, of all energy %.2f %%", 100*worst, 100*all)
					limit := 0.05
					if boot && lag.name == "batch" {
						limit = 0.08 // a lag that is always the same does not show
					}
					if worst > limit {
						t.Errorf("a process is %.1f %% off", 100*worst)
					}
					for pid, used := range g.used {
						if off := a.used[pid].Seconds()/used.Seconds() - 1; math.Abs(off) > 0.02 {
							t.Errorf("process %d: GPU time %v, want %v", pid, a.used[pid], used)
						}
					}
				})
			})
		}
	}
}
