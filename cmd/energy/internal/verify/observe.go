// SPDX-License-Identifier: Apache-2.0

package verify

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"github.com/prometheus/procfs"

	"github.com/energyreceiver/energyreceiver/internal/power"
	energyreceiver "github.com/energyreceiver/energyreceiver/receiver"
)

// Loader runs loads.
type Loader interface {
	// CPUs returns the CPUs that programs may use, nil for all.
	CPUs() []int
	// Start starts a program with the load on each of the CPUs.
	Start(load Load, cpus []int) (Programs, error)
}

// Programs are the running programs of a load.
type Programs interface {
	// PIDs returns the process IDs, in the order of the CPUs.
	PIDs() []int
	// Pause stops the programs, so that their CPU times no longer change.
	Pause()
	// End ends the programs and returns their CPU times.
	End() ([]time.Duration, error)
}

// Options configures a run.
type Options struct {
	Config  *energyreceiver.Config
	Length  time.Duration
	Loader  Loader
	Say     func(format string, args ...any) // reports progress
	Backend *Backend
}

const (
	readEvery    = 200 * time.Millisecond
	collectEvery = time.Second
	warmEvery    = time.Second
)

// Run runs the loads and records the reports of the meters and of the receiver. If ctx ends, Run ends the
// loads and returns the cause.
func Run(ctx context.Context, o Options) (*Observation, error) {
	r := &recorder{Options: &o, o: &Observation{Backend: o.Backend}, began: time.Now()}
	m, err := readMachine(o.Config.RootPath, o.Loader.CPUs())
	if err != nil {
		return nil, err
	}
	r.o.Machine = m
	if r.proc, err = procfs.NewFS(filepath.Join(o.Config.RootPath, "proc")); err != nil {
		return nil, err
	}
	if err := r.open(ctx); err != nil {
		return nil, errors.Join(err, r.close())
	}
	err = r.run(ctx)
	r.describe()
	if closed := r.close(); err == nil {
		err = closed
	}
	return r.o, err
}

// recorder records an observation.
type recorder struct {
	*Options
	o        *Observation
	began    time.Time
	proc     procfs.FS
	meters   []ownMeter
	receiver *receiver
	times    []timeSource
	warm     thermometers

	zones           map[string]*Zone // by meter and ID
	collected, felt time.Time        // of the last collection, and of the temperatures
}

// ownMeter is a local meter that is read in addition to the receiver, whether or not the receiver uses it.
type ownMeter struct {
	name  string
	meter power.Meter
	err   error // of the last read
}

func (r *recorder) seconds(at time.Time) float64 { return at.Sub(r.began).Seconds() }

func (r *recorder) open(ctx context.Context) (err error) {
	r.zones = map[string]*Zone{}
	root := r.Config.RootPath
	r.meters = localMeters(r.Config)
	r.times = openTimes(root)
	r.warm = findThermometers(root)
	r.receiver, err = openReceiver(ctx, r.Config)
	return err
}

func (r *recorder) close() error {
	var errs []error
	for _, m := range r.meters {
		errs = append(errs, m.meter.Close())
	}
	for _, t := range r.times {
		errs = append(errs, t.source.Close())
	}
	if r.receiver != nil {
		errs = append(errs, r.receiver.close())
	}
	return errors.Join(errs...)
}

// run runs the steps one after the other.
func (r *recorder) run(ctx context.Context) error {
	r.read(ctx)
	r.receiver.await(ctx)
	ticker := time.NewTicker(readEvery)
	defer ticker.Stop()
	begin := r.seconds(time.Now())
	r.o.Steps = plan(&r.o.Machine, r.Length.Seconds())
	for i, s := range r.o.Steps {
		r.Say("step %d of %d, %.0f s: %s", i+1, len(r.o.Steps), s.To-s.From, s.Name)
		s.From, s.To = s.From+begin, s.To+begin
		if err := r.step(ctx, s, ticker.C); err != nil {
			r.o.Steps = r.o.Steps[:i]
			return err
		}
	}
	r.collect(ctx)
	return nil
}

// step runs a step. Its real begin and end replace those of the plan.
func (r *recorder) step(ctx context.Context, s *Step, ticks <-chan time.Time) error {
	var programs Programs
	end := s.To
	if s.Load != Idle {
		var err error
		if programs, err = r.Loader.Start(s.Load, s.CPUs); err != nil {
			return fmt.Errorf("start the load %q: %w", s.Name, err)
		}
	}
	s.From = r.seconds(time.Now())
	for r.seconds(time.Now()) < end && ctx.Err() == nil {
		select {
		case <-ticks:
			r.read(ctx)
		case <-ctx.Done():
		}
	}
	s.To = r.seconds(time.Now())
	if programs == nil {
		return context.Cause(ctx)
	}
	programs.Pause()
	if ctx.Err() == nil {
		r.record(ctx, s, programs.PIDs())
	}
	waited, err := programs.End()
	for i := range s.Programs {
		s.Programs[i].Waited = waited[i].Seconds()
	}
	return errors.Join(context.Cause(ctx), err)
}

// record records the CPU times and energies of the programs of a step, which are paused.
func (r *recorder) record(ctx context.Context, s *Step, pids []int) {
	r.collect(ctx)
	bpf, ticks := cpuTimes(r.times, "bpf", pids), cpuTimes(r.times, "procfs", pids)
	for i, pid := range pids {
		s.Programs = append(s.Programs, Program{CPU: s.CPUs[i], PID: pid, BPF: bpf[i], Procfs: ticks[i], Joules: r.receiver.joules(pid)})
	}
}

// read reads the meters, and temperatures and the receiver when they are due.
func (r *recorder) read(ctx context.Context) {
	busy := r.readCPUs()
	sample := power.Sample{At: time.Now(), Busy: busy, Total: busy}
	for i := range r.meters {
		m := &r.meters[i]
		var readings []power.Reading
		readings, m.err = m.meter.Read(ctx, sample)
		r.add(m.name, readings)
	}
	if sample.At.Sub(r.felt) >= warmEvery {
		r.felt = sample.At
		r.o.Temperatures = r.warm.read(r.o.Temperatures, r.seconds(sample.At))
	}
	if sample.At.Sub(r.collected) >= collectEvery {
		r.collect(ctx)
	}
}

// collect has the receiver measure, and reads the meters that the configuration describes.
func (r *recorder) collect(ctx context.Context) {
	r.collected = time.Now()
	entry, err := r.receiver.collect(ctx)
	if err != nil {
		return // the next one covers it
	}
	entry.At = r.seconds(r.collected)
	r.o.Ledger.Entries = append(r.o.Ledger.Entries, entry)
	for _, status := range r.receiver.meters() {
		if !slices.ContainsFunc(r.meters, func(m ownMeter) bool { return m.name == status.Name }) && !status.StandsIn {
			r.add(status.Name, status.Readings)
		}
	}
}

// add adds readings of a meter.
func (r *recorder) add(meter string, readings []power.Reading) {
	for i := range readings {
		reading := &readings[i]
		if reading.Zone.Includes != "" {
			continue // the receiver reports less than the meter
		}
		key := meter + " " + reading.Zone.ID
		z := r.zones[key]
		if z == nil {
			z = &Zone{
				Meter: meter, ID: publicID(meter, reading.Zone, r.o.Zones), Kind: reading.Zone.Kind, Socket: socketOf(reading.Zone),
				Method: reading.Zone.Method, Prompt: reading.Zone.Prompt,
			}
			r.zones[key] = z
			r.o.Zones = append(r.o.Zones, z)
		}
		z.Reads++
		if reading.Err != nil {
			z.Failed++
			continue
		}
		at := r.seconds(reading.At) - r.lag(meter, reading.Zone)
		if reading.At.IsZero() || len(z.Points) > 0 && z.Points[len(z.Points)-1].At >= at {
			continue
		}
		z.Points = append(z.Points, Point{at, joules(reading.Total)})
		if raw := reading.Raw; !raw.IsZero() {
			z.Range = joules(raw.Range)
			z.Raw = append(z.Raw, Point{at, joules(raw.Energy)})
		}
	}
}

// lag returns the lag in seconds that the configuration states of a local meter. The readings of
// other meters are corrected.
func (r *recorder) lag(meter string, zone *power.Zone) float64 {
	for _, m := range r.receiver.meters() {
		if m.Name == meter && m.Correction != nil && slices.ContainsFunc(r.meters, func(o ownMeter) bool { return o.name == meter }) {
			return m.Correction(zone).Lag.Seconds()
		}
	}
	return 0
}

// describe records the state of the meters at the end.
func (r *recorder) describe() {
	status := r.receiver.meters()
	took := chosenOf(status)
	r.o.Meters = explain(status, took, r.Config)
	for _, z := range r.o.Zones {
		z.Chosen = took[z.Kind] == z.Meter
	}
	r.o.Ledger.Source, r.o.Ledger.NoBPF = timesOf(r.times)
	r.o.Ledger.Trained = r.receiver.trained()
	r.o.Lacks = lacks(status, r.times, &r.o.Machine)
}
