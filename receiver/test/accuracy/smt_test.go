// SPDX-License-Identifier: Apache-2.0

//go:build linux && (amd64 || arm64)

package main

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/energyreceiver/energyreceiver/internal/usage/cpu"
)

func TestThreadsThatShareACoreAreBilledForLess(t *testing.T) {
	const s, ms = time.Second, time.Millisecond
	for _, c := range []struct {
		scenario string
		weight   float64
		window   time.Duration
		source   cpu.SourceKind
		from, to float64 // misattributed
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
		{"Hyperthreads in bursts", 0.6, s, cpu.KindBPF, 0.05, 0.08}, // it is not known which threads were busy at the same time
		{"Hyperthreads in bursts", 0.6, 100 * ms, cpu.KindBPF, 0, 0.03},
		{"Hyperthreads in bursts", 0.6, 10 * ms, cpu.KindBPF, 0, 0.005},
	} {
		i := slices.IndexFunc(simHardware, func(sc simScenario) bool { return sc.name == c.scenario })
		setting := sharing(c.weight, c.window)
		setting.source = c.source
		a := measure(t, simHardware[i], setting, 10*time.Second)
		name := fmt.Sprintf("%s, smt_weight %g, windows of %v, %s", c.scenario, c.weight, c.window, c.source)
		assert.GreaterOrEqual(t, a.misattributed, c.from, name)
		assert.LessOrEqual(t, a.misattributed, c.to, name)
	}
}
