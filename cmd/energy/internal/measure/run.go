// SPDX-License-Identifier: Apache-2.0

package measure

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/energyreceiver/energyreceiver/cmd/energy/internal/command"
	"github.com/energyreceiver/energyreceiver/cmd/energy/internal/figure"
	"github.com/energyreceiver/energyreceiver/cmd/energy/internal/phase"
	"github.com/energyreceiver/energyreceiver/feed"
	"github.com/energyreceiver/energyreceiver/internal/power"
	"github.com/energyreceiver/energyreceiver/internal/units"
	"github.com/energyreceiver/energyreceiver/internal/usage/cpu"
	energyreceiver "github.com/energyreceiver/energyreceiver/receiver"
)

// CgroupVariable is the environment variable with the path of the command's cgroup in the
// hierarchy, if the command has a cgroup.
const CgroupVariable = "ENERGY_CGROUP"

// ErrNoMeter is the error if Options.NeedsEnergy is set and no energy can be measured or estimated.
var ErrNoMeter = errors.New("no meter and no power model is available")

// run is a command or a process that is measured.
type run struct {
	*Options
	notes    []string // see note
	group    *command.Group
	process  *command.Process // nil if the process ran before
	meter    *meter
	record   *record
	machine  *wholeMachine // nil unless its programs or containers are wanted
	marks    chan mark
	result   *Result
	phase    string
	begun    int       // marks
	baseline *Baseline // the measurement before the command, or nil
	// late has, for each kind whose energy is incomplete, the time until which its zones have
	// reported energy.
	late map[power.Class]time.Time
	// busy is the utilization of the node times seconds.
	busy float64
}

// Run runs a command and measures its energy. With Options.PID it measures a process that runs.
//
// An error reports why the command was not started: command.ErrNotFound, command.ErrNotExecutable,
// ErrNoMeter, the cause of ctx, or an error of the receiver. A command that runs is not disturbed:
// the notes of the result have the errors. Signals are passed on to it. The end of ctx only ends the
// wait for slow meters, and the measurement of a process that ran before.
func Run(ctx context.Context, o Options) (*Result, error) {
	r := &run{Options: &o, marks: make(chan mark), phase: phase.None}
	cfg, without := embeddedConfig(&o)
	r.notes = without
	if err := r.openGroup(cmp.Or(cfg.RootPath, "/")); err != nil {
		return nil, err
	}
	defer func() { _ = r.group.Close() }() // the command has ended: a remaining cgroup does no harm
	static, err := r.measureBaseline(ctx, cfg)
	if err != nil {
		return nil, err
	}
	if o.Node && (o.By == ByProgram || o.By == ByContainer) {
		if r.machine, err = openWholeMachine(ctx, *cfg, static, &o); err != nil {
			return nil, err
		}
		defer func() { _ = r.machine.close() }()
	}
	// Last, because the command starts right after its baseline.
	r.record = &record{interval: o.Interval, counted: r.group.Counted}
	if o.Progress != nil {
		r.record.sampled = make(chan units.Energy, 1)
	}
	r.meter, err = openMeter(ctx, &o, meterOptions{cfg, static, sourceOf(r.group, &o, cfg)})
	if err != nil {
		return nil, err
	}
	defer func() { _ = r.meter.close() }() // its meters were only read
	windows, reader := feed.Of(r.meter.id), &feed.Reader{Take: r.record.take}
	windows.Open(reader)
	defer windows.Close(reader)
	if err := r.prepare(ctx); err != nil {
		return nil, err
	}
	return r.run(ctx)
}

// openGroup makes the group of the command, or of the process.
func (r *run) openGroup(root string) (err error) {
	if r.PID != 0 {
		if r.group, err = command.Attach(root, r.PID); err == nil {
			r.Command = r.group.Args()
		}
		return err
	}
	if _, err := command.Find(r.Command[0]); err != nil {
		return err // before anything is measured
	}
	r.group, err = command.New(root)
	return err
}

// measureBaseline measures the node before the command, if that is wanted. It returns the static
// power of measured zones.
func (r *run) measureBaseline(ctx context.Context, cfg *energyreceiver.Config) (static map[power.Class]float64, err error) {
	r.baseline = r.Before
	if r.Baseline > 0 && r.baseline == nil {
		if r.baseline, err = measureBaseline(ctx, r.Options, cfg); err != nil {
			return nil, err
		}
	}
	if r.baseline != nil {
		return r.baseline.watts, nil
	}
	return map[power.Class]float64{}, nil
}

// sourceOf returns a CPU time source of a group. It reports the names of short-lived processes if
// that is wanted and BPF programs can be loaded.
func sourceOf(group *command.Group, o *Options, cfg *energyreceiver.Config) *command.Source {
	if !o.Names || cfg.CPUTime == cpu.KindProcfs || cfg.CPUTime == cpu.KindClocks {
		return group.Source(nil)
	}
	names, err := cpu.OpenBPF(cpu.Options{Root: cfg.RootPath, Names: true})
	if err != nil {
		return group.Source(nil) // the energy is the same
	}
	return group.Source(names)
}

// say prints a message to the user while Run waits.
func (o *Options) say(format string, args ...any) {
	if o.Say != nil {
		o.Say(fmt.Sprintf(format, args...))
	}
}

// prepare waits for the meters that are used.
func (r *run) prepare(ctx context.Context) error {
	m := r.meter
	if r.Wait > 0 && m.waits {
		soon := func() bool { return !m.waits }
		if !m.await(ctx, min(r.Wait, time.Second), soon) && ctx.Err() == nil {
			r.say("waiting up to %v for the first answer of a meter", r.Wait)
			m.await(ctx, r.Wait, soon)
		}
	}
	// The command is not charged for energy that the meters counted while others were opened.
	if err := m.restart(ctx); err != nil {
		r.note("Not measured before the command: %v", err)
	}
	if r.machine != nil {
		_ = r.machine.restart(ctx) // otherwise its account begins with the receiver
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if r.NeedsEnergy && !slices.ContainsFunc(m.attributed, func(of power.Reading) bool { return !of.At.IsZero() }) {
		return fmt.Errorf("%w: %s", ErrNoMeter, strings.Join(r.lines(), "; "))
	}
	return nil
}

// progressEvery is the shortest time between two calls of Options.Progress.
const progressEvery = 100 * time.Millisecond

// run starts the command and measures it until it ends.
func (r *run) run(ctx context.Context) (*Result, error) {
	stopMarks, socket := r.serveMarks()
	defer stopMarks()
	if r.Profiler != nil {
		if err := r.Profiler.Begin(r.meter.id, r.group.Processes); err != nil {
			return nil, err
		}
	}
	used, _ := r.group.Counted()
	r.result = &Result{Command: r.Command, Before: r.baseline, Started: time.Now()}
	r.record.start(r.result.Started, used, r.meter.pending(r.result.Started))
	if r.PID == 0 {
		if err := r.start(socket); err != nil {
			return nil, err
		}
		defer r.process.Relay()()
	}
	ended := make(chan error, 1)
	go func() {
		err := r.awaitEnd(ctx)
		r.record.stop()
		ended <- err
	}()
	ticker, shown := time.NewTicker(collectEvery), time.Duration(0)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			_ = r.collect(ctx) // the next one covers the same time
		case used := <-r.record.sampled:
			if now := time.Since(r.result.Started); now-shown >= progressEvery {
				shown = now
				r.Progress(now, used)
			}
		case m := <-r.marks:
			m.done <- r.begin(ctx, m.phase)
		case err := <-ended:
			if err != nil {
				r.note("The exit of the command was not awaited: %v", err)
			}
			stopMarks()
			r.finish(ctx)
			return r.result, nil
		}
	}
}

// start starts the command.
func (r *run) start(socket string) (err error) {
	env := os.Environ()
	if path := r.group.Path(); path != "" {
		env = append(env, CgroupVariable+"="+path)
	}
	if socket != "" {
		env = append(env, phase.Variable+"="+socket)
	}
	r.process, err = r.group.Start(command.Command{Args: r.Command, Env: env, Stdin: r.Stdin, Stdout: r.Stdout, Stderr: r.Stderr})
	return err
}

// awaitEnd waits for the end of the command, or of the measurement of a process.
func (r *run) awaitEnd(ctx context.Context) error {
	if r.process != nil {
		return r.process.AwaitEnd()
	}
	if r.For > 0 {
		var stop context.CancelFunc
		ctx, stop = context.WithTimeout(ctx, r.For)
		defer stop()
	}
	r.group.AwaitEnd(ctx)
	return nil
}

// collect ends a window of the receivers.
func (r *run) collect(ctx context.Context) error {
	err := r.meter.measure(ctx)
	if r.machine != nil {
		r.machine.add(ctx, r.phase)
	}
	return err
}

// lastAttempts is the maximum number of attempts to measure the last interval.
const lastAttempts = 3

// finish measures until the end, and fills the result.
func (r *run) finish(ctx context.Context) {
	r.meter.source.AwaitNames()
	var err error
	for range lastAttempts {
		if err = r.collect(ctx); err == nil || errors.Is(err, errHangs) {
			break
		}
	}
	if err != nil {
		r.note("Not measured at the end: %v", err)
	}
	r.record.complete()
	r.leave()
	end := r.meter.at
	r.busy = r.meter.busy
	r.group.End() // processes that were left behind are no longer measured
	r.late = r.awaitLate(ctx, end)
	r.fill(end)
	r.profile(ctx)
	r.explain()
}

// leave sets the exit status of the command, and lists the processes that the command left behind.
// It follows the last sample: a command that was waited for would be missing in the sample.
func (r *run) leave() {
	if r.process == nil {
		return
	}
	var err error
	if r.result.Exit, err = r.process.Wait(); err != nil {
		r.note("The exit status is not available: %v", err)
	}
	r.result.Left, err = r.group.Leftover()
	if err != nil {
		r.note("Processes that the command left behind are not listed: %v", err)
	}
}

// awaitLate waits for the meters whose energy is not complete until the end. It returns the kinds that
// are still incomplete, with the time of their last reading.
func (r *run) awaitLate(ctx context.Context, end time.Time) (missing map[power.Class]time.Time) {
	late := r.meter.pending(end)
	if len(late) == 0 {
		return nil
	}
	if r.Wait > 0 && r.meter.answers(late) && ctx.Err() == nil {
		r.say("waiting up to %v until the meter of %s has reported the energy of the end", r.Wait, names(late))
		r.meter.await(ctx, r.Wait, func() bool { return !r.meter.answers(r.meter.pending(end)) })
	}
	r.record.settleLate(func(k power.Class) bool { _, ok := late[k]; return ok })
	return r.meter.pending(end)
}

// names returns the names of zone kinds, for people.
func names(kinds map[power.Class]time.Time) string {
	var sorted []string
	for kind := range kinds {
		sorted = append(sorted, string(kind.Zone))
	}
	slices.Sort(sorted)
	return list(slices.Compact(sorted))
}

// fill fills the result of a run that ended at a time.
func (r *run) fill(end time.Time) {
	r.record.result(r.result, r.meter.isRead)
	r.result.CPUTime = string(r.group.Method())
	r.result.Programs = programsOf(&r.meter.account, r.result)
	if r.machine != nil {
		r.machine.result(r.result)
	}
	for i := range r.result.Zones {
		z := &r.result.Zones[i]
		kind := zoneKind(z)
		z.Static, z.Uncertainty = r.meter.staticOf(kind), math.NaN()
		if expected, ok := r.meter.expected[kind]; ok {
			z.Uncertainty = expected
		}
		if until, ok := r.late[kind]; ok {
			z.Missing = min(end.Sub(until), r.result.Wall)
		}
	}
}

// profile fills the profile of the result.
func (r *run) profile(ctx context.Context) {
	if r.Profiler == nil {
		return
	}
	profile, notes := r.Profiler.End(ctx, r.result)
	r.result.Profile, r.notes = profile, append(r.notes, notes...)
}

// note adds a remark on the figures.
func (r *run) note(format string, args ...any) {
	r.notes = append(r.notes, fmt.Sprintf(format, args...))
}

// lines returns the remarks of the receiver and of the run, each on one line and without control
// characters.
func (r *run) lines() (lines []string) {
	for _, note := range r.meter.notes {
		lines = append(lines, figure.Line(note.Text))
	}
	for _, text := range r.notes {
		if line := figure.Line(text); !slices.Contains(lines, line) {
			lines = append(lines, line)
		}
	}
	return lines
}
