// SPDX-License-Identifier: Apache-2.0

//go:build linux && (amd64 || arm64)

package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/energyreceiver/energyreceiver/internal/usage/cpu"
)

func TestThreadsThatShareACoreAreBilledForLess(t *testing.T) {
	const s, ms = time.Second, time.Millisecond
	for _, c := range []struct {
		scenario string
		window   time.Duration
		source   cpu.SourceKind
		most     float64 // misattributed
	}{
		{"Hyperthreads", 0, cpu.KindProcfs, 0.001},
		{"Hyperthreads", s, cpu.KindProcfs, 0.001},
		{"Hyperthreads", 100 * ms, cpu.KindBPF, 0.001},
		{"Hyperthreads", 10 * ms, cpu.KindBPF, 0.001},
		{"Hyperthreads in bursts", 100 * ms, cpu.KindBPF, 0.03},
		{"Hyperthreads in bursts", 10 * ms, cpu.KindBPF, 0.005},
	} {
		setting := sharing(0.6, c.window)
		setting.source = c.source
		a := measure(t, simScenarioOf(t, c.scenario), setting, 10*time.Second)
		assert.LessOrEqual(t, a.misattributed, c.most, "%s, windows of %v, %s", c.scenario, c.window, c.source)
	}
}
