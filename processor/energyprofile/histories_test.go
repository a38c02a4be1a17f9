// SPDX-License-Identifier: Apache-2.0

package energyprofile

import (
	"context"
	"flag"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/energyreceiver/energyreceiver/feed"
)

var histories = flag.Uint64("histories", 500, "number of random histories")

// history is a machine whose processes, meters, clock and profiler change at random.
type history struct {
	*rand.Rand
	*fixture

	time       time.Time
	attributed time.Time // until when the slow meter has reported
	slow       bool
	packages   bool           // rows are divided by package
	owed       map[key]uint64 // energy of the slow meter that is not reported yet
	living     []key
	born       time.Duration
	want       map[key]uint64
	node       uint64
}

func newHistory(seed uint64, f *fixture) *history {
	h := &history{Rand: rand.New(rand.NewPCG(seed, 36)), fixture: f, time: boot.Add(time.Hour), owed: map[key]uint64{}, want: map[key]uint64{}}
	h.attributed, h.slow, h.packages, h.born = h.time, h.IntN(2) == 0, h.IntN(2) == 0, time.Minute
	for range 4 {
		h.bear()
	}
	return h
}

// bear starts a process. PIDs are few, so that they are reused.
func (h *history) bear() {
	h.born += time.Duration(1+h.IntN(500)) * 10 * time.Millisecond
	h.living = append(h.living, key{int32(1 + h.IntN(6)), h.born})
}

// window passes a random time and hands it out.
func (h *history) window() {
	w := &feed.Window{Start: h.time, Boot: boot, Kinds: []feed.Kind{{Zone: "package", Method: "measured"}, {Zone: "dram", Method: "measured"}}}
	h.time = h.time.Add(time.Duration(1+h.IntN(2000)) * time.Millisecond)
	if h.IntN(50) == 0 { // the clock is set
		h.time = h.time.Add(time.Duration(h.IntN(7200)-3600) * time.Second)
	}
	if h.packages {
		w.Packages = []int32{0, 1, 0}
	}
	reports := !h.slow || h.IntN(4) == 0
	if w.End = h.time; reports {
		h.attributed = h.time
	}
	w.Attributed = h.attributed
	idle, unattributed, short := h.Uint64N(1e6), h.Uint64N(1e4), h.Uint64N(1e4)
	w.Idle, w.Unattributed, w.Active = []uint64{idle, 0}, []uint64{unattributed, 0}, []uint64{unattributed + short, 0}
	for i := 0; i < len(h.living); i++ {
		if k := h.living[i]; h.IntN(2) == 0 {
			h.run(w, k, reports)
		}
		if h.IntN(20) == 0 { // it exits
			h.living = append(h.living[:i], h.living[i+1:]...)
			i--
		}
	}
	for h.IntN(3) == 0 {
		h.bear()
	}
	h.node += w.Active[0] + w.Active[1] + idle
	h.publish(w)
}

// run gives a process energy. That of a process that has exited is not reported any more.
func (h *history) run(w *feed.Window, k key, reports bool) {
	fast := h.Uint64N(1e6)
	h.owed[k] += h.Uint64N(1e5)
	row := feed.Process{PID: k.pid, Start: k.start, Executable: "a", CPU: time.Duration(h.IntN(1e9)), Energy: []uint64{fast, 0}}
	if reports {
		row.Energy[1], h.owed[k] = h.owed[k], 0
	}
	if h.packages {
		row.Packages = h.divide(&row)
	}
	w.Active[0] += row.Energy[0]
	w.Active[1] += row.Energy[1]
	h.want[k] += row.Energy[0] + row.Energy[1]
	w.Processes = append(w.Processes, row)
}

// divide returns parts of a row in two packages, which may have energy without CPU time, and the reverse.
func (h *history) divide(row *feed.Process) []feed.Part {
	var parts [2]feed.Part
	cpu, energy := row.CPU, row.Energy[0]
	for i := range parts {
		parts[i] = feed.Part{CPU: time.Duration(h.Int64N(int64(cpu) + 1)), Energy: []uint64{h.Uint64N(energy + 1), 0}}
		cpu, energy = cpu-parts[i].CPU, energy-parts[i].Energy[0]
	}
	return parts[:]
}

// batch returns samples of some PIDs, most of them of the last seconds.
func (h *history) batch() *samples {
	b := newSamples()
	for pid := range int32(8) {
		for range h.IntN(3) {
			times := make([]uint64, h.IntN(5))
			for i := range times {
				times[i] = uint64(h.time.UnixNano() - h.Int64N(8e9) + 1e9)
			}
			b.add(pid, times...)
			if cpu := h.Int64N(6); cpu > 0 {
				b.on(cpu - 2)
			}
		}
	}
	return b
}

func TestSamplesAddUpToTheEnergyOfEachProcessWhateverHappens(t *testing.T) {
	for seed := range *histories {
		cfg := createDefaultConfig().(*Config)
		cfg.Idle, cfg.Unattributed, cfg.Wait = true, true, time.Duration(seed%4)*10*time.Second
		h := newHistory(seed, start(t, cfg))
		h.feed.Serve(func(context.Context) {
			for range h.IntN(4) {
				h.window()
			}
		})
		h.now = func() time.Time { return h.time }
		for range 1 + h.IntN(10) {
			h.consume(h.batch())
		}
		h.feed.Serve(nil)
		got := h.end()
		require.Equal(t, h.node, got.all, "seed %d: the node", seed)
		for k, want := range h.want {
			require.Equal(t, want, got.byProcess[processName(k)], "seed %d: %v", seed, k)
		}
	}
}
