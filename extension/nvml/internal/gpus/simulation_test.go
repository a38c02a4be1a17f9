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

// watch polls a GPU every second, for so long, and returns what the polls told. each is called after every poll.
func watch(t *testing.T, g *gpu, every, length time.Duration, each func(a *account)) *account {
	t.Helper()
	r := New(func() (nvml.Library, error) { return &driver{gpus: []*gpu{g}}, nil })
	a := newAccount(g.watts[0])
	for began := time.Now(); time.Since(began) < length; time.Sleep(every) {
		devices, err := r.Poll(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		a.take(t, &devices[0])
		if each != nil {
			each(a)
		}
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

func TestSteadyLoad(t *testing.T) {
	for _, lists := range []bool{false, true} {
		for _, lag := range []time.Duration{1, 300 * time.Millisecond, time.Second} {
			t.Run(fmt.Sprintf("lists=%v lag=%v", lists, lag), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					g := newGPU(func(at time.Duration) uint32 {
						if at/time.Millisecond%4 < 3 {
							return 3
						}
						return 1
					})
					g.lists, g.lag = lists, jitter(lag)
					if !lists { // else the process that ran last is always the same
						rng := rand.New(rand.NewPCG(1, 2))
						g.runs = func(time.Duration) uint32 { return []uint32{1, 3, 3, 3}[rng.IntN(4)] }
					}
					a := watch(t, g, time.Second, 20*time.Minute, nil)
					share := a.joules[3] / (a.joules[1] + a.joules[3] + a.lost)
					t.Logf("share %.4f of 0.75, unattributed %v of %v", share, a.unattributed, a.elapsed)
					if math.Abs(share/0.75-1) > 0.02 {
						t.Errorf("share %.4f, want 0.75", share)
					}
				})
			})
		}
	}
}
