// SPDX-License-Identifier: Apache-2.0

package model

import (
	"errors"
	"fmt"
	"io"
	"math"
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
	impossible int   // powers that were left out
	err        error // if the zone is not trained
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
	switch {
	case len(r.series[utilization]) == 0:
		return nil, errNoUtilization
	case r.Machine == nil:
		return nil, errNoMachine
	case len(methods) == 0:
		return nil, errNoZones
	}
	load := averages(r.series[utilization])
	from, to := load.ends()
	t := &Trained{
		Model:   trained.Model{Created: now, Machine: *r.Machine, Zones: map[power.Kind]trained.Zone{}},
		seconds: to - from,
	}
	for _, k := range trained.Kinds {
		z := trainedZone{kind: k}
		switch methods[k] {
		case "":
			continue
		case power.Measured:
			z.train(r, load, maxLag)
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
func (z *trainedZone) train(r *Record, load series, maxLag time.Duration) {
	watts := powerOf(r.series[zones(z.kind, power.Measured)])
	if len(watts) == 0 {
		z.err = errors.New("its meter did not count")
		return
	}
	if z.kind == power.Platform { // its meter may be slow; the others are read with the CPU times
		if z.lag, _, z.err = align(load, watts, maxLag.Seconds()); z.err != nil {
			return
		}
	}
	most := float64(power.MaxWatts(z.kind)) * float64(max(r.Machine.Sockets, 1))
	var windows []window
	windows, z.impossible = windowsOf(load, watts.earlier(z.lag), most)
	z.Zone, z.bins, z.err = trainCurve(windows)
}

// windowsOf returns the load and the power of stretches of time. A window is one span of the load, or
// as many as a span of the power needs. impossible is the number of windows that are left out
// because their power is above most.
func windowsOf(load, power series, most float64) (windows []window, impossible int) {
	shortest := 0.99 * power.step()
	for first, i := 0, 0; i < len(load); i++ {
		if i > first && load[i].from > load[i-1].to {
			first = i // a gap
		}
		from, to := load[first].from, load[i].to
		if to-from < shortest {
			continue
		}
		first = i + 1
		w := window{to - from, load.mean(from, to), power.mean(from, to)}
		switch {
		case math.IsNaN(w.Load) || math.IsNaN(w.Watts):
		case w.Watts > most:
			impossible++
		default:
			windows = append(windows, w)
		}
	}
	return windows, impossible
}

const (
	leastBins = 4   // of a trained curve
	leastTime = 300 // seconds
	blocks    = 10  // of equal time, each predicted from the others
)

var (
	errLittleTime = errors.New("too little time")
	errUnrelated  = errors.New("the power does not follow the load")
)

// trainCurve fits a curve to the windows. Its error is the mean absolute error, relative to the mean
// power, if each tenth of the time is predicted from the others. bins is the number of bins with
// enough time.
func trainCurve(windows []window) (zone trained.Zone, bins int, err error) {
	seconds := 0.0
	for _, w := range windows {
		seconds += w.Seconds
	}
	if seconds < leastTime {
		return zone, 0, fmt.Errorf("%w: %.0f s of %d s", errLittleTime, seconds, leastTime)
	}
	c := ofUtilization.binned(windows)
	if err := ofUtilization.check(c, leastBins); err != nil {
		return zone, 0, err
	}
	var off, joules float64
	for i, e := range crossValidated(windows, seconds/blocks, ofUtilization.predictor) {
		if w := windows[i]; w.Watts > 0 && !math.IsNaN(e) {
			off, joules = off+w.Seconds*w.Watts*math.Abs(e), joules+w.Seconds*w.Watts
		}
	}
	if off /= joules; !(off < 1) {
		return zone, 0, fmt.Errorf("%w: the error is %.0f %%", errUnrelated, 100*off)
	}
	zone = trained.Zone{
		Error: rounded(off, 1e4), Seconds: math.Round(seconds),
		Lowest: rounded(c[0].Load, 1e4), Highest: rounded(c[len(c)-1].Load, 1e4),
	}
	for _, k := range c.extended(1) {
		p := model.Point{Utilization: rounded(k.Load, 1e4), Watts: rounded(k.Watts, 1e3)}
		if n := len(zone.Curve); n == 0 || p.Utilization > zone.Curve[n-1].Utilization {
			zone.Curve = append(zone.Curve, p)
		}
	}
	return zone, len(c), nil
}

// rounded returns a value to a part of 1.
func rounded(v, parts float64) float64 { return math.Round(v*parts) / parts }

// Write writes the file of the model.
func (t *Trained) Write(to io.Writer) error {
	data, err := t.Model.Encode()
	if err == nil {
		_, err = to.Write(data)
	}
	return err
}

// WriteText writes the zones that were trained.
func (t *Trained) WriteText(out io.Writer) {
	m := &t.Model.Machine
	fmt.Fprintf(out, "Machine   %s, %d threads\n", m.CPU, m.Threads)
	fmt.Fprintf(out, "Record    %v\n\n", seconds(t.seconds))
	fmt.Fprintf(out, "%-10s%10s%10s%9s%8s%10s\n", "ZONE", "IDLE", "FULL", "ERROR", "LOADS", "TIME")
	var notes []string
	for i := range t.zones {
		z := &t.zones[i]
		if z.err != nil {
			fmt.Fprintf(out, "%-10snot trained: %v\n", z.kind, z.err)
			continue
		}
		idle, full := z.Curve[0].Watts, z.Curve[len(z.Curve)-1].Watts
		fmt.Fprintf(out, "%-10s%8.1f W%8.1f W%9s", z.kind, idle, full, percent(z.Error))
		fmt.Fprintf(out, "%8d%10v\n", z.bins, seconds(z.Seconds))
		for _, note := range z.notes() {
			notes = append(notes, fmt.Sprintf("%s: %s\n", z.kind, note))
		}
	}
	if len(notes) > 0 {
		fmt.Fprint(out, "\n", strings.Join(notes, ""))
	}
}

func seconds(v float64) time.Duration { return time.Duration(math.Round(v)) * time.Second }

const (
	// notIdle is the lowest load above which the idle power is unreliable: power rises steeply there.
	notIdle = 0.03
	// fewLoads is the number of bins below which a curve is coarse.
	fewLoads = 8
)

// notes returns the limits of the curve.
func (z *trainedZone) notes() (notes []string) {
	add := func(format string, args ...any) { notes = append(notes, fmt.Sprintf(format, args...)) }
	if z.Lowest > notIdle {
		add("the load was never below %.0f %%, where power rises steeply: the idle power may be far off", 100*z.Lowest)
	}
	if z.Highest < 1-far {
		add("the load was never above %.0f %%: the curve continues its line from there", 100*z.Highest)
	}
	if z.bins < fewLoads {
		add("only %d different loads: the curve is straight in between", z.bins)
	}
	if z.impossible > 0 {
		add("%d powers that are impossible were left out", z.impossible)
	}
	if z.lag >= 1 {
		add("its meter is %.0f s behind the load, which was allowed for. The receiver corrects it with lag: %s in the section "+
			"of that meter: %s", z.lag, lagSetting(z.lag), strings.Join(hostSections, ", "))
	}
	return notes
}
