// SPDX-License-Identifier: Apache-2.0

//go:build linux && (amd64 || arm64)

package main

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

func TestNightsHaveLowLoadAndMomentsOfRest(t *testing.T) {
	l := &simulator{tb: t, root: t.TempDir(), nights: 0.05}
	l.on(straight(16, 20, 100))
	busy, energy := l.machine.Ran(), 0.0
	socket := l.machine.Sockets[0]
	var night, noon, resting []float64
	collections := 0
	l.day(24*time.Hour, func() {
		now := l.machine.Ran()
		load := float64(now-busy) / float64(16*10*time.Second)
		busy = now
		switch collections++; {
		case collections < 360, collections > 8640-360:
			night = append(night, load)
		case collections > 4320-180 && collections < 4320+180:
			noon = append(noon, load)
		}
		if above := socket.Energy.Package - socket.Idled.Package; above == energy {
			resting = append(resting, load)
		} else {
			energy = above
		}
	})
	mean := func(of []float64) (m float64) {
		for _, x := range of {
			m += x / float64(len(of))
		}
		return m
	}
	assert.InDelta(t, 0.06, mean(night), 0.01)
	assert.InDelta(t, 0.7, mean(noon), 0.03)
	assert.Less(t, len(resting), 10, "a collection of rest is rare")
	rest := 0
	a := dayLoad{mean: 0.05 * 16}
	r := rand.New(rand.NewPCG(1, 1))
	for range 10000 {
		if a.step(r); a.jobs == 0 {
			rest++
		}
	}
	assert.InDelta(t, math.Exp(-0.8), float64(rest)/10000, 0.05, "a moment of rest is not")
}

func TestLowLoadCurvesBeginAtRest(t *testing.T) {
	for _, c := range slices.Concat(simCurves(t), simCoreCurves(t)) {
		l := build(t, t.TempDir(), atLowLoad(c, 0.02), "")
		l.machine.Step(time.Second)
		s := l.machine.Sockets[0]
		assert.Greater(t, s.Energy.Package, s.Idled.Package, c.cpu)
		assert.InDelta(t, c.watts.Watts(0.5), s.Curve.Watts(0.5), 0, c.cpu)
		assert.LessOrEqual(t, s.Idle, c.watts[0].Watts, c.cpu)
		assert.Positive(t, s.Idle)
		assert.NotZero(t, l.nights)
	}
}
