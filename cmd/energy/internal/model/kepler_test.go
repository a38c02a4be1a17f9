// SPDX-License-Identifier: Apache-2.0

package model

import (
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/energyreceiver/energyreceiver/cmd/energy/internal/golden"
	"github.com/energyreceiver/energyreceiver/cmd/energy/internal/model/fit"
	"github.com/energyreceiver/energyreceiver/cmd/energy/internal/snapshot"
	"github.com/energyreceiver/energyreceiver/internal/power"
	"github.com/energyreceiver/energyreceiver/internal/power/model"
	"github.com/energyreceiver/energyreceiver/internal/power/model/trained"
)

// counted returns a record of two hours. The package draws 50 W plus 2 W for each 1e9 instructions
// per second, at 1 to 2 instructions per cycle.
func counted(t *testing.T) *Record {
	t.Helper()
	r := &Record{Machine: &testMachine}
	joules, random := 0.0, rand.New(rand.NewPCG(1, 2))
	for second := 10; second <= 7200; second += 10 {
		at, load := float64(began+second), float64(second/10%21)/20
		cycles := 1e11 * load
		instructions := cycles * (1 + random.Float64())
		joules += 10 * (50 + 2e-9*instructions)
		r.add(utilization, point{at, load})
		r.add(zones(power.Package, power.Measured), point{at, joules})
		for name, rate := range map[string]float64{"cpu_cycles": cycles, "cpu_instructions": instructions, "cache_miss": 1e6 * load * load} {
			r.add(counter{kind: rateKind, id: name}, point{at, rate})
		}
	}
	var text strings.Builder
	require.NoError(t, r.Write(&text))
	again, err := ReadRecord([]byte(text.String()))
	require.NoError(t, err)
	require.Equal(t, r, again)
	assert.Empty(t, again.sensors())
	return again
}

// docs/power-models.md shows the errors of absolute power.
func TestDocsShowTheErrorsOnNX12(t *testing.T) {
	text, err := os.ReadFile("../../../../receiver/test/replay/testdata/kmdb-nx12-cputime.csv")
	require.NoError(t, err)
	machine := testMachine
	machine.Threads, machine.Sockets = 32, 2
	r := &Record{Machine: &machine}
	counters := []counter{utilization, zones(power.Package, power.Measured), zones(power.DRAM, power.Measured)}
	for _, name := range []string{"cpu_cycles", "cpu_instructions", "cache_miss"} {
		counters = append(counters, counter{kind: rateKind, id: name})
	}
	joules := make([]float64, len(counters))
	for line := range strings.Lines(string(text)) {
		fields := strings.Split(strings.TrimSpace(line), ",")
		if at, err := strconv.ParseFloat(fields[0], 64); err == nil {
			seconds, _ := strconv.ParseFloat(fields[1], 64)
			for i, column := range []int{2, 3, 4, 6, 7, 8} {
				v, err := strconv.ParseFloat(fields[column], 64)
				require.NoError(t, err)
				if joules[i] += seconds * v; counters[i].kind == sumOfZones {
					v = joules[i]
				}
				r.add(counters[i], point{at, v})
			}
		}
	}
	result, err := r.Train(time.Minute, noon)
	require.NoError(t, err)
	var out strings.Builder
	result.Compare().WriteText(&out)
	golden.Equal(t, "kepler.golden", out.String())
	page, err := os.ReadFile("../../../../docs/power-models.md")
	require.NoError(t, err)
	absolute, _, _ := strings.Cut(out.String(), "\n\nDynPower")
	assert.Contains(t, string(page), absolute)
}

func TestModelsOfKeplerModelServerAreComparedAndWritten(t *testing.T) {
	result, err := counted(t).Train(time.Minute, noon)
	require.NoError(t, err)
	c := result.Compare()
	var text strings.Builder
	c.WriteText(&text)
	assert.Contains(t, text.String(), "Best: SGDRegressorTrainer over CounterOnly\n")

	dir := t.TempDir()
	files, err := c.Encode(dir)
	require.NoError(t, err)
	assert.Len(t, files, 6)
	for path, data := range files {
		require.NoError(t, os.WriteFile(path, data, 0o600))
	}
	curves, err := trained.Curves(dir, testMachine, trained.Options{})
	require.NoError(t, err)
	require.Len(t, curves, 1)
	assert.InDelta(t, 50, curves[0].IdleWatts(), 1)
	busy := model.Rates{model.CPUTime: 48_000, model.Cycles: 5e10, model.Instructions: 7.5e10, model.CacheMisses: 250_000}
	assert.InDelta(t, 200, curves[0].Function(&busy), 1)
	assert.Contains(t, curves[0].Basis, "with the dynamic power of DynPower-")

	countless := trained.Options{Readable: func(f model.Feature) error {
		return map[bool]error{true: errors.New("no PMU")}[f != model.CPUTime]
	}}
	curves, err = trained.Curves(dir, testMachine, countless)
	require.NoError(t, err)
	assert.Contains(t, curves[0].Basis, "AbsPower-BPFOnly.json")
}

func TestARecordWithoutHardwareCountersIsComparedOverCPUTime(t *testing.T) {
	result, _ := train(t, fleet(1).record(3600))
	c := result.Compare()
	var text strings.Builder
	c.WriteText(&text)
	assert.Contains(t, text.String(), "The record has no hardware counters")
	files, err := c.Encode(t.TempDir())
	require.NoError(t, err)
	assert.Len(t, files, 2)
}

func TestAPolynomialIsNotTheBestBecauseTheFormatCannotHoldIt(t *testing.T) {
	c := Comparison{rows: []compared{
		{&fit.Groups[0], fit.Polynomial, [2][]float64{{0.1}, {0.1}}},
		{&fit.Groups[0], fit.Linear, [2][]float64{{0.3}, {0.2}}},
		{&fit.Groups[0], fit.Boosted, [2][]float64{{0.2}, {0.3}}},
	}}
	assert.Equal(t, fit.Boosted, c.best(0, "").trainer)
	assert.Equal(t, fit.Linear, c.best(1, "BPFOnly").trainer)
	assert.Nil(t, c.best(0, "Basic"))
}

func TestTheSamplesOfATrainingAreBounded(t *testing.T) {
	r := Record{Machine: &testMachine}
	assert.LessOrEqual(t, len(r.withRates(make([]window, 2*mostSamples+2))), mostSamples)
}

// fakeCounters counts cycles only.
type fakeCounters struct{}

func (fakeCounters) Readable(f model.Feature) error {
	return map[bool]error{true: errors.New("no PMU")}[f != model.Cycles]
}

func (fakeCounters) Rates(time.Time) (model.Rates, error) { return model.Rates{model.Cycles: 5}, nil }

func TestHardwareCountersThatCanBeReadAreRecorded(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	r := &Record{}
	require.NoError(t, r.Collect(ctx, Source{
		Read:  func(context.Context) (*snapshot.Snapshot, error) { return snapshotAt(1, 0.5, 1, 1, 1), nil },
		Every: time.Hour, Counters: fakeCounters{}, Progress: func(*snapshot.Snapshot) { stop() },
	}))
	require.Len(t, r.series[counter{kind: rateKind, id: "cpu_cycles"}], 1)
	assert.Empty(t, r.series[counter{kind: rateKind, id: "cpu_instructions"}])
}
