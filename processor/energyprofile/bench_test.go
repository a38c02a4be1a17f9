// SPDX-License-Identifier: Apache-2.0

package energyprofile

import (
	"testing"

	"go.opentelemetry.io/collector/consumer/consumertest"
)

// BenchmarkFiveSeconds is the work of five seconds on a node with 10,000 processes, of which 500 run in each
// window of a second, with a profiler that takes 200 samples of 200 processes.
func BenchmarkFiveSeconds(b *testing.B) {
	p := start(b, createDefaultConfig().(*Config))
	p.next = consumertest.NewNop()
	w := windowOf(0, 1000, 1)
	for i := range 10_000 {
		row := w.Processes[0]
		row.PID, row.Energy = int32(i+1), []uint64{1000}
		w.Processes = append(w.Processes, row)
	}
	all := w.Processes[1:]
	w.Active[0] = 500 * 1000
	b.ReportAllocs()
	second := 0
	for b.Loop() {
		for range 5 {
			w.Start, w.End = at(1000*second), at(1000*second+1000)
			w.Attributed = w.End
			w.Processes = all[second%20*500:][:500]
			p.intake.take(w)
			second++
		}
		s := newSamples()
		for i := range 200 {
			s.add(w.Processes[i].PID, ns(1000*second-i))
		}
		p.consume(s)
	}
}
