// SPDX-License-Identifier: Apache-2.0

//go:build linux && (amd64 || arm64)

package main

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

// The models are trained for twenty minutes of simulated time. This is enough because the machine
// is near rest for part of that time.
func TestTheTruthIsWithinOneStandardDeviation(t *testing.T) {
	var figures []doubted
	settings := uncertaintySettings(20 * time.Minute)
	for _, setting := range []simSetting{settings[0], settings[3]} {
		for _, sc := range simAll() {
			if strings.HasPrefix(sc.name, "2,000") {
				continue // takes longer than all others together
			}
			a := measure(t, sc, setting, simShort)
			figures = append(figures, a.doubted(sc, setting)...)
		}
	}
	held, n := part(figures, ofWorkloads)
	t.Logf("%.0f %% of %d figures of workloads", 100*held, n)
	assert.InDelta(t, 0.675, held, 0.075, "of %d figures of workloads", n)
	held = heldOut(figures, simAll())
	t.Logf("%.0f %% with deviations from every other scenario alone", 100*held)
	assert.InDelta(t, 0.675, held, 0.1, "with deviations from every other scenario alone")
	held, n = part(figures, ofTheNode)
	t.Logf("%.0f %% of %d figures of nodes", 100*held, n)
	assert.GreaterOrEqual(t, held, 0.6, "of %d figures of nodes, which come near rest, so that the model overestimates the uncertainty", n)
}
