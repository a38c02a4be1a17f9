// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"encoding/csv"
	"flag"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/energyreceiver/energyreceiver/internal/power/model/ridge"
)

var fairCO2 = flag.String("fairco2", "", "directory colocation/ref-results of the repository S4AI-CornellTech/fair-co2")

// run is a run of one program or of two on a server with 96 CPUs, with 48 CPUs for each.
type run struct {
	programs []program
	watts    map[string]float64 // active power of each zone
	traffic  float64            // of memory, by the system's counters
}

// program is a program of a run. period is the mean time of a repetition.
type program struct {
	name         string
	busy, period float64
}

// rows calls f for each row of a CSV file with a function that returns a cell.
func rows(t *testing.T, path string, f func(cell func(string) string)) {
	file, err := os.Open(path)
	require.NoError(t, err)
	defer func() { _ = file.Close() }() // it was only read
	r := csv.NewReader(file)
	header, err := r.Read()
	require.NoError(t, err)
	for {
		row, err := r.Read()
		if err == io.EOF {
			return
		}
		require.NoError(t, err)
		f(func(name string) string { return row[slices.Index(header, name)] })
	}
}

// number returns the number in a cell that all rows have.
func number(t *testing.T, text string) float64 {
	v, err := strconv.ParseFloat(text, 64)
	require.NoError(t, err)
	return v
}

// moment returns the time in a cell. Fractions of a second are optional.
func moment(t *testing.T, text string) time.Time {
	at, err := time.Parse(time.DateTime, text)
	require.NoError(t, err)
	return at
}

// readRun reads a run. Memory traffic is the mean while all programs ran.
func readRun(t *testing.T, dir string) (r run) {
	var from, to time.Time
	rows(t, filepath.Join(dir, "workload_data.csv"), func(cell func(string) string) {
		value := func(name string) float64 { return number(t, cell(name)) }
		r.programs = append(r.programs, program{cell("workload"), value("cpu_util_avg"), value("runtime")})
		r.watts = map[string]float64{"package": value("total CPU dynamic power (W)"), "dram": value("total DRAM dynamic power (W)")}
		if begin := moment(t, cell("start")); from.Before(begin) {
			from = begin
		}
		if end := moment(t, cell("end")); to.IsZero() || end.Before(to) {
			to = end
		}
	})
	var traffic []float64
	rows(t, filepath.Join(dir, "pcm_processed.csv"), func(cell func(string) string) {
		if at := moment(t, cell("Datetime")); !at.Before(from) && !at.After(to) {
			read, write := cell("Memory Read Bandwidth (System) (GB/s)"), cell("Memory Write Bandwidth (System) (GB/s)")
			traffic = append(traffic, number(t, read)+number(t, write))
		}
	})
	r.traffic = Mean(traffic)
	return r
}

// sample returns a run as a sample of a zone. Memory traffic replaces cache misses.
func (r *run) sample(zone string) ridge.Sample {
	s := ridge.Sample{Seconds: 60, Misses: r.traffic, Watts: r.watts[zone]}
	for _, p := range r.programs {
		s.Base += p.busy
	}
	return s
}

// has reports whether a program is part of the run.
func (r *run) has(name string) bool {
	return slices.ContainsFunc(r.programs, func(p program) bool { return p.name == name })
}

// colocations holds all runs, and the runs of one program by its name.
type colocations struct {
	runs []run
	solo map[string]run
}

// traffic returns the memory traffic of a program in a run: its traffic alone, reduced in
// proportion to its slowdown. The traffic of each program was not measured.
func (c *colocations) traffic(p program) float64 {
	alone := c.solo[p.name]
	return alone.traffic * alone.programs[0].period / p.period
}

// modelShare returns the share of the first program of a pair by a power model, which is not fitted
// to runs with either program.
func (c *colocations) modelShare(t *testing.T, pair *run, zone string) float64 {
	var m ridge.Model
	a, b := pair.programs[0], pair.programs[1]
	for i := range c.runs {
		if r := &c.runs[i]; !r.has(a.name) && !r.has(b.name) {
			m.Observe(r.sample(zone))
		}
	}
	fit, ok := m.Coefficients()
	require.True(t, ok)
	first, second := fit.Watts(a.busy, 0, c.traffic(a)), fit.Watts(b.busy, 0, c.traffic(b))
	return first / (first + second)
}

// readRuns reads all runs.
func readRuns(t *testing.T, dir string) *colocations {
	c := &colocations{solo: map[string]run{}}
	paths, err := filepath.Glob(filepath.Join(dir, "*", "workload_data.csv"))
	require.NoError(t, err)
	for _, path := range paths {
		r := readRun(t, filepath.Dir(path))
		if c.runs = append(c.runs, r); len(r.programs) == 1 {
			c.solo[r.programs[0].name] = r
		}
	}
	return c
}

// constant returns the power of the memory without traffic, above the power at rest, by a straight
// line over all runs.
func (c *colocations) constant() float64 {
	var traffic, watts []float64
	for _, r := range c.runs {
		traffic, watts = append(traffic, r.traffic), append(watts, r.watts["dram"])
	}
	mean, product, square := Mean(traffic), 0., 0.
	for i, x := range traffic {
		product += (x - mean) * watts[i]
		square += (x - mean) * (x - mean)
	}
	return Mean(watts) - product/square*mean
}

// rows returns the errors of the rules for a zone, whose power is reduced by a constant.
func (c *colocations) rows(t *testing.T, name, zone string, constant float64) []*Row {
	time, traffic, model := &Row{Zone: name, Rule: "CPU time"}, &Row{Zone: name, Rule: "memory traffic"}, &Row{Zone: name, Rule: "power model"}
	for i := range c.runs {
		r := &c.runs[i]
		if len(r.programs) < 2 || r.programs[0].name == r.programs[1].name {
			continue
		}
		a, b := r.programs[0], r.programs[1]
		g := Game{c.solo[a.name].watts[zone], c.solo[b.name].watts[zone], r.watts[zone]}.Less(constant)
		time.Add(g, a.busy/(a.busy+b.busy))
		traffic.Add(g, c.traffic(a)/(c.traffic(a)+c.traffic(b)))
		model.Add(g, c.modelShare(t, r, zone))
	}
	return []*Row{time, traffic, model}
}

func TestSharesOfPublishedColocationsAgainstBothReferences(t *testing.T) {
	if *fairCO2 == "" {
		t.Skip("requires the published runs (-fairco2 DIR)")
	}
	c := readRuns(t, *fairCO2)
	require.Len(t, c.runs, 135)
	constant := c.constant()
	above := c.rows(t, "dram above the constant", "dram", constant)
	t.Logf("constant %.1f W\n%s", constant, Table(slices.Concat(c.rows(t, "package", "package", 0), c.rows(t, "dram", "dram", 0), above)).Markdown())
	require.Len(t, above[0].againstSolo, 105)
	byTime, _ := above[0].Means()
	byTraffic, _ := above[1].Means()
	assert.Less(t, byTraffic, byTime, "memory traffic explains the memory's energy")
}

func TestShapleyValuesOfIndependentProgramsAreTheirEnergiesAlone(t *testing.T) {
	assert.InDelta(t, 0.75, Game{First: 30, Second: 10, Both: 40}.Shapley(), 1e-12)
	assert.InDelta(t, 0.75, Game{First: 30, Second: 10, Both: 25}.Solo(), 1e-12)
	assert.InDelta(t, 0.9, Game{First: 30, Second: 10, Both: 25}.Shapley(), 1e-12, "half of the saved energy belongs to the other program")
}
