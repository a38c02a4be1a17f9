// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/energyreceiver/energyreceiver/cmd/energy/internal/calibration"
	"github.com/energyreceiver/energyreceiver/internal/power"
	"github.com/energyreceiver/energyreceiver/internal/power/model"
	"github.com/energyreceiver/energyreceiver/internal/power/model/trained"
)

type trainOptions struct {
	recorder
	out    string // file of the model
	maxLag time.Duration
	now    func() time.Time
}

// subcommand returns the command train.
func (o *trainOptions) subcommand() *cobra.Command {
	o.now = time.Now
	c := &cobra.Command{
		Use: "train -o FILE [flags]", Short: "train a power model for machines that have no meter",
		Long: `Trains a power model on this machine, which must have meters. It is for machines with the same CPU
without meters. The receiver reads the model, or a directory of models: model: {file: node.json}`,
		Example: `  energy train --for 60m -o node.json     records the figures of the collector, and fits a curve to
                                          each zone
  energy train --from FILE -o node.json   fits a record of --record, of this command or of energy
                                          calibrate`,
		Args: noArguments(o.check),
		RunE: untilDone(func(ctx context.Context) error { return o.run(ctx, os.Stdout) }),
	}
	o.flags(c)
	flagGroup(c, "Model", func(f *pflag.FlagSet) {
		f.StringVarP(&o.out, "output", "o", "", "`file` to write the model to")
		f.DurationVar(&o.maxLag, "max-lag", 2*time.Minute, "largest lag of the whole machine's meter to look for")
	})
	return c
}

func (o *trainOptions) check() error {
	switch {
	case o.out == "":
		return errors.New("--output is needed")
	case o.maxLag <= 0:
		return errors.New("--max-lag must be above 0")
	}
	return o.recorder.check(o.out)
}

var (
	errElsewhere = errors.New("the collector is on another machine, or nothing is known of this one: train on the machine that has the meters")
	errNoMachine = errors.New("the record does not say of which machine it is: record on that machine")
	errNoKinds   = errors.New("the collector does not report system.energy: enable that metric")
	errUntrained = errors.New("no zone can be trained")
)

func (o *trainOptions) run(ctx context.Context, out io.Writer) error {
	if err := o.mayWrite(); err != nil { // before the time is spent
		return err
	}
	if o.from == "" && machineOf(ctx, o.endpoint) == nil {
		return errElsewhere
	}
	r, err := o.obtain(ctx)
	if err != nil {
		return err
	}
	t, err := o.fit(r)
	if err != nil {
		return err
	}
	t.render(out)
	if len(t.model.Zones) == 0 {
		return errUntrained
	}
	if err := o.write(&t.model); err != nil {
		return err
	}
	fmt.Fprintf(out, "\nWritten to %s\n", o.out)
	return nil
}

// mayWrite returns an error where the file exists, and is not to be replaced, or its directory does not.
func (o *trainOptions) mayWrite() error {
	if _, err := os.Stat(filepath.Dir(o.out)); err != nil {
		return err
	}
	switch _, err := os.Lstat(o.out); {
	case err == nil && !o.force:
		return fmt.Errorf("%s exists: --force replaces it", o.out)
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return err
	}
	return nil
}

// write writes the model in one step, so that a receiver never reads half of it.
func (o *trainOptions) write(m *trained.Model) error {
	data, err := m.Encode()
	if err != nil {
		return err
	}
	if err := o.mayWrite(); err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(o.out), "."+filepath.Base(o.out)+".*")
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	err = errors.Join(err, f.Chmod(0o644), f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), o.out)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return nil
}

// trainedRecord is a model that was trained from a record.
type trainedRecord struct {
	model   trained.Model
	seconds float64
	zones   []trainedZone
}

// trainedZone is a zone kind of the collector.
type trainedZone struct {
	kind       power.Kind
	learned    *calibration.Learned
	lag        float64
	meter      string // section of the receiver's meters that the zone is of, empty if it is not known
	impossible int
	err        error // why it is not trained
}

// fit trains each zone kind that the collector measured.
func (o *trainOptions) fit(r *record) (*trainedRecord, error) {
	switch {
	case r.machine == nil:
		return nil, errNoMachine
	case len(r.kinds) == 0:
		return nil, errNoKinds
	}
	load := calibration.Averages(r.utilization)
	from, to := load.Span()
	t := &trainedRecord{
		seconds: to - from,
		model:   trained.Model{Created: o.now(), Machine: *r.machine, Zones: map[power.Kind]trained.Zone{}},
	}
	for _, k := range trained.Kinds {
		z := trainedZone{kind: k}
		if k == power.Platform {
			z.meter = r.wholeMeter()
		}
		reads := r.kinds[sumID(k, power.Measured)]
		switch source := r.source(k); {
		case reads != nil:
			z.err = o.learn(&z, &load, reads.reads, r.machine.Sockets)
		case source != "":
			z.err = fmt.Errorf("it is %s, not measured", source)
		default:
			continue
		}
		t.zones = append(t.zones, z)
		if z.err == nil {
			t.model.Zones[k] = z.zone()
		}
	}
	return t, nil
}

// sumID returns the ID of a zone kind in record.kinds.
func sumID(k power.Kind, method power.Method) string { return string(k) + " " + string(method) }

// source returns where the energy of a zone kind is from, empty if the collector does not report it.
func (r *record) source(k power.Kind) string {
	for id := range r.kinds {
		if source, ok := strings.CutPrefix(id, string(k)+" "); ok {
			return source
		}
	}
	return ""
}

func (o *trainOptions) learn(z *trainedZone, load *calibration.Series, reads []calibration.Point, sockets int) (err error) {
	watts := calibration.Energy(reads)
	if watts.Empty() {
		return errors.New("its meter counted nothing")
	}
	if z.kind == power.Platform { // its meter may be slow; the others are read with the CPU times
		if z.lag, _, err = calibration.Align(load, &watts, o.maxLag.Seconds()); err != nil {
			return err
		}
	}
	var windows []calibration.Window
	windows, z.impossible = calibration.Windows(load, &watts, calibration.WindowOptions{
		Lag: z.lag, MaxWatts: float64(power.MaxWatts(z.kind)) * float64(max(sockets, 1)),
	})
	z.learned, err = calibration.Learn(windows, leastUtilization)
	return err
}

// zone returns the zone of the model.
func (z *trainedZone) zone() trained.Zone {
	l := z.learned
	zone := trained.Zone{Error: rounded(l.Error, 1e4), Seconds: math.Round(l.Seconds), Lowest: rounded(l.Lowest, 1e4), Highest: rounded(l.Highest, 1e4)}
	for _, k := range l.Curve {
		p := model.Point{Utilization: rounded(k.X, 1e4), Watts: rounded(k.Y, 1e3)}
		if n := len(zone.Curve); n == 0 || p.Utilization > zone.Curve[n-1].Utilization {
			zone.Curve = append(zone.Curve, p)
		}
	}
	return zone
}

// rounded returns a value to a part of 1.
func rounded(v, parts float64) float64 { return math.Round(v*parts) / parts }

// render writes what was trained.
func (t *trainedRecord) render(out io.Writer) {
	m := &t.model.Machine
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
		l := z.learned
		fmt.Fprintf(out, "%-10s%8.1f W%8.1f W%9s%8d%10v\n", z.kind, l.Curve[0].Y, l.Curve[len(l.Curve)-1].Y, percent(l.Error), l.Bins, seconds(l.Seconds))
		notes = append(notes, z.notes()...)
	}
	if len(notes) > 0 {
		fmt.Fprintf(out, "\n%s\n", strings.Join(notes, "\n"))
	}
}

// wholeMeter returns the section of the receiver's meters that measure the whole machine, empty if
// it is not known.
func (r *record) wholeMeter() (section string) {
	for id, z := range r.zones {
		if z.kind != "host" {
			continue
		}
		if of := sectionOf(id); section == "" || section == of {
			section = of
		} else {
			return ""
		}
	}
	return section
}

func seconds(v float64) time.Duration { return time.Duration(math.Round(v)) * time.Second }

// notIdle is the lowest load from which the idle power is not known: there power rises steeply.
const notIdle = 0.03

// fewLoads is below how many bins of utilization a curve is called coarse.
const fewLoads = 8

// notes returns what to know of the curve.
func (z *trainedZone) notes() (notes []string) {
	l := z.learned
	add := func(format string, args ...any) {
		notes = append(notes, fmt.Sprintf("%s: "+format, slices.Concat([]any{z.kind}, args)...))
	}
	if l.Lowest > notIdle {
		add("the load was never below %.0f %%, where power rises steeply: the idle power may be far off", 100*l.Lowest)
	}
	if l.Highest < 1-far {
		add("the load was never above %.0f %%: the curve continues its line from there", 100*l.Highest)
	}
	if l.Bins < fewLoads {
		add("only %d different loads: the curve is straight in between", l.Bins)
	}
	if z.impossible > 0 {
		add("%d powers that are impossible were left out", z.impossible)
	}
	if z.lag >= 1 {
		setting := fmt.Sprintf("meters: {%s: {lag: %s}}", z.meter, lagSetting(z.lag))
		if z.meter == "" || z.meter == wholeMachine {
			setting = fmt.Sprintf("lag: %s in the section of that meter: %s",
				lagSetting(z.lag), strings.Join(wholeMachineSections, ", "))
		}
		add("its meter is %.0f s behind the load, which was allowed for. The receiver corrects it with %s", z.lag, setting)
	}
	return notes
}
