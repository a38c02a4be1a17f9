// SPDX-License-Identifier: Apache-2.0

package gpus

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/energyreceiver/energyreceiver/extension/nvml/internal/nvml"
)

// watch polls a GPU every second, for so long, and returns what the polls returned.
func watch(t *testing.T, g *gpu, length time.Duration) *account {
	t.Helper()
	p, a := poller(t, g), newAccount(g.idle)
	for a.take(t, p.after(0)); length > time.Second; length -= time.Second {
		a.take(t, p.after(time.Second))
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
					assert.LessOrEqual(t, worst, limit)
					for pid, used := range g.used {
						assert.InEpsilon(t, used.Seconds(), a.used[pid].Seconds(), 0.02, "GPU time of process %d", pid)
					}
				})
			})
		}
	}
}

func TestBurstsWithoutInstants(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGPU(bursts(1, 3, 500*time.Millisecond, 5*time.Second))
		g.noSamples = nvml.NotSupported
		_, all := misattributed(g, watch(t, g, 20*time.Minute).joules)
		assert.LessOrEqual(t, all, 0.05)
	})
}

func TestSamplesOfAnIdleGPURunDry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGPU(bursts(1, 1, 100*time.Millisecond, 20*time.Second))
		g.dry = true
		a := watch(t, g, 20*time.Minute)
		worst, _ := misattributed(g, a.joules)
		assert.LessOrEqual(t, worst, 0.05)
		assert.InEpsilon(t, g.used[1].Seconds(), a.used[1].Seconds(), 0.02)
		assert.True(t, a.busy <= a.elapsed*3/4 && a.elapsed >= 19*time.Minute, "busy %v of %v", a.busy, a.elapsed)
	})
}
