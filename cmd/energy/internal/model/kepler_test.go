// SPDX-License-Identifier: Apache-2.0

package model

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"regexp"
	"slices"
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

// compareAll returns the comparison of a result.
func compareAll(t *testing.T, result *Trained) *Comparison {
	t.Helper()
	c, err := result.Compare()
	require.NoError(t, err)
	return c
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
	compareAll(t, result).WriteText(&out)
	golden.Equal(t, "kepler.golden", out.String())
	page, err := os.ReadFile("../../../../docs/power-models.md")
	require.NoError(t, err)
	absolute, _, _ := strings.Cut(out.String(), "\n\nDynPower")
	assert.Contains(t, string(page), absolute)
	errs := regexp.MustCompile(`CounterOnly  (?:SGD|Xgb)\w+ [* ]+([\d.]+) %`).FindAllStringSubmatch(absolute, -1)
	require.Len(t, errs, 2)
	t.Attr("held-out-tenths", fmt.Sprintf("%s, %s %%", errs[0][1], errs[1][1]))
}

func TestModelsOfKeplerModelServerAreComparedAndWritten(t *testing.T) {
	result, err := counted(t).Train(time.Minute, noon)
	require.NoError(t, err)
	c := compareAll(t, result)
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
	c := compareAll(t, result)
	var text strings.Builder
	c.WriteText(&text)
	assert.Contains(t, text.String(), "CounterOnly and Basic require cycles,")
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

func TestALongRecordIsAveragedAndDividedIntoTenths(t *testing.T) {
	r := Record{Machine: &testMachine}
	windows := make([]window, 2*mostSamples+1)
	for i := range windows {
		load := float64(i%101) / 100
		windows[i] = window{From: float64(i), Seconds: 1, Load: load, Watts: 10 + 50*load}
	}
	assert.Len(t, r.withRates(windows[:mostSamples]), mostSamples)
	z := trainedZone{windows: r.withRates(windows), Zone: trained.Zone{Seconds: float64(len(windows)), Curve: curve(0, 10, 1, 60)}}
	assert.Len(t, z.windows, mostSamples*2/3+1)
	assert.InDelta(t, len(windows), secondsOf(z.windows), 0)
	assert.InDelta(t, (windows[0].Load+windows[1].Load+windows[2].Load)/3, z.windows[0].Load, 1e-12)
	c := Comparison{zones: []*trainedZone{&z}}
	row := c.compare(&fit.Groups[0], fit.Linear)
	assert.InDelta(t, 0, row.errs[0][0], 1e-3)
}

// The rates of hardware counters are required by the groups that have them only.
func TestHardwareCountersMayStartLate(t *testing.T) {
	for seconds, files := range map[int]int{720: 6, 200: 2} {
		r := counted(t)
		for c, points := range r.series {
			if c.kind == rateKind {
				r.series[c] = points[len(points)-seconds/10-1:]
			}
		}
		result, err := r.Train(time.Minute, noon)
		require.NoError(t, err)
		c := compareAll(t, result)
		assert.InDelta(t, 7190, secondsOf(c.zones[0].windowsOf(&fit.Groups[0])), 20)
		got, err := c.Encode("models")
		require.NoError(t, err)
		assert.Len(t, got, files)
	}
}

func TestHardwareCountersOverOneLoadTrainNoModel(t *testing.T) {
	r := counted(t)
	for c := range r.series {
		if c.kind == rateKind {
			r.series[c] = nil
		}
	}
	energy := zones(power.Package, power.Measured)
	last := r.series[energy][len(r.series[energy])-1]
	for i := 1; i <= 72; i++ {
		at, load := last.Time+10*float64(i), 0.04+0.002*float64(i%5)
		r.add(utilization, point{at, load})
		r.add(energy, point{at, last.Value + 600*float64(i)})
		for _, f := range fit.Counters {
			r.add(counter{kind: rateKind, id: trained.FeatureName(f)}, point{at, 1e9 * load})
		}
	}
	result, err := r.Train(time.Minute, noon)
	require.NoError(t, err)
	files, err := compareAll(t, result).Encode("models")
	require.NoError(t, err)
	assert.ElementsMatch(t, []string{"models/AbsPower-BPFOnly.json", "models/DynPower-BPFOnly.json"}, slices.Collect(maps.Keys(files)))
}

func TestAZoneOfConstantPowerIsLeftOutOfDynamicPower(t *testing.T) {
	r := counted(t)
	for _, p := range r.series[utilization] {
		r.add(zones(power.DRAM, power.Measured), point{p.Time, 5 * (p.Time - began)})
	}
	result, err := r.Train(time.Minute, noon)
	require.NoError(t, err)
	c := compareAll(t, result)
	var text strings.Builder
	c.WriteText(&text)
	assert.NotRegexp(t, "NaN|Inf", text.String())
	absolute, dynamic, _ := strings.Cut(text.String(), "DynPower")
	const note = "A zone without an error below 100 % is left out."
	assert.NotContains(t, absolute, note)
	assert.Contains(t, dynamic, note)
	files, err := c.Encode("models")
	require.NoError(t, err)
	require.Len(t, files, 6)
	assert.Contains(t, string(files["models/AbsPower-Basic.json"]), `"dram"`)
	assert.Contains(t, string(files["models/DynPower-Basic.json"]), `"package"`)
	assert.NotContains(t, string(files["models/DynPower-Basic.json"]), `"dram"`)

	for i := range c.rows {
		c.rows[i].errs[0][1] = 1
	}
	files, err = c.Encode("models")
	require.NoError(t, err)
	assert.NotContains(t, string(files["models/AbsPower-Basic.json"]), `"dram"`)
}

func TestARecordOfPSysOnlyIsNotCompared(t *testing.T) {
	r := counted(t)
	r.series[zones(power.PSys, power.Measured)] = r.series[zones(power.Package, power.Measured)]
	delete(r.series, zones(power.Package, power.Measured))
	result, err := r.Train(time.Minute, noon)
	require.NoError(t, err)
	_, err = result.Compare()
	require.ErrorContains(t, err, "psys is not supported")
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
	require.EqualError(t, Unreadable(fakeCounters{}), "no PMU")
}
