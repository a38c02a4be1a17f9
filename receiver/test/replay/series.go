// SPDX-License-Identifier: Apache-2.0

// Package replay runs the trained static power model on published measurements of real machines.
//
// Read reads clones of the original repositories and extracts of them; dev/replay.md lists both. The other
// functions measure the figures of measured machines that docs/accuracy.md quotes.
package replay

import (
	"cmp"
	"encoding/csv"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/energyreceiver/energyreceiver/internal/attribution"
	"github.com/energyreceiver/energyreceiver/internal/units"
	"github.com/energyreceiver/energyreceiver/internal/usage/weigh/calibrated"
)

// Sample is the average utilization, 0 to 1, and power of a machine over an interval that ends at Time.
type Sample struct {
	Time, Seconds      float64
	Utilization, Watts float64
	// Events are the rates of the hardware events, 0 if they were not counted.
	Events calibrated.Rates
}

// Series is the power of one zone of one machine.
type Series struct {
	Machine, Run, Zone string
	CPUs               int
	// Counter reports whether the power is from an energy counter rather than a power sensor.
	Counter bool
	Samples []Sample
}

// String names the series.
func (s *Series) String() string { return s.Machine + " " + s.Run + " " + s.Zone }

// portion returns a sample as the receiver passes it to a static power model.
func (s *Series) portion(x Sample) attribution.Portion {
	elapsed := time.Duration(x.Seconds * 1e9)
	total := units.CPUTime(s.CPUs) * units.CPUTime(elapsed)
	return attribution.Portion{
		Energy: units.Energy(math.Round(x.Watts * x.Seconds * 1e6)), Elapsed: elapsed,
		Busy: min(units.CPUTime(x.Utilization*float64(total)), total), Total: total, Zones: 1, Of: 1, OfAll: 1,
	}
}

// Read returns all series below a directory, ordered by machine and time.
func Read(dir string) (all []Series, err error) {
	err = filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || filepath.Ext(path) != ".csv" {
			return err
		}
		read, err := readFile(path)
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		for _, s := range read {
			all = join(all, s)
		}
		return nil
	})
	slices.SortStableFunc(all, func(a, b Series) int {
		return cmp.Or(cmp.Compare(a.Machine, b.Machine), cmp.Compare(a.Zone, b.Zone), cmp.Compare(a.Samples[0].Time, b.Samples[0].Time))
	})
	return all, err
}

// join adds a series, or its samples to an earlier part of the same run.
func join(all []Series, s Series) []Series {
	if len(s.Samples) == 0 {
		return all
	}
	i := slices.IndexFunc(all, func(o Series) bool { return o.String() == s.String() })
	if i < 0 {
		return append(all, s)
	}
	all[i].Samples = append(all[i].Samples, s.Samples...)
	slices.SortStableFunc(all[i].Samples, func(a, b Sample) int { return cmp.Compare(a.Time, b.Time) })
	return all
}

// readFile returns the series of a file: none if the format is unknown.
func readFile(path string) ([]Series, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	first, rest, _ := strings.Cut(string(data), "\n")
	name := strings.TrimSuffix(filepath.Base(path), ".csv")
	switch {
	case strings.HasPrefix(first, "# cpus="):
		return readExtract(name, strings.TrimPrefix(first, "# cpus="), rest)
	case strings.HasPrefix(first, "timestamp,powerWatts,"):
		return readPowerModelling(path, string(data))
	case strings.HasPrefix(name, "scaphandre-host"):
		return readScaphandre(path, string(data))
	case strings.HasPrefix(name, "powerapi_"):
		return readPowerAPI(path, string(data))
	default:
		return nil, nil
	}
}

// readExtract reads the columns t, seconds, util, package, dram and wall, and those of nx12's events: cycles,
// instructions and cache_misses.
func readExtract(name, cpus, text string) ([]Series, error) {
	n, err := strconv.Atoi(cpus)
	if err != nil {
		return nil, err
	}
	rows, err := csv.NewReader(strings.NewReader(text)).ReadAll()
	if err != nil || len(rows) < 2 {
		return nil, err
	}
	source, run, _ := strings.Cut(name, "-")
	series := []Series{
		{Machine: "gemini-1", Run: run, Zone: "package", CPUs: n, Counter: true},
		{Machine: "gemini-1", Run: run, Zone: "dram", CPUs: n, Counter: true},
	}
	switch source {
	case "kmdb":
		series[0].Machine, series[1].Machine = "nx12", "nx12"
	case "mauro":
		at := strings.LastIndex(run, "-")
		series = []Series{{Machine: machineName(run[:at]), Run: run[at+1:], Zone: "wall", CPUs: n}}
	}
	for i := range series {
		for _, row := range rows[1:] {
			series[i].add(row[0], row[1], row[2], row[3+i])
		}
		if source == "kmdb" {
			series[i].addEvents(rows[1:])
		}
	}
	return series, nil
}

func machineName(name string) string {
	return strings.Join(strings.Fields(strings.ReplaceAll(name, "_", " ")), " ")
}

// add appends a sample, unless a column is not a number.
func (s *Series) add(columns ...string) {
	var v [4]float64
	for i, c := range columns {
		number, err := strconv.ParseFloat(c, 64)
		if err != nil {
			return
		}
		v[i] = number
	}
	if v[2] >= 0 && v[2] <= 1 && v[3] > 0 {
		s.Samples = append(s.Samples, Sample{Time: v[0], Seconds: v[1], Utilization: v[2], Watts: v[3]})
	}
}

// addEvents sets the events of the samples from the last columns of the rows, by time.
func (s *Series) addEvents(rows [][]string) {
	events := map[float64]calibrated.Rates{}
	for _, row := range rows {
		var rates calibrated.Rates
		for k := range rates {
			rates[k], _ = strconv.ParseFloat(row[len(row)-len(rates)+k], 64)
		}
		at, _ := strconv.ParseFloat(row[0], 64)
		events[at] = rates
	}
	for i := range s.Samples {
		s.Samples[i].Events = events[s.Samples[i].Time]
	}
}

// readPowerModelling reads a file of github.com/maurocanuto/power-modelling, dataSets: wall power and the
// load of each core.
func readPowerModelling(path, text string) ([]Series, error) {
	r := csv.NewReader(strings.NewReader(text))
	r.FieldsPerRecord = -1
	rows, err := r.ReadAll()
	if err != nil || len(rows) < 2 {
		return nil, err
	}
	var cores []int
	for i, column := range rows[0] {
		if number, ok := strings.CutPrefix(column, "Core_"); ok && strings.Trim(number, "0123456789") == "" {
			cores = append(cores, i)
		}
	}
	_, inside, _ := strings.Cut(filepath.ToSlash(path), "dataSets/")
	machine, _, _ := strings.Cut(inside, "/")
	s := Series{Machine: machineName(machine), Run: strings.TrimSuffix(filepath.Base(path), ".csv"), Zone: "wall", CPUs: len(cores)}
	if s.Machine == "AMD Opteron 6140" && len(cores) != 16 {
		return nil, nil // web_serving is of another machine
	}
	last := 0.0
	for _, row := range rows[1:] {
		if len(row) < len(rows[0]) {
			continue
		}
		at, _ := strconv.ParseFloat(row[0], 64)
		seconds := at - last
		last = at
		if seconds <= 0 || seconds > 10 {
			continue
		}
		load := 0.0
		for _, i := range cores {
			percent, _ := strconv.ParseFloat(row[i], 64)
			load += percent / 100 / float64(len(cores))
		}
		s.add(row[0], fmt.Sprint(seconds), fmt.Sprint(min(load, 1)), row[1])
	}
	return []Series{s}, nil
}
