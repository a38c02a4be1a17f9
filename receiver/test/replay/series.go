// SPDX-License-Identifier: Apache-2.0

// Package replay runs the trained static power model on published measurements of real machines.
//
// Read reads clones of the original repositories and extracts of them; dev/replay.md lists both.
// The other functions compute the figures of real machines that docs/accuracy.md quotes.
package replay

import (
	"bytes"
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

// Sample is the average utilization, 0 to 1, and power of a machine over an interval that ends at
// Time.
type Sample struct {
	Time, Seconds      float64
	Utilization, Watts float64
	// Events are the rates of the hardware events, 0 in a series without events.
	Events calibrated.Rates
}

// Series is the power of one zone of one machine.
type Series struct {
	Machine, Run, Zone string
	CPUs               int
	// Counter is set if the power is from an energy counter rather than a power sensor.
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

// readFile returns the series of a file. It skips files of other formats.
func readFile(path string) ([]Series, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	name, dir := strings.TrimSuffix(filepath.Base(path), ".csv"), filepath.Base(filepath.Dir(path))
	switch {
	case bytes.HasPrefix(text, []byte("# cpus=")):
		return readExtract(name, text)
	case bytes.HasPrefix(text, []byte("timestamp,powerWatts,")):
		return readPowerModelling(path, text)
	case strings.Contains(dir, "-max-") && strings.HasPrefix(name, "scaphandre-host"):
		return readScaphandre(path, text)
	case strings.Contains(dir, "-max-") && strings.HasPrefix(name, "powerapi_"):
		return readPowerAPI(path, text)
	default:
		return nil, nil
	}
}

// cells reads the cells of CSV files. It keeps the first error.
type cells struct{ err error }

// table returns the columns of a file and its rows, which may be short. Lines with # at the start
// are comments.
func (c *cells) table(text []byte) (columns []string, rows [][]string) {
	r := csv.NewReader(bytes.NewReader(text))
	r.Comment, r.FieldsPerRecord = '#', -1
	all, err := r.ReadAll()
	if c.keep(err); len(all) == 0 {
		return nil, nil
	}
	return all[0], all[1:]
}

// number returns the number in a cell, or NaN if the cell is empty.
func (c *cells) number(cell string) float64 {
	if cell == "" {
		return math.NaN()
	}
	n, err := strconv.ParseFloat(cell, 64)
	c.keep(err)
	return n
}

// time returns the time in a cell in seconds.
func (c *cells) time(cell string) float64 {
	at, err := time.Parse("2006-01-02 15:04:05.999999999", cell)
	c.keep(err)
	return float64(at.UnixNano()) / 1e9
}

func (c *cells) keep(err error) {
	if c.err == nil {
		c.err = err
	}
}

// readExtract reads the columns t, seconds, util, package, dram and wall, and the events of nx12:
// cycles, instructions and cache_misses.
func readExtract(name string, text []byte) ([]Series, error) {
	var c cells
	_, rows := c.table(text)
	var cpus int
	if _, err := fmt.Sscanf(string(text), "# cpus=%d", &cpus); err != nil {
		return nil, err
	}
	series := []Series{
		{Machine: "nx12", Run: strings.TrimPrefix(name, "kmdb-nx12-"), Zone: "package", CPUs: cpus, Counter: true},
		{Machine: "nx12", Run: strings.TrimPrefix(name, "kmdb-nx12-"), Zone: "dram", CPUs: cpus, Counter: true},
	}
	if machine, isWall := strings.CutPrefix(name, "mauro-"); isWall {
		at := strings.LastIndex(machine, "-")
		series = []Series{{Machine: machineName(machine[:at]), Run: machine[at+1:], Zone: "wall", CPUs: cpus}}
	}
	for i := range series {
		for _, row := range rows {
			x := Sample{Time: c.number(row[0]), Seconds: c.number(row[1]), Utilization: c.number(row[2]), Watts: c.number(row[3+i])}
			if series[i].Counter {
				x.Events = calibrated.Rates{c.number(row[6]), c.number(row[7]), c.number(row[8])}
			}
			series[i].add(x)
		}
	}
	return series, c.err
}

func machineName(name string) string {
	return strings.Join(strings.Fields(strings.ReplaceAll(name, "_", " ")), " ")
}

// add appends a sample, unless it is impossible or a value was not recorded (NaN).
func (s *Series) add(x Sample) {
	if x.Seconds > 0 && x.Utilization >= 0 && x.Utilization <= 1 && x.Watts > 0 {
		s.Samples = append(s.Samples, x)
	}
}

// readPowerModelling reads a file of github.com/maurocanuto/power-modelling, dataSets: wall power
// and the load of each core.
func readPowerModelling(path string, text []byte) ([]Series, error) {
	var c cells
	columns, rows := c.table(text)
	var cores []int
	for i, column := range columns {
		if number, ok := strings.CutPrefix(column, "Core_"); ok && strings.Trim(number, "0123456789") == "" {
			cores = append(cores, i)
		}
	}
	_, inside, _ := strings.Cut(filepath.ToSlash(path), "dataSets/")
	machine, _, _ := strings.Cut(inside, "/")
	s := Series{Machine: machineName(machine), Run: strings.TrimSuffix(filepath.Base(path), ".csv"), Zone: "wall", CPUs: len(cores)}
	if s.Machine == "AMD Opteron 6140" && len(cores) != 16 {
		return nil, nil // web_serving ran on another machine
	}
	last := 0.0
	for _, row := range rows {
		if len(row) < len(columns) {
			continue
		}
		x := Sample{Time: c.number(row[0]), Watts: c.number(row[1])}
		x.Seconds, last = x.Time-last, x.Time
		for _, i := range cores {
			x.Utilization += c.number(row[i]) / 100 / float64(len(cores))
		}
		if x.Utilization = min(x.Utilization, 1); x.Seconds <= 10 {
			s.add(x)
		}
	}
	return []Series{s}, c.err
}
