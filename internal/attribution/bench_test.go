// SPDX-License-Identifier: Apache-2.0

package attribution

import (
	"fmt"
	"testing"
	"time"

	"github.com/energyreceiver/energyreceiver/internal/units"
)

// waitingCrowd returns an engine with n processes, all of which have earned one of 500 series, and an interval in which the first hundred
// use the CPUs. The interval ends a collection.
func waitingCrowd(n int) (*Engine, *Interval) {
	var limits Limits
	limits[units.ProcessEntity] = Limit{MinEnergy: 1, Max: 500}
	e := New(Config{Limits: limits}, time.Unix(0, 0))
	iv := &Interval{
		At: time.Unix(1, 0), Elapsed: time.Second, EndsCollection: true,
		Domains: []Usage{{Busy: 1, Total: 2}}, Zones: []ZoneReading{{OK: true}},
	}
	e.Observe(iv)
	for i := range n {
		owner := units.Owner{Process: units.Process{PID: int32(i + 1), Created: fmt.Sprint(i), Executable: "app"}}
		iv.Domains[0].Claims = append(iv.Domains[0].Claims, Claim{Claimant: e.Open(owner, time.Unix(0, 0)), CPU: units.CPUTime(n - i)})
	}
	collectOnce(e, iv)
	iv.Domains[0].Claims = iv.Domains[0].Claims[:min(n, 100)]
	return e, iv
}

func collectOnce(e *Engine, iv *Interval) {
	iv.Zones[0].Total += 100 * units.Joule
	e.Observe(iv)
	e.Emitted()
	e.Acknowledged()
}

// BenchmarkManyCandidates measures what the engine has to do in a collection with a hundred active processes of many that have earned a
// series. The pause in which other programs use the caches is not measured.
func BenchmarkManyCandidates(b *testing.B) {
	others := make([]byte, 64<<20)
	for _, n := range []int{500, 10_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			e, iv := waitingCrowd(n)
			b.ReportAllocs()
			for b.Loop() {
				b.StopTimer()
				for i := 0; i < len(others); i += 64 {
					others[i]++
				}
				b.StartTimer()
				collectOnce(e, iv)
			}
		})
	}
}

// BenchmarkLateMeter measures an interval of a second in which a thousand processes run, with a
// meter that is polled each interval and is late.
func BenchmarkLateMeter(b *testing.B) {
	for _, lag := range []time.Duration{0, 100 * time.Millisecond, 5 * time.Second, time.Minute} {
		b.Run(lag.String(), func(b *testing.B) {
			bench := newBench(b, Config{})
			var claims []Claim
			for pid := range int32(1000) {
				claims = append(claims, Claim{Claimant: bench.open(pid + 1), CPU: units.CPUTime(time.Millisecond)})
			}
			b.ReportAllocs()
			for b.Loop() {
				bench.pass(time.Second, lag, 100*units.Joule, units.CPUTime(time.Second), claims...)
			}
		})
	}
}
