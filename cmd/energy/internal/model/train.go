// SPDX-License-Identifier: Apache-2.0

package model

import (
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/energyreceiver/energyreceiver/internal/power"
	"github.com/energyreceiver/energyreceiver/internal/power/model"
	"github.com/energyreceiver/energyreceiver/internal/power/model/trained"
)

// Trained is a power model that was trained with a record.
type Trained struct {
	Model   trained.Model
	seconds float64
	zones   []trainedZone
}

// trainedZone is a zone kind of the record.
type trainedZone struct {
	kind power.Kind
	trained.Zone
	bins       int
	lag        float64
	impossible int      // number of implausible powers, which are left out
	windows    []window // with rates
	err        error    // reason why the zone is not trained, or nil
}

var (
	errNoMachine = errors.New("the record does not describe the machine: record on the machine itself")
	errNoZones   = errors.New("the record has no energy: record on a machine with meters")
	errUntrained = errors.New("no zone can be trained")
)

// Train trains the zone kinds that were measured. maxLag is the maximum lag of the meter of the
// whole machine. If no zone can be trained, Train returns the result with an error.
func (r *Record) Train(maxLag time.Duration, now time.Time) (*Trained, error) {
	methods := map[power.Kind]power.Method{}
	for _, c := range r.counters() {
		if k, method, _ := strings.Cut(c.id, " "); c.kind == sumOfZones && methods[power.Kind(k)] != power.Measured {
			methods[power.Kind(k)] = power.Method(method)
		}
	}
	load := averages(r.series[utilization])
	switch {
	case len(load) == 0:
		return nil, errNoUtilization
	case r.Machine == nil:
		return nil, errNoMachine
	case len(methods) == 0:
		return nil, errNoZones
	}
	t := &Trained{
		Model:   trained.Model{Created: now, Machine: *r.Machine, Zones: map[power.Kind]trained.Zone{}},
		seconds: load[len(load)-1].to - load[0].from,
	}
	for _, k := range trained.Kinds {
		z := trainedZone{kind: k}
		switch methods[k] {
		case "":
			continue
		case power.Measured:
			z.err = z.train(r, load, maxLag)
		default:
			z.err = fmt.Errorf("it is %s, not measured", methods[k])
		}
		if t.zones = append(t.zones, z); z.err == nil {
			t.Model.Zones[k] = z.Zone
		}
	}
	if len(t.Model.Zones) == 0 {
		return t, errUntrained
	}
	return t, nil
}

// train fits the curve of the zone.
func (z *trainedZone) train(r *Record, load series, maxLag time.Duration) (err error) {
	watts := powerOf(r.series[zones(z.kind, power.Measured)])
	if len(watts) == 0 {
		return errors.New("its meter reported no energy")
	}
	if z.kind == power.Platform { // its meter may be slow; the others are read with the CPU times
		if watts, z.lag, _, err = align(load, watts, maxLag.Seconds()); err != nil {
			return err
		}
	}
	most := float64(power.MaxWatts(z.kind)) * float64(max(r.Machine.Sockets, 1))
	all := windowsOn(coarsest(load, watts), load, watts)
	possible := slices.DeleteFunc(slices.Clone(all), func(w window) bool { return w.Watts > most })
	z.impossible = len(all) - len(possible)
	z.windows = r.withRates(possible)
	return z.fit(possible)
}

const (
	leastBins = 4   // of a trained curve
	leastTime = 300 // seconds
	blocks    = 10  // of equal time, each predicted from the others
)

// fit fits the curve to windows. Its error is the mean absolute error, relative to the mean power, if
// each tenth of the time is predicted from the others.
func (z *trainedZone) fit(windows []window) error {
	z.Seconds = secondsOf(windows)
	if z.Seconds < leastTime {
		return fmt.Errorf("too little time: %.0f s of %d s", z.Seconds, leastTime)
	}
	c := binned(windows)
	if err := check(c, leastBins); err != nil {
		return err
	}
	off := meanError(windows, crossValidated(windows, z.Seconds/blocks, predictor), 0)
	if z.Error = rounded(off, 1e4); !(z.Error < 1) {
		return fmt.Errorf("%w: the error is %.0f %%", errUnrelated, 100*z.Error)
	}
	z.bins, z.Seconds = len(c), math.Round(z.Seconds)
	z.Utilization = []float64{rounded(c[0].Utilization, 1e4), rounded(c[len(c)-1].Utilization, 1e4)}
	for _, p := range extended(c) {
		p = model.Point{Utilization: rounded(p.Utilization, 1e4), Watts: rounded(p.Watts, 1e3)}
		if n := len(z.Curve); n == 0 || p.Utilization > z.Curve[n-1].Utilization {
			z.Curve = append(z.Curve, p)
		}
	}
	return nil
}

// rounded returns a value to a part of 1.
func rounded(v, parts float64) float64 { return math.Round(v*parts) / parts }

// WriteText writes the zones that were trained.
func (t *Trained) WriteText(out io.Writer) {
	m := &t.Model.Machine
	fmt.Fprintf(out, "Machine   %s, %d threads\n", m.CPU, m.Threads)
	fmt.Fprintf(out, "Record    %v\n\n", seconds(t.seconds))
	fmt.Fprintf(out, "%-10s%10s%10s%9s%8s%10s\n", "ZONE", "IDLE", "FULL", "ERROR", "LOADS", "TIME")
	notes := ""
	for i := range t.zones {
		z := &t.zones[i]
		if z.err != nil {
			fmt.Fprintf(out, "%-10snot trained: %v\n", z.kind, z.err)
			continue
		}
		idle, full := z.Curve[0].Watts, z.Curve[len(z.Curve)-1].Watts
		fmt.Fprintf(out, "%-10s%8.1f W%8.1f W%9s", z.kind, idle, full, percent(z.Error))
		fmt.Fprintf(out, "%8d%10v\n", z.bins, seconds(z.Seconds))
		notes += z.notes()
	}
	if notes != "" {
		fmt.Fprint(out, "\n", notes)
	}
}

func seconds(v float64) time.Duration { return time.Duration(math.Round(v)) * time.Second }

const (
	// notIdle is the lowest load above which the idle power is unreliable: power rises steeply there.
	notIdle = 0.03
	// fewLoads is the number of bins below which a curve is coarse.
	fewLoads = 8
)

// notes returns the limits of the curve, a line each.
func (z *trainedZone) notes() (lines string) {
	add := func(format string, args ...any) {
		lines += fmt.Sprintf("%s: "+format+"\n", append([]any{z.kind}, args...)...)
	}
	if z.Utilization[0] > notIdle {
		add("the load was never below %.0f %%, where power rises steeply: the idle power may be far off", 100*z.Utilization[0])
	}
	if z.Utilization[1] < 1-far {
		add("the load was never above %.0f %%: the curve is extrapolated", 100*z.Utilization[1])
	}
	if z.bins < fewLoads {
		add("only %d different loads: the curve is linear in between", z.bins)
	}
	if z.impossible > 0 {
		add("%d impossible powers were excluded", z.impossible)
	}
	if z.lag >= 1 {
		add("its meter lags the load by %.0f s, which training corrects. The receiver corrects it with lag: %s in the "+
			"section of that meter: %s", z.lag, lagSetting(z.lag), strings.Join(hostSections(), ", "))
	}
	return lines
}
