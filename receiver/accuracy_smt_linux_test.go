// SPDX-License-Identifier: Apache-2.0

//go:build amd64 || arm64

package energyreceiver

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/energyreceiver/energyreceiver/internal/usage/cpu"
)

// ofThreads are the scenarios in which threads share cores. Two busy ones draw 1.2 times one, so the weight 0.6 is correct.
var ofThreads = []string{"Hyperthreads", "Hyperthreads in bursts"}

// labThreads are settings with less for threads that share a core, with a correct static power model.
var labThreads = []labSetting{
	sharing(0.6, 0).among(ofThreads...), sharing(0.55, time.Second).among(ofThreads...), sharing(0.6, time.Second).among(ofThreads...),
	sharing(0.65, time.Second).among(ofThreads...), sharing(0.55, 100*time.Millisecond).among(ofThreads...),
	sharing(0.6, 100*time.Millisecond).among(ofThreads...), sharing(0.65, 100*time.Millisecond).among(ofThreads...),
	sharing(1, minWindow).among(ofThreads[1]), sharing(0.55, minWindow).among(ofThreads[1]), sharing(0.6, minWindow).among(ofThreads[1]),
	sharing(0.65, minWindow).among(ofThreads[1]),
}

// sharing returns a setting with a weight of time during which the sibling is busy, in windows of a length.
func sharing(weight float64, window time.Duration) labSetting {
	s := splitting(SplitFixed, window)
	s.name = fmt.Sprintf("%s, smt_weight %g, %s, BPF", SplitFixed, weight, lengths[window])
	fixed := s.configure
	s.configure = func(c *Config) {
		fixed(c)
		c.Attribution.SMTWeight = weight
	}
	return s
}

func TestThreadsThatShareACoreAreBilledForLess(t *testing.T) {
	const s, ms = time.Second, time.Millisecond
	for _, c := range []struct {
		scenario string
		weight   float64
		window   time.Duration
		source   cpu.Kind
		from, to float64 // misplaced
	}{
		{"Hyperthreads", 1, s, cpu.KindBPF, 0.10, 0.13},
		{"Hyperthreads", 0.6, 0, cpu.KindBPF, 0, 0.001},
		{"Hyperthreads", 0.6, 0, cpu.KindProcfs, 0, 0.001},
		{"Hyperthreads", 0.6, s, cpu.KindBPF, 0, 0.001},
		{"Hyperthreads", 0.6, s, cpu.KindProcfs, 0, 0.001},
		{"Hyperthreads", 0.6, 100 * ms, cpu.KindBPF, 0, 0.001},
		{"Hyperthreads", 0.6, 10 * ms, cpu.KindBPF, 0, 0.001},
		{"Hyperthreads", 0.55, s, cpu.KindBPF, 0.01, 0.03},
		{"Hyperthreads", 0.65, s, cpu.KindBPF, 0.01, 0.03},
		{"Hyperthreads in bursts", 1, 100 * ms, cpu.KindBPF, 0.10, 0.12},
		{"Hyperthreads in bursts", 0.6, s, cpu.KindBPF, 0.05, 0.08}, // who was busy at the same time is not known
		{"Hyperthreads in bursts", 0.6, 100 * ms, cpu.KindBPF, 0, 0.03},
		{"Hyperthreads in bursts", 0.6, 10 * ms, cpu.KindBPF, 0, 0.005},
	} {
		i := slices.IndexFunc(labHardware, func(sc labScenario) bool { return sc.name == c.scenario })
		setting := sharing(c.weight, c.window)
		setting.source = c.source
		a := measure(t, labHardware[i], setting, 10*time.Second)
		name := fmt.Sprintf("%s, smt_weight %g, windows of %v, %s", c.scenario, c.weight, c.window, c.source)
		assert.GreaterOrEqual(t, a.misplaced, c.from, name)
		assert.LessOrEqual(t, a.misplaced, c.to, name)
	}
}
