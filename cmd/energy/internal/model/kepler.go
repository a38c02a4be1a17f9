// SPDX-License-Identifier: Apache-2.0

package model

import (
	"errors"
	"fmt"
	"io"
	"math"
	"path/filepath"
	"slices"

	"github.com/energyreceiver/energyreceiver/cmd/energy/internal/model/fit"
	"github.com/energyreceiver/energyreceiver/internal/machine"
	"github.com/energyreceiver/energyreceiver/internal/power"
	"github.com/energyreceiver/energyreceiver/internal/power/model"
	"github.com/energyreceiver/energyreceiver/internal/power/model/trained"
)

// Comparison holds the held-out errors of the models of Kepler Model Server that a record trained.
type Comparison struct {
	machine machine.Machine
	zones   []*trainedZone
	rows    []compared
}

// compared holds the errors of a trainer for a feature group.
type compared struct {
	group   *fit.Group
	trainer string
	errs    [2][]float64 // by output type and zone
}

// outputs are the output types of Kepler Model Server.
var outputs = [2]string{"AbsPower", "DynPower"}

// curveTrainer names the curve of Train. The curve is compared, but not written as a Kepler model.
const curveTrainer = "curve of --output"

// trainers lists the trainers that are compared. The format cannot hold the first two.
var trainers = []string{curveTrainer, fit.Polynomial, fit.Linear, fit.Boosted}

// mostSamples limits the samples of a zone, so that its training takes a few seconds.
const mostSamples = 20_000

// withRates returns the windows with the rates of the machine. Missing rates of hardware counters are NaN.
// Neighboring windows are averaged until there are at most mostSamples.
func (r *Record) withRates(windows []window) (out []window) {
	rates := map[model.Feature]series{}
	for _, f := range fit.Counters {
		rates[f] = averages(r.series[counter{kind: rateKind, id: trained.FeatureName(f)}])
	}
	for neighbors := range slices.Chunk(windows, 1+(len(windows)-1)/mostSamples) {
		var mean window
		for _, w := range neighbors {
			w.Rates[model.CPUTime] = 1000 * w.Load * float64(r.Machine.Threads)
			for f, s := range rates {
				w.Rates[f] = s.mean(w.From, w.From+w.Seconds)
			}
			mean.add(&w)
		}
		out = append(out, mean)
	}
	return out
}

// windowsOf returns the windows that have all features of a group. It returns nil if they are too
// short, or if their load varies too little: the error over a few loads would be too small.
func (z *trainedZone) windowsOf(g *fit.Group) []window {
	windows := slices.DeleteFunc(slices.Clone(z.windows), func(w window) bool {
		return slices.ContainsFunc(g.Features, func(f model.Feature) bool { return math.IsNaN(w.Rates[f]) })
	})
	if secondsOf(windows) < leastTime || check(binned(windows), leastBins) != nil {
		return nil
	}
	return windows
}

// fitter returns the fit of a trainer for crossValidated.
func fitter(g *fit.Group, trainer string) func([]window) func(*window) float64 {
	if trainer == curveTrainer {
		return predictor
	}
	return func(windows []window) func(*window) float64 {
		fitted, err := g.Fit(trainer, samplesOf(windows, 0))
		if err != nil {
			return unpredictable
		}
		return func(w *window) float64 { return fitted.Watts(&w.Rates) }
	}
}

// samplesOf returns the powers of windows above the idle power.
func samplesOf(windows []window, idle float64) []fit.Sample {
	samples := make([]fit.Sample, len(windows))
	for i := range windows {
		samples[i] = fit.Sample{Rates: windows[i].Rates, Watts: windows[i].Watts - idle}
	}
	return samples
}

var errNoModel = errors.New("no zone that Kepler Model Server supports can be trained, and psys is not supported")

// Compare trains the zones for all feature groups that the record contains. Each tenth of the time
// is predicted by a model that was trained with the other tenths. The error is not nil if no zone can
// be trained.
func (t *Trained) Compare() (*Comparison, error) {
	c := &Comparison{machine: t.Model.Machine}
	for i := range t.zones {
		if z := &t.zones[i]; z.err == nil && z.kind != power.PSys { // Kepler Model Server has no psys
			c.zones = append(c.zones, z)
		}
	}
	for i := range fit.Groups {
		for _, trainer := range trainers {
			if trainer == curveTrainer && i > 0 { // the curve depends on CPU time only
				continue
			}
			row := c.compare(&fit.Groups[i], trainer)
			if min(row.error(0), row.error(1)) < 1 {
				c.rows = append(c.rows, row)
			}
		}
	}
	if c.best(0, "") == nil && c.best(1, "") == nil {
		return nil, errNoModel
	}
	return c, nil
}

// compare returns the errors of a trainer, which are not below 1 for zones that it cannot be trained for.
func (c *Comparison) compare(g *fit.Group, trainer string) compared {
	row := compared{group: g, trainer: trainer}
	for _, z := range c.zones {
		windows := z.windowsOf(g)
		predicted := crossValidated(windows, secondsOf(windows)/blocks, fitter(g, trainer))
		row.errs[0] = append(row.errs[0], meanError(windows, predicted, 0))
		row.errs[1] = append(row.errs[1], meanError(windows, predicted, z.Curve[0].Watts))
	}
	return row
}

// error returns the mean error of all zones. A zone without an error below 1 counts as 1.
func (c *compared) error(output int) float64 {
	mean := 1.0
	for _, e := range c.errs[output] {
		if e < 1 {
			mean -= (1 - e) / float64(len(c.errs[output]))
		}
	}
	return mean
}

// best returns the row with the smallest error below 1, among the trainers whose models can be
// written. If group is empty, it searches all groups. It returns nil if there is no such row.
func (c *Comparison) best(output int, group string) (best *compared) {
	for i := range c.rows {
		row := &c.rows[i]
		if slices.Index(trainers, row.trainer) > 1 && (group == "" || row.group.Name == group) &&
			row.error(output) < 1 && (best == nil || row.error(output) < best.error(output)) {
			best = row
		}
	}
	return best
}

// KeplerFiles returns the paths of all files that Encode may return for a directory. The list is
// empty if dir is empty.
func KeplerFiles(dir string) (paths []string) {
	if dir == "" {
		return nil
	}
	for _, output := range outputs {
		for _, g := range fit.Groups {
			paths = append(paths, filepath.Join(dir, output+"-"+g.Name+".json"))
		}
	}
	return paths
}

// Encode returns the best model of each output type and feature group. The keys are the paths that
// KeplerFiles returns. Zones without an error below 1 are left out.
func (c *Comparison) Encode(dir string) (map[string][]byte, error) {
	files, paths := map[string][]byte{}, KeplerFiles(dir)
	for output := range outputs {
		for i, g := range fit.Groups {
			row := c.best(output, g.Name)
			if row == nil {
				continue
			}
			m := trained.KeplerModel{Trainer: row.trainer, Dynamic: output == 1, Machine: c.machine, Zones: map[power.Kind]*trained.Component{}}
			for at, z := range c.zones {
				fitted, err := g.Fit(row.trainer, samplesOf(z.windowsOf(row.group), float64(output)*z.Curve[0].Watts))
				if err != nil || !(row.errs[output][at] < 1) {
					continue
				}
				fitted.Component.Error = max(rounded(row.errs[output][at], 1e4), 1e-4) // readers ignore an error of 0
				m.Zones[z.kind] = fitted.Component
			}
			data, err := m.Encode()
			if err != nil {
				return nil, err
			}
			files[paths[output*len(fit.Groups)+i]] = data
		}
	}
	return files, nil
}

// WriteText writes the errors. A star marks the models that Encode returns.
func (c *Comparison) WriteText(out io.Writer) {
	for output, name := range outputs {
		fmt.Fprintf(out, "\n%-13s%-31s", name, "TRAINER")
		for _, z := range c.zones {
			fmt.Fprintf(out, "%10s", z.kind)
		}
		fmt.Fprintln(out)
		isLeftOut := false
		for i := range c.rows {
			row, star := &c.rows[i], ""
			if row == c.best(output, row.group.Name) {
				star = " *"
			}
			fmt.Fprintf(out, "%-13s%-31s", row.group.Name, row.trainer+star)
			for _, e := range row.errs[output] {
				text := percent(e)
				if math.IsNaN(e) {
					text = "-"
				}
				isLeftOut = isLeftOut || !(e < 1)
				fmt.Fprintf(out, "%10s", text)
			}
			fmt.Fprintln(out)
		}
		if row := c.best(output, ""); row != nil {
			fmt.Fprintf(out, "Best: %s over %s\n", row.trainer, row.group.Name)
		}
		if isLeftOut {
			fmt.Fprintln(out, "A zone without an error below 100 % is left out.")
		}
	}
	if c.best(0, "CounterOnly") == nil {
		fmt.Fprintln(out, "CounterOnly and Basic require cycles, instructions and cache misses over at least 5 minutes and different loads.")
	}
}
