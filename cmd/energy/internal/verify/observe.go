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
	"github.com/energyreceiver/energyreceiver/internal/units"
	"github.com/energyreceiver/energyreceiver/internal/usage/cpu"
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
)

// Run runs the loads and records the reports of the meters and of the receiver. If ctx ends, Run ends the
// loads and returns the cause.
func Run(ctx context.Context, o Options) (*Observation, error) {
	root := o.Config.RootPath
	m, err := readMachine(root, o.Loader.CPUs())
	if err != nil {
		return nil, err
	}
	r := &recorder{
		Options: &o, o: &Observation{Backend: o.Backend, Machine: m, Busy: map[int][]Point{}}, began: time.Now(),
		meters: localMeters(o.Config), thermometers: thermometers(root), zones: map[string]*Zone{},
		ticks: &timeSource{Source: cpu.NewProcfs(root)}, bpf: openBPF(root),
	}
	r.proc, err = procfs.NewFS(filepath.Join(root, "proc"))
	if err == nil {
		r.receiver, err = openReceiver(ctx, o.Config)
	}
	if err == nil {
		err = r.run(ctx)
		r.describe()
	}
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
	ticks    *timeSource // procfs
	bpf      *timeSource

	thermometers []string         // files
	zones        map[string]*Zone // by meter and ID
	collected    time.Time        // of the last collection
}

// ownMeter is a local meter that is read in addition to the receiver, whether or not the receiver uses it.
type ownMeter struct {
	name  string
	meter power.Meter
}

func (r *recorder) seconds(at time.Time) float64 { return at.Sub(r.began).Seconds() }

func (r *recorder) close() error {
	err := errors.Join(r.ticks.close(), r.bpf.close())
	for _, m := range r.meters {
		err = errors.Join(err, m.meter.Close())
	}
	if r.receiver != nil {
		err = errors.Join(err, r.receiver.Shutdown(context.Background()))
	}
	return err
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
			return err
		}
	}
	r.collect(ctx)
	return nil
}

// step runs a step. Its real begin and end replace the planned ones.
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
	bpf, ticks := r.bpf.times(pids), r.ticks.times(pids)
	for i, pid := range pids {
		s.Programs = append(s.Programs, Program{
			CPU: s.CPUs[i], PID: pid, BPF: bpf[i], Procfs: ticks[i], Energy: r.receiver.energy(pid),
		})
	}
}

// read reads the meters, and the receiver and temperatures when they are due.
func (r *recorder) read(ctx context.Context) {
	busy := r.readCPUs()
	sample := power.Sample{At: time.Now(), Busy: busy, Total: busy}
	for _, m := range r.meters {
		readings, _ := m.meter.Read(ctx, sample) // the receiver reports the error
		r.add(m.name, readings)
	}
	if sample.At.Sub(r.collected) < collectEvery {
		return
	}
	r.o.Temperatures = append(r.o.Temperatures, make([][]Point, len(r.thermometers)-len(r.o.Temperatures))...)
	for i, path := range r.thermometers {
		if milli, ok := readInt(path); ok {
			r.o.Temperatures[i] = append(r.o.Temperatures[i], Point{r.seconds(sample.At), float64(milli) / 1000})
		}
	}
	r.collect(ctx)
}

// readCPUs records the busy time of each CPU, and returns their sum.
func (r *recorder) readCPUs() (sum units.CPUTime) {
	stat, err := r.proc.Stat()
	if err != nil {
		return 0
	}
	at := r.seconds(time.Now())
	for number, c := range stat.CPU {
		busy := c.User + c.Nice + c.System + c.IRQ + c.SoftIRQ
		r.o.Busy[int(number)] = append(r.o.Busy[int(number)], Point{at, busy})
		sum += units.CPUTime(busy * 1e9)
	}
	return sum
}

// collect has the receiver measure, and reads the meters that the configuration describes.
func (r *recorder) collect(ctx context.Context) {
	r.collected = time.Now()
	entry, err := r.receiver.collect(ctx)
	if err != nil {
		return // the next one covers it
	}
	entry.At = r.seconds(r.collected)
	r.o.Entries = append(r.o.Entries, entry)
	for _, status := range r.receiver.Meters() {
		if !r.reads(status.Name) && !status.StandsIn {
			r.add(status.Name, status.Readings)
		}
	}
}

// reads reports whether the recorder itself reads a meter.
func (r *recorder) reads(meter string) bool {
	return slices.ContainsFunc(r.meters, func(m ownMeter) bool { return m.name == meter })
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
		if reading.At.IsZero() || lastAt(z.Points) >= at {
			continue
		}
		z.Points = append(z.Points, Point{at, reading.Total.Joules()})
		if raw := reading.Raw; !raw.IsZero() {
			z.Range = raw.Range.Joules()
			z.Raw = append(z.Raw, Point{at, raw.Energy.Joules()})
		}
	}
}

// lag returns the lag in seconds that the configuration states of a meter that the recorder reads.
// The receiver's readings are corrected.
func (r *recorder) lag(meter string, zone *power.Zone) float64 {
	for _, m := range r.receiver.Meters() {
		if m.Name == meter && m.Correction != nil && r.reads(meter) {
			return m.Correction(zone).Lag.Seconds()
		}
	}
	return 0
}

// describe records the state of the meters at the end.
func (r *recorder) describe() {
	status := r.receiver.Meters()
	took := chosenOf(status)
	r.o.Meters = explain(status, took, r.Config)
	for _, z := range r.o.Zones {
		z.Chosen = took[z.Kind] == z.Meter
	}
	r.o.Trained = map[string]bool{}
	for class, trained := range r.receiver.Trained() {
		r.o.Trained[classID(class)] = trained
	}
	r.o.CPUTimes = "bpf"
	if r.bpf.err != nil {
		r.o.CPUTimes, r.o.NoBPF = "procfs", firstLine(r.bpf.err)
	}
	r.o.Lacks = lacks(status, r.bpf.err, &r.o.Machine)
}
