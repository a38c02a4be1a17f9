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

	"github.com/energyreceiver/energyreceiver/cmd/energy/internal/figure"
	"github.com/energyreceiver/energyreceiver/cmd/energy/internal/stats"
	"github.com/energyreceiver/energyreceiver/internal/power"
	"github.com/energyreceiver/energyreceiver/internal/power/model"
)

// FitOptions are the references and limits of a fit.
type FitOptions struct {
	Wall string // CSV file of a wall meter
	Zone string // IDs of sensors that replace the wall meter, separated by commas
	Over string // IDs of sensors whose power replaces the utilization
	// Plateau is the minimum length of steady load without Settle, the time left out at both ends.
	Plateau, Settle time.Duration
	MaxLag          time.Duration
}

// Fitted is a curve that was fitted to a wall meter or to sensors.
type Fitted struct {
	o                FitOptions
	zone             power.Kind
	seconds          float64
	missing          int // readings of the wall meter
	lag, correlation float64
	plateaus, left   int // used and left out
	curve            model.Curve
	most             float64 // load at the end of the curve
	errs             []float64
	meters           []comparison
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
	f := &Fitted{o: o, zone: power.Platform, most: 1}
	reference, err := f.read(r)
	if err != nil {
		return nil, err
	}
	load := averages(r.series[utilization])
	if len(load) == 0 {
		return nil, errNoUtilization
	}
	var from, to float64
	reference, f.lag, f.correlation, err = align(load, reference, o.MaxLag.Seconds())
	if err == nil {
		from, to, err = common(load, reference)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", cmp.Or(o.Wall, o.Zone), err)
	}
	f.seconds = to - from
	plateaus := load.plateaus(from, to, o.Plateau.Seconds(), o.Settle.Seconds())
	f.left = len(plateaus)
	plateaus = slices.DeleteFunc(plateaus, func(p span) bool { return !reference.isSteady(p) })
	if err := f.fit(r, load, reference, plateaus); err != nil {
		return nil, err
	}
	if f.zone == power.Platform {
		f.compareMeters(r, load, reference, plateaus)
	}
	return f, nil
}

// fit fits the curve to the reference on plateaus.
func (f *Fitted) fit(r *Record, load, reference series, plateaus []span) (err error) {
	x := load
	if f.o.Over != "" {
		if x, _, err = r.aligned(load, strings.Split(f.o.Over, ","), f.o.MaxLag); err != nil {
			return fmt.Errorf("%s: %w", f.o.Over, err)
		}
	}
	windows := windowsOn(plateaus, x, reference)
	f.plateaus = len(windows)
	f.left -= f.plateaus
	if f.plateaus == 0 {
		return fmt.Errorf("the load was never steady for long enough; plateaus excluded for gaps or unsteady power: %d", f.left)
	}
	if err := check(binned(windowsOn(plateaus, load, x)), leastLevels); err != nil {
		return err
	}
	if f.o.Over != "" {
		f.most = slices.MaxFunc(windows, func(a, b window) int { return cmp.Compare(a.Load, b.Load) }).Load
		for i := range windows {
			windows[i].Load /= f.most
		}
	}
	if f.curve = binned(windows); len(f.curve) < 2 {
		return errFewLoads
	}
	f.errs = relativeErrors(windows, crossValidated(windows, 0, predictor))
	return nil
}

// read returns the power of the reference.
func (f *Fitted) read(r *Record) (series, error) {
	if f.o.Zone != "" {
		ids := strings.Split(f.o.Zone, ",")
		if !slices.ContainsFunc(r.sensors(), func(c counter) bool { return c.kind == host && slices.Contains(ids, c.id) }) {
			f.zone = power.Package
		}
		return r.power(ids)
	}
	data, err := os.ReadFile(f.o.Wall)
	if err != nil {
		return nil, err
	}
	points, missing, err := readWall(data, time.Local)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", f.o.Wall, err)
	}
	f.missing = missing
	return samples(points), nil
}

// power returns the sum of the power of sensors.
func (r *Record) power(ids []string) (series, error) {
	var all []series
	var names []string
	for _, c := range r.sensors() {
		names = append(names, c.id)
		if slices.Contains(ids, c.id) {
			all = append(all, powerOf(r.series[c]))
		}
	}
	if len(all) != len(ids) {
		return nil, fmt.Errorf("the record has no sensors %q; it has %s", ids, strings.Join(names, ", "))
	}
	return sumOf(all...), nil
}

// aligned returns the power of sensors together, at the time of the load, and their lag.
func (r *Record) aligned(load series, ids []string, maxLag time.Duration) (power series, lag float64, err error) {
	if power, err = r.power(ids); err == nil {
		power, lag, _, err = align(load, power, maxLag.Seconds())
	}
	return power, lag, err
}

// compareMeters compares the meters of the whole machine, and all CPUs and memories together.
func (f *Fitted) compareMeters(r *Record, load, reference series, plateaus []span) {
	compare := func(name string, ids ...string) {
		c := comparison{name: figure.Line(name)}
		var watts series
		if watts, c.lag, c.err = r.aligned(load, ids, f.o.MaxLag); c.err == nil {
			c.err = check(binned(windowsOn(plateaus, load, watts)), leastLevels)
		}
		if c.err == nil {
			c.fit(windowsOn(plateaus, watts, reference))
		}
		f.meters = append(f.meters, c)
	}
	var chips []string
	for _, c := range r.sensors() {
		switch {
		case c.kind == host && c.id != f.o.Zone:
			compare(c.id, c.id)
		case (c.kind == "cpu" || c.kind == "memory") && !c.part && len(r.series[c]) > 1:
			chips = append(chips, c.id)
		}
	}
	if len(chips) > 0 {
		compare("CPUs and memory", chips...)
	}
}

// fit fits the correction of the meter to windows, whose load is the power of the meter.
func (c *comparison) fit(windows []window) {
	for _, w := range windows {
		c.before += (w.Load/w.Watts - 1) / float64(len(windows))
	}
	c.factor, c.offset = line(windows)
	c.errs = relativeErrors(windows, crossValidated(windows, 0, func(others []window) func(*window) float64 {
		factor, offset := line(others)
		return func(w *window) float64 { return offset + factor*w.Load }
	}))
}

// WriteText writes the curve, and the settings that use it and that correct the meters.
func (f *Fitted) WriteText(out io.Writer) {
	fmt.Fprintf(out, "Reference      %s, %v in common with the record", cmp.Or(f.o.Wall, f.o.Zone), seconds(f.seconds))
	if f.missing > 0 {
		fmt.Fprintf(out, ", %d readings missing", f.missing)
	}
	fmt.Fprintf(out, "\nAlignment      the reference is %.1f s behind the load, correlation %.3f\n", f.lag, f.correlation)
	fmt.Fprintf(out, "Steady load    %d plateaus", f.plateaus)
	if f.left > 0 {
		fmt.Fprintf(out, ", %d more excluded for gaps or unsteady power", f.left)
	}
	fmt.Fprintf(out, "\nResidual error median %s; each plateau is predicted from the others.\n\n", errorText(f.errs))
	if f.o.Over == "" {
		f.writeSettings(out)
	} else {
		fmt.Fprintf(out, "%12s  %12s\n", "METERED", "REFERENCE")
		for _, p := range simplified(f.curve) {
			fmt.Fprintf(out, "%10.1f W  %10.1f W\n", f.most*p.Utilization, p.Watts)
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
	if f.zone == power.Platform { // is not among the default zones
		fmt.Fprint(out, "    zones: [platform]\n")
	}
	fmt.Fprintf(out, "    model:\n      zone: %s\n      points:\n", f.zone)
	for _, p := range simplified(extended(f.curve)) {
		fmt.Fprintf(out, "        - {utilization: %v, power: %.1f}\n", rounded(p.Utilization, 1e4), p.Watts)
	}
	if low := f.curve[0].Utilization; low > far {
		fmt.Fprintf(out, "\nNo plateau was below %.0f %% utilization: the first point is extrapolated.\n", 100*low)
	}
	if high := f.curve[len(f.curve)-1].Utilization; high < 1-far {
		fmt.Fprintf(out, "\nNo plateau was above %.0f %% utilization: the last point is extrapolated.\n", 100*high)
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
