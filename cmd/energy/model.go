// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/energyreceiver/energyreceiver/cmd/energy/internal/figure"
	"github.com/energyreceiver/energyreceiver/cmd/energy/internal/model"
	"github.com/energyreceiver/energyreceiver/cmd/energy/internal/patience"
	"github.com/energyreceiver/energyreceiver/cmd/energy/internal/receiverconfig"
	snap "github.com/energyreceiver/energyreceiver/cmd/energy/internal/snapshot"
	"github.com/energyreceiver/energyreceiver/internal/machine"
	"github.com/energyreceiver/energyreceiver/internal/power"
	"github.com/energyreceiver/energyreceiver/internal/power/model/nodeevents"
	"github.com/energyreceiver/energyreceiver/internal/power/model/trained"
	energyreceiver "github.com/energyreceiver/energyreceiver/receiver"
)

type modelOptions struct {
	model.FitOptions
	endpoint         string // of a collector, empty for the embedded receiver
	config, receiver string
	interval, length time.Duration
	record, from     string
	out              string // file of the trained model
	kepler           string // directory for models of Kepler Model Server
	force            bool
}

// subcommand returns the command model.
func (o *modelOptions) subcommand() *cobra.Command {
	c := &cobra.Command{
		Use: "model [flags]", Short: "make a power model for machines without meters",
		Long: `Records the CPU utilization and the energy of this machine, and makes a power model. By default, it
trains a model file with these meters, for machines with the same CPU. With --wall, it prints a
power curve fitted to a wall meter, and corrections for the meters of this machine.`,
		Example: `  energy model --for 3h -o node.json               trains a model
  energy model --for 3h --kepler models            trains over CPU time and hardware counters
  energy model --for 55m --record node.csv         records
  energy model --from node.csv --wall wall.csv     fits the record to a wall meter
  energy model --from node.csv --zone A,B          fits the record to sensors`,
		Args: noArguments(o.check),
		RunE: untilDone(func(ctx context.Context) error { return o.run(ctx, os.Stdout, os.Stderr) }),
	}
	flagGroup(c, "Record", func(f *pflag.FlagSet) {
		f.DurationVar(&o.length, "for", time.Hour, "how long to record; Ctrl-C ends it early")
		f.DurationVar(&o.interval, "interval", time.Second, "time between two readings")
		f.StringVar(&o.record, "record", "", "`file` to write the record to")
		f.StringVar(&o.from, "from", "", "`file` written by an earlier --record")
		f.Var((*endpoint)(&o.endpoint), "endpoint", "`URL` or host:port of the Prometheus exporter of a collector to read")
		f.StringVar(&o.config, "config", "", "`file` with the configuration of the receiver or a collector, for its meters")
		f.StringVar(&o.receiver, "receiver", "", "`name` of the receiver in that file if it has several: energy/name")
	})
	flagGroup(c, "Model", func(f *pflag.FlagSet) {
		f.StringVarP(&o.out, "output", "o", "", "`file` to write the trained model to (default model.json)")
		f.StringVar(&o.kepler, "kepler", "", "`directory` for models in the format of Kepler Model Server, trained with CPU time and hardware counters")
		forceFlag(f, &o.force)
		f.StringVar(&o.Wall, "wall", "", "CSV `file` of a wall meter (time and watts) to fit to")
		f.StringVar(&o.Zone, "zone", "", "hw.id of the `sensors` to fit to instead of a wall meter, separated by commas")
		f.StringVar(&o.Over, "over", "", "hw.id of the `sensors` whose power replaces utilization in the fit")
		f.DurationVar(&o.Plateau, "plateau", time.Minute, "minimum length of a plateau, without --settle")
		f.DurationVar(&o.Settle, "settle", 30*time.Second, "time ignored at both ends of a plateau: averaging period of the slowest meter")
		f.DurationVar(&o.MaxLag, "max-lag", 2*time.Minute, "maximum lag of a meter behind the load")
	})
	return c
}

func (o *modelOptions) check() error {
	same := func(a, b string) bool { return a != "" && filepath.Clean(a) == filepath.Clean(b) }
	fits := o.Wall != "" || o.Zone != ""
	switch {
	case o.Wall != "" && o.Zone != "":
		return errors.New("--wall and --zone are mutually exclusive")
	case fits && o.trains():
		return errors.New("--output and --kepler require training: --wall and --zone only print settings")
	case o.Over != "" && !fits:
		return errors.New("--over requires --wall or --zone")
	case o.from != "" && (o.record != "" || o.endpoint != "" || o.config != ""):
		return errors.New("--from cannot be combined with --record, --endpoint or --config")
	case o.endpoint != "" && o.config != "":
		return errors.New("--endpoint and --config are mutually exclusive")
	case same(o.Wall, o.record) || same(o.Wall, o.from) || same(o.out, o.record) || same(o.out, o.from):
		return errors.New("two flags name the same file")
	case o.interval <= 0 || o.Plateau <= 0 || o.MaxLag <= 0:
		return errors.New("--interval, --plateau and --max-lag must be above 0")
	case o.length < 0 || o.Settle < 0:
		return errors.New("--for and --settle must not be below 0")
	}
	if !fits && o.record == "" && o.kepler == "" {
		o.out = cmp.Or(o.out, "model.json")
	}
	return refuseExisting(o.force, append(model.KeplerFiles(o.kepler), o.record, o.out)...)
}

// trains reports whether a model is trained.
func (o *modelOptions) trains() bool { return o.out != "" || o.kepler != "" }

func (o *modelOptions) run(ctx context.Context, out, messages io.Writer) error {
	record, err := create(context.WithoutCancel(ctx), o.record) // before the time is spent
	if err != nil {
		return err
	}
	defer record.discard()
	file, err := create(context.WithoutCancel(ctx), o.out)
	if err != nil {
		return err
	}
	defer file.discard()
	if o.kepler != "" {
		if err := os.MkdirAll(o.kepler, 0o755); err != nil { //nolint:gosec // a model is no secret
			return err
		}
	}
	if _, err := os.Stat(o.Wall); o.Wall != "" && err != nil {
		return err
	}
	r, err := o.obtain(ctx, messages)
	hasFigures := r != nil && !r.IsEmpty()
	if hasFigures && record != nil { // also a record that ended early
		err = errors.Join(err, record.save(r.Write))
	}
	if err == nil {
		err = o.model(r, file, out)
	}
	if err != nil && hasFigures && o.from == "" && record == nil {
		err = keep(r, err)
	}
	return err
}

// model makes the model of a record.
func (o *modelOptions) model(r *model.Record, file *output, out io.Writer) error {
	if o.Wall != "" || o.Zone != "" {
		fitted, err := r.Fit(o.FitOptions)
		if err == nil {
			fitted.WriteText(out)
		}
		return err
	}
	if !o.trains() {
		fmt.Fprintf(out, "Recorded %v in %s\n", r, o.record)
		return nil
	}
	trained, err := r.Train(o.MaxLag, time.Now())
	if trained != nil {
		trained.WriteText(out)
	}
	if err != nil {
		return err
	}
	if file != nil {
		data, err := trained.Model.Encode()
		if err == nil {
			err = file.saveData(data)
		}
		if err != nil {
			return err
		}
		fmt.Fprintf(out, "\nWritten to %s\n", o.out)
	}
	if o.kepler != "" {
		return o.writeKepler(trained, out)
	}
	return nil
}

// writeKepler trains and writes the models of Kepler Model Server, and removes the models of an earlier run.
func (o *modelOptions) writeKepler(trained *model.Trained, out io.Writer) error {
	c, err := trained.Compare()
	if err != nil {
		return err
	}
	c.WriteText(out)
	files, err := c.Encode(o.kepler)
	if err == nil {
		err = refuseExisting(o.force, model.KeplerFiles(o.kepler)...) // another command may have written them meanwhile
	}
	if err != nil {
		return err
	}
	for path, data := range files {
		next := path + ".new"
		defer func() { _ = os.Remove(next) }()                  // unless it was renamed
		if err := os.WriteFile(next, data, 0o644); err != nil { //nolint:gosec // a model is no secret
			return err
		}
	}
	for _, path := range model.KeplerFiles(o.kepler) {
		if _, isNew := files[path]; isNew {
			err = os.Rename(path+".new", path)
		} else if err = os.Remove(path); errors.Is(err, fs.ErrNotExist) {
			err = nil
		}
		if err != nil {
			return err
		}
	}
	fmt.Fprintf(out, "\nWritten to %s: %d models (*)\n", o.kepler, len(files))
	return nil
}

// keep writes a record to a temporary file, and adds its name to an error.
func keep(r *model.Record, err error) error {
	f, failed := os.CreateTemp("", "energy-record-*.csv")
	if failed == nil {
		failed = errors.Join(r.Write(f), f.Close())
	}
	if failed != nil {
		return errors.Join(err, failed)
	}
	return fmt.Errorf("%w; the record is kept: --from %s", err, f.Name())
}

// obtain reads the record of --from, or records this machine or a collector.
func (o *modelOptions) obtain(ctx context.Context, messages io.Writer) (*model.Record, error) {
	if o.from == "" {
		return o.collect(ctx, messages)
	}
	data, err := os.ReadFile(o.from)
	if err != nil {
		return nil, err
	}
	r, err := model.ReadRecord(data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", o.from, err)
	}
	return r, nil
}

var (
	errElsewhere = errors.New("the endpoint has the address of another machine: train on the machine that has the meters")
	errNotBusy   = errors.New("the collector does not report system.cpu.busy, or only from its second collection on: " +
		"the receiver needs `metrics: {system.cpu.busy: {enabled: true}}`")
)

// collect records this machine or a collector.
func (o *modelOptions) collect(ctx context.Context, messages io.Writer) (r *model.Record, err error) {
	from := model.Source{
		Read: o.scrape, Every: o.interval, Meters: o.trains() || o.Zone != "", Progress: o.progress(messages),
	}
	root, notes := "/", func() []string { return nil }
	if o.endpoint == "" {
		cfg, err := o.configure(ctx)
		if err != nil {
			return nil, err
		}
		machine, err := patience.Call(ctx, endsWithin, func() (*source, error) { return openMachine(ctx, cfg) })
		if err != nil {
			return nil, err
		}
		defer func() { _ = await(ctx, machine.close) }()
		from.Read, root, notes = machine.read, cfg.RootPath, machine.notes
	}
	r = &model.Record{}
	m, err := machine.Read(root, os.Getenv)
	if err == nil && hostOf(o.endpoint) != "" {
		err = errElsewhere
	}
	if err == nil {
		r.Machine = &m
		counters := nodeevents.New(root)
		defer func() { _ = counters.Close() }() // no data is lost: it was only read
		from.Counters = counters
		if err := model.Unreadable(counters); o.kepler != "" && err != nil {
			fmt.Fprintf(messages, "No models over hardware counters: %v\n", err)
		}
	} else if o.trains() {
		return nil, err
	}
	if o.length > 0 {
		var stop context.CancelFunc
		ctx, stop = context.WithTimeout(ctx, o.length)
		defer stop()
	}
	if err = r.Collect(ctx, from); errors.Is(err, model.ErrNoMeter) {
		const advice = "train on a machine with meters, or fit to a wall meter with --wall"
		err = fmt.Errorf("%w: %s", err, strings.Join(append([]string{advice}, notes()...), "\n  "))
	}
	if isTerminal(messages) && !r.IsEmpty() {
		fmt.Fprintln(messages)
	}
	return r, err
}

// scrape reads the collector.
func (o *modelOptions) scrape(ctx context.Context) (*snap.Snapshot, error) {
	s, err := snap.Scrape(ctx, http.DefaultClient, o.endpoint)
	switch {
	case err != nil:
		return nil, err
	case s.At.IsZero():
		return nil, fmt.Errorf("%s has no figures of an energy receiver", o.endpoint)
	case math.IsNaN(s.Busy):
		return nil, errNotBusy
	}
	return s, nil
}

// configure returns the configuration of the receiver.
func (o *modelOptions) configure(ctx context.Context) (cfg *energyreceiver.Config, err error) {
	cfg = energyreceiver.DefaultConfig()
	if o.config != "" {
		if cfg, _, err = receiverconfig.Load(ctx, o.config, o.receiver); err != nil {
			return nil, err
		}
	}
	_ = readGPUs(cfg, nil)
	cfg.CollectionInterval, cfg.InitialDelay, cfg.Window, cfg.Storage = o.interval, 0, 0, ""
	for _, k := range trained.Kinds {
		if !slices.Contains(cfg.Zones, k) {
			cfg.Zones = append(cfg.Zones, k)
		}
	}
	m := &cfg.Metrics
	m.SystemCPUBusy.Enabled, m.SystemEnergy.Enabled, m.SystemPower.Enabled = true, true, true
	m.HwEnergy.Enabled, m.HwHostEnergy.Enabled = true, true
	return cfg, errors.Join(selectModel(cfg, "none", ""), cfg.Validate())
}

// answerWithin is the maximum time until the first reading of a slow meter.
const answerWithin = 8 * time.Second

// openMachine starts the embedded receiver and waits for its meters.
func openMachine(ctx context.Context, cfg *energyreceiver.Config) (*source, error) {
	s, err := openReceiver(ctx, cfg)
	if err != nil {
		return nil, err
	}
	_, err = s.read(ctx) // the first collection has no utilization
	for deadline := time.Now().Add(answerWithin); err == nil && s.waits() && time.Now().Before(deadline) && ctx.Err() == nil; {
		pause(ctx, 100*time.Millisecond)
		_, err = s.read(ctx)
	}
	if err != nil {
		return nil, errors.Join(err, s.close())
	}
	return s, nil
}

// progress returns a function that shows the progress of a recording: one sentence, and on a terminal
// the figures of now on one line.
func (o *modelOptions) progress(to io.Writer) func(*snap.Snapshot) {
	began, text := time.Now(), "Recording until Ctrl-C\n"
	if o.length > 0 {
		text = fmt.Sprintf("Recording for %v, Ctrl-C ends it early\n", o.length)
	}
	return func(s *snap.Snapshot) {
		fmt.Fprint(to, text)
		if text = ""; isTerminal(to) {
			fmt.Fprintf(to, "\r%s\x1b[K", progressLine(time.Since(began), s))
		}
	}
}

// progressLine returns the CPU utilization and the measured powers.
func progressLine(elapsed time.Duration, s *snap.Snapshot) string {
	line := fmt.Sprintf("%v, CPU %.0f %%", elapsed.Round(time.Second), 100*s.Busy)
	for _, z := range s.Zones {
		if z.Method == power.Measured {
			line += fmt.Sprintf(", %s %s", z.Zone, figure.Watts(z.ActiveWatts+z.IdleWatts))
		}
	}
	return figure.Fit(line, 79)
}
