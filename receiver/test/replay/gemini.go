// SPDX-License-Identifier: Apache-2.0

package replay

import (
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// The files of github.com/vladostp/an-experimental-comparison-of-software-based-power-meters,
// CPU_benchmarks/results, of the machine gemini-1. A folder is a run, and a run has parts, each with its own
// files.

const timeLayout = "2006-01-02 15:04:05.999999999"

// unixTime returns a time of these files in seconds.
func unixTime(text string) (float64, error) {
	at, err := time.Parse(timeLayout, text)
	return float64(at.UnixNano()) / 1e9, err
}

// geminiRun returns an empty series for a file of a run.
func geminiRun(tool, path, zone string, cpus int) Series {
	_, run, _ := strings.Cut(filepath.Base(filepath.Dir(path)), "grid5000.fr-")
	return Series{Machine: "gemini-1", Run: tool + "max-" + run, Zone: zone, CPUs: cpus, Counter: true}
}

// readScaphandre reads a file scaphandre-host*.csv: the power of the packages or of the memory every 5 s. The
// file cpu-load*.csv of the same part has the load at the same times.
func readScaphandre(path, text string) ([]Series, error) {
	_, part, _ := strings.Cut(filepath.Base(path), "_")
	load, err := readLoad(filepath.Join(filepath.Dir(path), "cpu-load-scaphandre_"+part))
	if load == nil || err != nil {
		return nil, err
	}
	rows, err := csv.NewReader(strings.NewReader(text)).ReadAll()
	if err != nil {
		return nil, err
	}
	zone := "package"
	if strings.Contains(filepath.Base(path), "-ram_") {
		zone = "dram"
	}
	s := geminiRun("scaph", path, zone, load.cpus)
	for _, row := range rows[1:] {
		n := len(row) // the last two columns are the time and the power
		at, err := unixTime(row[n-2])
		if err != nil {
			return nil, err
		}
		if utilization, ok := load.at(at); ok {
			s.add(fmt.Sprint(at), "5", fmt.Sprint(utilization), row[n-1])
		}
	}
	return []Series{s}, nil
}

// readPowerAPI reads a file powerapi_*.csv, which has the power of each socket every second.
func readPowerAPI(path, text string) ([]Series, error) {
	name := strings.TrimPrefix(filepath.Base(path), "powerapi_")
	load, err := readLoad(filepath.Join(filepath.Dir(path), "cpu-load-powerapi_"+name))
	if load == nil && err == nil {
		load, err = readExperiment(filepath.Join(filepath.Dir(path), "experiments.json"), strings.TrimSuffix(name, ".csv"))
	}
	if load == nil || err != nil {
		return nil, err
	}
	rows, err := csv.NewReader(strings.NewReader(text)).ReadAll()
	if err != nil || len(rows) < 2 {
		return nil, err
	}
	s := geminiRun("powerapi", path, "package", load.cpus)
	last := 0.0
	watts := map[float64]float64{}
	for _, row := range rows[1:] {
		if row[2] != "rapl" || row[4] != "cpu" {
			continue
		}
		at, err := unixTime(row[1])
		if err != nil {
			return nil, err
		}
		power, err := strconv.ParseFloat(row[3], 64)
		if err != nil {
			return nil, err
		}
		if _, second := watts[at]; !second {
			watts[at] = power
			continue
		}
		seconds := at - last
		last = at
		if utilization, ok := load.at(at); ok && seconds > 0 && seconds < 10 {
			s.add(fmt.Sprint(at), fmt.Sprint(seconds), fmt.Sprint(utilization), fmt.Sprint(watts[at]+power))
		}
	}
	return []Series{s}, nil
}

// load is the utilization of a machine over time.
type load struct {
	cpus  int
	times []float64 // ends of the intervals
	part  []float64 // utilization in them
}

// at returns the utilization at a time.
func (l *load) at(t float64) (utilization float64, ok bool) {
	i, _ := slices.BinarySearch(l.times, t-0.001)
	if i == len(l.times) {
		return 0, false
	}
	return min(l.part[i], 1), true
}

// readLoad reads a file cpu-load*.csv, which has the load of each CPU in percent every 5 s. It returns nil if
// there is no such file.
func readLoad(path string) (*load, error) {
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	rows, err := csv.NewReader(strings.NewReader(string(data))).ReadAll()
	if err != nil {
		return nil, err
	}
	sums, cpus := map[float64]float64{}, map[string]bool{}
	for _, row := range rows[1:] {
		at, err := unixTime(row[2])
		if err != nil {
			return nil, err
		}
		percent, _ := strconv.ParseFloat(row[3], 64)
		sums[at] += percent
		cpus[row[1]] = true
	}
	l := &load{cpus: len(cpus)}
	for at := range sums {
		l.times = append(l.times, at)
	}
	slices.Sort(l.times)
	for _, at := range l.times {
		l.part = append(l.part, sums[at]/100/float64(len(cpus)))
	}
	return l, nil
}

// experiments is the description in experiments.json of a run whose load was not measured.
type experiments struct {
	Experiments []struct {
		Name       string
		StartTime  string `json:"start_time"`
		Benchmarks []struct {
			StartTime string                    `json:"start_time"`
			EndTime   string                    `json:"end_time"`
			BinInfo   []struct{ Prefix string } `json:"bin_info"`
		}
	}
}

const (
	geminiCPUs = 40
	// geminiRest is the utilization of gemini-1 at rest.
	geminiRest = 0.0025
)

var threads = regexp.MustCompile(`OMP_NUM_THREADS=(\d+)`)

// readExperiment returns the load during a part of a run: that of the threads of its benchmarks.
func readExperiment(path, part string) (*load, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var e experiments
	if err := json.Unmarshal(data, &e); err != nil {
		return nil, err
	}
	l := &load{cpus: geminiCPUs}
	for _, experiment := range e.Experiments {
		if experiment.Name != part {
			continue
		}
		for _, b := range experiment.Benchmarks {
			start, err := unixTime(b.StartTime)
			if err != nil {
				return nil, err
			}
			end, err := unixTime(b.EndTime)
			if err != nil {
				return nil, err
			}
			busy := 0
			for _, program := range b.BinInfo {
				if m := threads.FindStringSubmatch(program.Prefix); m != nil {
					n, _ := strconv.Atoi(m[1])
					busy += n
				}
			}
			l.times = append(l.times, start, end, end+120)
			l.part = append(l.part, geminiRest, geminiRest+float64(busy)/geminiCPUs, geminiRest)
		}
	}
	if len(l.times) == 0 {
		return nil, nil
	}
	return l, nil
}
