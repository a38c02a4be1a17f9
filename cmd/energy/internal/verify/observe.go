// SPDX-License-Identifier: Apache-2.0

package verify

import (
	"context"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"time"

	"github.com/prometheus/procfs"
	"go.opentelemetry.io/collector/component"
	"go.uber.org/zap"

	"github.com/energyreceiver/energyreceiver/cmd/energy/internal/snapshot"
	"github.com/energyreceiver/energyreceiver/internal/power"
	"github.com/energyreceiver/energyreceiver/internal/units"
	"github.com/energyreceiver/energyreceiver/internal/usage/cpu"
	"github.com/energyreceiver/energyreceiver/internal/usage/proc"
	energyreceiver "github.com/energyreceiver/energyreceiver/receiver"
)

// Loader runs one load at a time.
type Loader interface {
	// CPUs returns the CPUs that programs may use, nil for all.
	CPUs() []int
	// Start starts a program with the load on each of the CPUs, and returns their process IDs.
	Start(load Load, cpus []int) (pids []int, err error)
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
	// CanCount returns the reason if the hardware events of processes cannot be counted on the
	// machine with this root directory, otherwise nil.
	CanCount func(root string) error
}

const (
	readEvery    = 200 * time.Millisecond
	collectEvery = time.Second
	// answersWithin is the maximum wait for the first response of a meter.
	answersWithin = 8 * time.Second
)

// Run runs the loads and records the reports of the meters and of the receiver. If ctx ends, Run
// ends the loads and returns the cause.
func Run(ctx context.Context, o Options) (*Observation, error) {
	root := o.Config.RootPath
	m, err := readMachine(root, o.Loader.CPUs())
	if err != nil {
		return nil, err
	}
	proc, err := procfs.NewFS(filepath.Join(root, "proc"))
	if err != nil {
		return nil, err
	}
	plain, noEvents := o.Config, notCompared(&o, &m)
	if noEvents == "" {
		plain = weighed(o.Config, plainWeights)
	}
	meters, err := localMeters(ctx, o.Config)
	if err != nil {
		return nil, err
	}
	receiver, err := startReceiver(ctx, plain, energyreceiver.EmbeddedID)
	if err != nil {
		return nil, err
	}
	r := &recorder{
		Options: &o, began: time.Now(), proc: proc, attributed: receiver, ticks: cpu.NewProcfs(cpu.Options{Root: root}),
		meters: meters, thermometers: thermometers(root), zones: map[string]*Zone{},
		o: &Observation{
			Backend: o.Backend, Machine: m, Busy: map[int][]Point{}, Sums: map[power.Class][]Sums{}, GPUs: map[string][]GPU{},
			NoEvents: noEvents,
		},
	}
	if noEvents == "" {
		id := component.NewIDWithName(energyreceiver.EmbeddedID.Type(), "events")
		if r.events, err = startReceiver(ctx, weighed(o.Config, eventWeights), id); err != nil {
			r.o.NoEvents = firstLine(err)
		}
	}
	r.bpf, r.noBPF = cpu.OpenBPF(cpu.Options{Root: root})
	err = r.run(ctx)
	r.describe()
	if closed := r.close(); err == nil {
		err = closed
	}
	return r.o, err
}

// startReceiver starts a receiver with the metrics that the checks need.
func startReceiver(ctx context.Context, given *energyreceiver.Config, id component.ID) (*attributed, error) {
	cfg := *given
	cfg.CollectionInterval, cfg.InitialDelay, cfg.Window, cfg.Storage = collectEvery, 0, 0, ""
	cfg.Series.Processes = energyreceiver.ProcessSeriesConfig{GroupBy: energyreceiver.GroupByPID}
	m := &cfg.Metrics
	m.SystemEnergy.Enabled, m.SystemUnattributedEnergy.Enabled, m.ProcessEnergy.Enabled = true, true, true
	m.HwEnergy.Enabled, m.HwHostEnergy.Enabled, m.HwPower.Enabled, m.HwGpuUtilization.Enabled = true, true, true, true
	m.SystemPower.Enabled, m.SystemPowerUncertainty.Enabled = true, true
	receiver, err := energyreceiver.Embed(&cfg, energyreceiver.EmbeddedOptions{ID: id, Logger: zap.NewNop()})
	if err != nil {
		return nil, err
	}
	if err := receiver.Start(ctx); err != nil {
		return nil, errors.Join(err, receiver.Shutdown(context.WithoutCancel(ctx)))
	}
	return &attributed{receiver: receiver, account: snapshot.Account{FromZero: true}}, nil
}

// recorder records an observation.
type recorder struct {
	*Options
	o     *Observation
	began time.Time
	proc  procfs.FS
	zones map[string]*Zone // by meter and ID

	meters       []power.Member // that are read whether or not the receiver uses them
	thermometers []string       // files
	ticks        *cpu.Procfs
	bpf          *cpu.BPF
	noBPF        error // why there is no bpf

	*attributed
	collected time.Time   // of the last collection
	events    *attributed // by hardware events; nil if the weights are not compared
}

func (r *recorder) seconds(at time.Time) float64 { return at.Sub(r.began).Seconds() }

func (r *recorder) close() error {
	err := errors.Join(r.ticks.Close(), r.attributed.close(), r.events.close())
	if r.noBPF == nil {
		err = errors.Join(err, r.bpf.Close())
	}
	for _, m := range r.meters {
		err = errors.Join(err, m.Meter.Close())
	}
	return err
}

// run runs the steps one after the other, once all meters have answered.
func (r *recorder) run(ctx context.Context) error {
	for _, status := range r.receiver.Meters() {
		if i := r.own(status.Name); i >= 0 {
			r.meters[i].Correction = status.Correction
		}
	}
	r.read(ctx)
	ticker := time.NewTicker(readEvery)
	defer ticker.Stop()
	for r.receiver.Waits() && time.Since(r.began) < answersWithin && ctx.Err() == nil {
		<-ticker.C
		r.collect(ctx)
	}
	begin := r.seconds(time.Now())
	r.o.Steps = plan(&r.o.Machine, r.Length.Seconds(), r.events != nil)
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
func (r *recorder) step(ctx context.Context, s *Step, ticks <-chan time.Time) (err error) {
	if err = r.startLoads(s); err != nil {
		return fmt.Errorf("start the load %q: %w", s.Name, err)
	}
	end := s.To
	s.From = r.seconds(time.Now())
	for r.seconds(time.Now()) < end && ctx.Err() == nil {
		select {
		case <-ticks:
			r.read(ctx)
		case <-ctx.Done():
		}
	}
	s.To = r.seconds(time.Now())
	if s.Load == Idle {
		return context.Cause(ctx)
	}
	r.Loader.Pause()
	if ctx.Err() == nil {
		r.record(ctx, s)
	}
	waited, err := r.Loader.End()
	for i := range s.Programs {
		s.Programs[i].Waited = waited[i].Seconds()
	}
	return errors.Join(context.Cause(ctx), err)
}

// startLoads starts the programs of a step.
func (r *recorder) startLoads(s *Step) error {
	for _, load := range []Load{Memory, Spin} {
		cpus := s.parts()[load]
		if len(cpus) == 0 {
			continue
		}
		pids, err := r.Loader.Start(load, cpus)
		if err != nil {
			return err
		}
		for i, pid := range pids {
			s.Programs = append(s.Programs, Program{CPU: cpus[i], PID: pid, Load: load, Counted: map[string]float64{}})
		}
	}
	return nil
}

// record records the CPU times and energies of the programs of a step, which are paused.
func (r *recorder) record(ctx context.Context, s *Step) {
	r.collect(ctx)
	for i := range s.Programs {
		p := &s.Programs[i]
		p.Energy = r.energyOf(p.PID)
		if r.events != nil {
			p.ByEvents = r.events.energyOf(p.PID)
		}
	}
	setTimes(s.Programs, "procfs", r.ticks)
	if r.noBPF == nil {
		setTimes(s.Programs, "BPF", r.bpf)
	}
}

// setTimes sets the CPU time of programs by a source that can be read.
func setTimes(programs []Program, name string, source cpu.Source) {
	table := proc.New(source.Traits().Traits)
	if source.Scan(table, cpu.Request{Want: cpu.Want{All: true}}) != nil {
		return
	}
	for p := range table.All() {
		if at := slices.IndexFunc(programs, func(known Program) bool { return known.PID == int(p.PID) }); at >= 0 {
			programs[at].Counted[name] = float64(p.CPU) / 1e9
		}
	}
}

// read reads the meters, and the receiver and temperatures when they are due.
func (r *recorder) read(ctx context.Context) {
	busy := r.readCPUs()
	sample := power.Sample{At: time.Now(), Busy: busy, Total: busy}
	for i := range r.meters {
		readings, _ := r.meters[i].Meter.Read(ctx, sample) // the receiver reports the error
		r.add(&r.meters[i], readings)
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

// collect has the receiver measure, records its totals, and reads the meters that the recorder does
// not read.
func (r *recorder) collect(ctx context.Context) {
	r.collected = time.Now()
	s, err := r.attributed.collect(ctx)
	if err != nil {
		return
	}
	if r.events != nil {
		_, _ = r.events.collect(ctx)
	}
	deferred := r.receiver.Deferred()
	for i, z := range r.account.Zones() {
		sums := r.sums(i)
		sums.At, sums.Deferred = r.seconds(r.collected), deferred[z.Zone]
		r.o.Sums[z.Class] = append(r.o.Sums[z.Class], sums)
	}
	for _, m := range s.Meters {
		if m.Type == "gpu" && !math.IsNaN(m.Watts+m.Utilization) {
			r.o.GPUs[m.ID] = append(r.o.GPUs[m.ID], GPU{m.Watts, m.Utilization})
		}
	}
	for _, status := range r.receiver.Meters() {
		if r.own(status.Name) < 0 && !status.StandsIn {
			r.add(&power.Member{Name: status.Name}, status.Readings) // which the receiver has corrected
		}
	}
}

// sums returns the sums of the zone with an index in the account.
func (r *recorder) sums(zone int) Sums {
	z := r.account.Zones()[zone]
	active, idle, unattributed := r.account.ZoneUsed(zone)
	sums := Sums{
		Active: active.Used, Idle: idle.Used, Unattributed: unattributed.Used,
		Processes: r.processes.Ended[zone].Used, Uncertainty: z.Uncertainty * z.ActiveWatts,
	}
	for _, row := range r.processes.Rows {
		sums.Processes += row.Amounts[zone].Used
	}
	for _, m := range r.account.Meters() {
		isPart := m.Zone == power.Platform // a part of the machine's
		if m.Type == "host" {
			m.Zone, isPart = power.Platform, false
		}
		if m.Class == z.Class && !isPart {
			sums.Zones += r.account.MeterUsed(m.ID)
		}
	}
	return sums
}

// own returns the index of a meter that the recorder reads itself, -1 for others.
func (r *recorder) own(name string) int {
	return slices.IndexFunc(r.meters, func(m power.Member) bool { return m.Name == name })
}

// add adds readings of a meter.
func (r *recorder) add(meter *power.Member, readings []power.Reading) {
	for i := range readings {
		reading := &readings[i]
		if reading.Zone.Includes != "" {
			continue // the receiver reports less than the meter
		}
		key := meter.Name + " " + reading.Zone.ID
		z := r.zones[key]
		if z == nil {
			z = &Zone{
				Meter: meter.Name, ID: publicID(meter.Name, reading.Zone, r.o.Zones), Kind: reading.Zone.Kind,
				Socket: socketOf(reading.Zone), Method: reading.Zone.Method, Prompt: reading.Zone.Prompt,
			}
			r.zones[key] = z
			r.o.Zones = append(r.o.Zones, z)
		}
		z.Reads++
		if reading.Err != nil {
			z.Failed++
			continue
		}
		at := r.seconds(reading.At)
		if meter.Correction != nil {
			at -= meter.Correction(reading.Zone).Lag.Seconds()
		}
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

// describe records the state of the meters at the end.
func (r *recorder) describe() {
	status := r.receiver.Meters()
	took := chosenOf(status)
	r.o.Meters = explain(status, took, r.Config)
	for _, z := range r.o.Zones {
		z.Chosen = took[z.Kind] == z.Meter
	}
	r.o.Trained = r.receiver.Trained()
	if r.noBPF != nil {
		r.o.NoBPF = firstLine(r.noBPF)
	}
	if r.events != nil {
		r.o.NoEvents, r.o.NoClocks = unweighed(r.events.receiver), unweighed(r.receiver) != ""
	}
	r.o.Lacks = lacks(status, r.noBPF, &r.o.Machine)
}
