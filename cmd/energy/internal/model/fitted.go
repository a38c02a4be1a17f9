// SPDX-License-Identifier: Apache-2.0

package model

import (
	"cmp"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/energyreceiver/energyreceiver/cmd/energy/internal/stats"
)

// FitOptions are the references and limits of a fit.
type FitOptions struct {
	Wall  string         // CSV file of a wall meter
	Zone  string         // IDs of sensors that replace the wall meter, separated by commas
	Over  string         // IDs of sensors whose power replaces the utilization
	Local *time.Location // of the times in Wall
	// Plateau is the minimum length of steady load without Settle, the time left out at both ends.
	Plateau, Settle time.Duration
	MaxLag          time.Duration
}

// Fitted is a curve that was fitted to a wall meter or to sensors.
type Fitted struct {
	reference, zone, over string
	seconds               float64
	missing               int // readings of the wall meter
	lag, correlation      float64
	plateaus, left        int // used and left out
	curve                 curve
	errs                  []float64
	meters                []comparison
}

// comparison compares a meter with the wall meter.
type comparison struct {
	name           string
	before         float64 // mean error of the meter, as a share
	factor, offset float64
	errs           []float64 // with the factor and the offset
	lag            float64
	err            error // if the meter cannot be compared
}

// leastLevels is the minimum number of different loads on plateaus.
const leastLevels = 3

// Fit fits the record to a wall meter or to sensors.
func (r *Record) Fit(o FitOptions) (*Fitted, error) {
	if len(r.series[utilization]) == 0 {
		return nil, errNoUtilization
	}
	f := &Fitted{reference: cmp.Or(o.Wall, o.Zone), zone: "platform", over: o.Over}
	load := averages(r.series[utilization])
	reference, err := f.read(r, o)
	if err != nil {
		return nil, err
	}
	if f.lag, f.correlation, err = align(load, reference, o.MaxLag.Seconds()); err != nil {
		return nil, fmt.Errorf("%s: %w", f.reference, err)
	}
	reference = reference.earlier(f.lag)
	from, to, err := common(load, reference)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", f.reference, err)
	}
	f.seconds = to - from
	plateaus := steadyLoad(load, from, to, o.Plateau.Seconds(), o.Settle.Seconds())
	x := load
	if o.Over != "" {
		if x, _, err = r.aligned(load, o.Over, o.MaxLag); err != nil {
			return nil, fmt.Errorf("%s: %w", o.Over, err)
		}
	}
	windows, left, err := windowsOn(plateaus, x, reference)
	if err != nil {
		return nil, err
	}
	f.plateaus, f.left = len(windows), left
	loads := ofUtilization
	if o.Over != "" {
		loads = ofPower(windows)
	}
	f.curve = loads.binned(windows)
	if err := loads.check(f.curve, leastLevels); err != nil {
		return nil, err
	}
	f.errs = crossValidated(windows, 0, loads.predictor)
	if f.zone == "platform" {
		f.compareMeters(r, o, load, reference, plateaus)
	}
	return f, nil
}

// read returns the power of the reference.
func (f *Fitted) read(r *Record, o FitOptions) (series, error) {
	if o.Zone != "" {
		if !slices.ContainsFunc(strings.Split(o.Zone, ","), func(id string) bool { return r.sensor(id).kind == host }) {
			f.zone = "package"
		}
		return r.power(o.Zone)
	}
	data, err := os.ReadFile(o.Wall)
	if err != nil {
		return nil, err
	}
	points, missing, err := readWall(data, o.Local)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", o.Wall, err)
	}
	f.missing = missing
	return samples(points), nil
}

// sensor returns the counter of a sensor by its ID.
func (r *Record) sensor(id string) counter {
	for _, c := range r.sensors() {
		if c.id == id {
			return c
		}
	}
	return counter{}
}

// power returns the sum of the power of sensors.
func (r *Record) power(ids string) (series, error) {
	var all []series
	for id := range strings.SplitSeq(ids, ",") {
		points := r.series[r.sensor(id)]
		if points == nil {
			var known []string
			for _, c := range r.sensors() {
				known = append(known, c.id)
			}
			return nil, fmt.Errorf("the record has no zone %q; it has %s", id, strings.Join(known, ", "))
		}
		all = append(all, powerOf(points))
	}
	return sumOf(all...), nil
}

// aligned returns the power of sensors together, at the time of the load, and their lag.
func (r *Record) aligned(load series, ids string, maxLag time.Duration) (power series, lag float64, err error) {
	if power, err = r.power(ids); err == nil {
		lag, _, err = align(load, power, maxLag.Seconds())
	}
	return power.earlier(lag), lag, err
}

// compareMeters compares the meters of the whole machine, and all CPUs and memories together.
func (f *Fitted) compareMeters(r *Record, o FitOptions, load, reference series, plateaus []plateau) {
	compare := func(name, ids string) {
		c := comparison{name: name}
		defer func() { f.meters = append(f.meters, c) }()
		var power series
		if power, c.lag, c.err = r.aligned(load, ids, o.MaxLag); c.err != nil {
			return
		}
		var windows []window
		if windows, _, c.err = windowsOn(plateaus, power, reference); c.err != nil {
			return
		}
		loads := ofPower(windows)
		if c.err = loads.check(loads.binned(windows), leastLevels); c.err != nil {
			return
		}
		for _, w := range windows {
			c.before += (w.Load/w.Watts - 1) / float64(len(windows))
		}
		c.factor, c.offset = line(windows)
		c.errs = crossValidated(windows, 0, func(others []window) func(float64) float64 {
			factor, offset := line(others)
			return func(load float64) float64 { return offset + factor*load }
		})
	}
	var chips []string
	for _, c := range r.sensors() {
		switch {
		case c.kind == host && c.id != o.Zone:
			compare(c.id, c.id)
		case (c.kind == "cpu" || c.kind == "memory") && !c.part && len(powerOf(r.series[c])) > 0:
			chips = append(chips, c.id)
		}
	}
	if len(chips) > 0 {
		compare("CPUs and memory", strings.Join(chips, ","))
	}
}

// WriteText writes the curve, and the settings that use it and that correct the meters.
func (f *Fitted) WriteText(out io.Writer) {
	fmt.Fprintf(out, "Reference      %s, %v in common with the record", f.reference, seconds(f.seconds))
	if f.missing > 0 {
		fmt.Fprintf(out, ", %d readings missing", f.missing)
	}
	fmt.Fprintf(out, "\nAlignment      the reference is %.1f s behind the load, correlation %.3f\n", f.lag, f.correlation)
	fmt.Fprintf(out, "Steady load    %d plateaus", f.plateaus)
	if f.left > 0 {
		fmt.Fprintf(out, ", and %d left out: gaps, or a power that was not steady", f.left)
	}
	fmt.Fprintf(out, "\nError left     median %s; each plateau is predicted from the others.\n\n", errorText(f.errs))
	if f.over == "" {
		f.writeSettings(out)
	} else {
		fmt.Fprintf(out, "%12s  %12s\n", "METERED", "REFERENCE")
		for _, k := range f.curve.simplified() {
			fmt.Fprintf(out, "%10.1f W  %10.1f W\n", k.Load, k.Watts)
		}
	}
	if len(f.meters) > 0 {
		f.writeMeters(out)
	}
}

// far is the distance of a load from 0 or 1 above which an extrapolation is reported.
const far = 0.1

// writeSettings writes the curve from 0 to 1 as settings of the receiver.
func (f *Fitted) writeSettings(out io.Writer) {
	fmt.Fprint(out, "receivers:\n  energy:\n")
	if f.zone == "platform" { // is not among the default zones
		fmt.Fprint(out, "    zones: [platform]\n")
	}
	fmt.Fprintf(out, "    model:\n      zone: %s\n      points:\n", f.zone)
	for _, k := range f.curve.extended(1).simplified() {
		fmt.Fprintf(out, "        - {utilization: %v, power: %.1f}\n", rounded(k.Load, 1e4), k.Watts)
	}
	if low := f.curve[0].Load; low > far {
		fmt.Fprintf(out, "\nNo plateau was below %.0f %% utilization: the first point continues the line.\n", 100*low)
	}
	if high := f.curve[len(f.curve)-1].Load; high < 1-far {
		fmt.Fprintf(out, "\nNo plateau was above %.0f %% utilization: the last point continues the line.\n", 100*high)
	}
}

// errorText returns the median and the ninth decile of the sizes of errors.
func errorText(errs []float64) string {
	sizes := make([]float64, len(errs))
	for i, e := range errs {
		sizes[i] = math.Abs(e)
	}
	return percent(stats.Median(sizes)) + ", p90 " + percent(stats.Quantile(sizes, 0.9))
}

func percent(share float64) string { return fmt.Sprintf("%.2f %%", 100*share) }
