// SPDX-License-Identifier: Apache-2.0

//go:build linux && (amd64 || arm64)

package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

func TestThreadsThatShareACoreAreBilledForLess(t *testing.T) {
	for _, c := range []struct {
		scenario, options string
		most              float64 // misattributed
	}{
		{"Hyperthreads", "10 s, procfs", 0.001},
		{"Hyperthreads", "1 s, procfs", 0.001},
		{"Hyperthreads", "100 ms, BPF", 0.001},
		{"Hyperthreads", "10 ms, BPF", 0.001},
		{"Hyperthreads in bursts", "100 ms, BPF", 0.03},
		{"Hyperthreads in bursts", "10 ms, BPF", 0.005},
	} {
		a := measure(t, simScenarioOf(t, c.scenario), named("fixed, smt_weight 0.6, "+c.options), 10*time.Second)
		assert.LessOrEqual(t, a.misattributed, c.most, "%s, %s", c.scenario, c.options)
	}
}
