// SPDX-License-Identifier: Apache-2.0

package replay

import (
	"cmp"
	"encoding/json"
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// The files of github.com/vladostp/an-experimental-comparison-of-software-based-power-meters,
// CPU_benchmarks/results, machine gemini-1. A folder is a run. A run has parts, each with its own
// files.

// geminiRun returns an empty series for a file of a run.
func geminiRun(tool, path, zone string, cpus int) Series {
	_, run, _ := strings.Cut(filepath.Base(filepath.Dir(path)), "grid5000.fr-")
	return Series{Machine: "gemini-1", Run: tool + "max-" + run, Zone: zone, CPUs: cpus, Counter: true}
}

// readScaphandre reads a file scaphandre-host*.csv: the power of the packages or of the memory
// every 5 s. The file cpu-load*.csv of the same part has the load at the same times.
func readScaphandre(path string, text []byte) ([]Series, error) {
	_, part, _ := strings.Cut(filepath.Base(path), "_")
	load, err := readLoad(filepath.Join(filepath.Dir(path), "cpu-load-scaphandre_"+part))
	if load == nil || err != nil {
		return nil, err
	}
	zone := "package"
	if strings.Contains(filepath.Base(path), "-ram_") {
		zone = "dram"
	}
	s := geminiRun("scaph", path, zone, load.cpus)
	var c cells
	_, rows := c.table(text)
	for _, row := range rows {
		n := len(row) // the last two columns are the time and the power
		x := Sample{Time: c.time(row[n-2]), Seconds: 5, Watts: c.number(row[n-1])}
		if load.setUtilization(&x) {
			s.add(x)
		}
	}
	return []Series{s}, c.err
}

// readPowerAPI reads a file powerapi_*.csv, which has the power of each socket every second.
func readPowerAPI(path string, text []byte) ([]Series, error) {
	name := strings.TrimPrefix(filepath.Base(path), "powerapi_")
	load, err := readLoad(filepath.Join(filepath.Dir(path), "cpu-load-powerapi_"+name))
	if load == nil && err == nil {
		load, err = readExperiment(filepath.Join(filepath.Dir(path), "experiments.json"), strings.TrimSuffix(name, ".csv"))
	}
	if load == nil || err != nil {
		return nil, err
	}
	s := geminiRun("powerapi", path, "package", load.cpus)
	last := 0.0
	watts := map[float64]float64{} // of the first socket, by time
	var c cells
	_, rows := c.table(text)
	for _, row := range rows {
		if row[2] != "rapl" || row[4] != "cpu" {
			continue
		}
		x := Sample{Time: c.time(row[1]), Watts: c.number(row[3])}
		first, isSecond := watts[x.Time]
		if !isSecond {
			watts[x.Time] = x.Watts
			continue
		}
		x.Watts += first
		x.Seconds, last = x.Time-last, x.Time
		if load.setUtilization(&x) && x.Seconds < 10 {
			s.add(x)
		}
	}
	return []Series{s}, c.err
}

// load is the utilization of a machine over time.
type load struct {
	cpus    int
	samples []Sample // without power
}

// setUtilization sets the utilization of a sample, and reports whether the load has a value at its
// time.
func (l *load) setUtilization(x *Sample) bool {
	i, _ := slices.BinarySearchFunc(l.samples, x.Time-0.001, func(s Sample, at float64) int { return cmp.Compare(s.Time, at) })
	if i == len(l.samples) {
		return false
	}
	x.Utilization = min(l.samples[i].Utilization, 1)
	return true
}

// readLoad reads a file cpu-load*.csv, which has the load of each CPU in percent every 5 s. It
// returns nil if the file does not exist.
func readLoad(path string) (*load, error) {
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	percent, cpus := map[float64]float64{}, map[string]bool{}
	var c cells
	_, rows := c.table(text)
	for _, row := range rows {
		percent[c.time(row[2])] += c.number(row[3])
		cpus[row[1]] = true
	}
	l := &load{cpus: len(cpus)}
	for _, at := range slices.Sorted(maps.Keys(percent)) {
		l.samples = append(l.samples, Sample{Time: at, Utilization: percent[at] / 100 / float64(len(cpus))})
	}
	return l, c.err
}

// experiments is the content of experiments.json, which describes a run without a measured load.
type experiments struct {
	Experiments []struct {
		Name       string
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

// readExperiment returns the load during a part of a run, from the number of threads of its
// benchmarks. It returns nil if the run has no such part.
func readExperiment(path, part string) (*load, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var e experiments
	if err := json.Unmarshal(text, &e); err != nil {
		return nil, err
	}
	var l *load
	var c cells
	for _, experiment := range e.Experiments {
		if experiment.Name != part || len(experiment.Benchmarks) == 0 {
			continue
		}
		l = &load{cpus: geminiCPUs}
		for _, b := range experiment.Benchmarks {
			busy := 0
			for _, program := range b.BinInfo {
				if m := threads.FindStringSubmatch(program.Prefix); m != nil {
					n, _ := strconv.Atoi(m[1])
					busy += n
				}
			}
			start, end := c.time(b.StartTime), c.time(b.EndTime)
			l.samples = append(l.samples, Sample{Time: start, Utilization: geminiRest},
				Sample{Time: end, Utilization: geminiRest + float64(busy)/geminiCPUs}, Sample{Time: end + 120, Utilization: geminiRest})
		}
	}
	return l, c.err
}
