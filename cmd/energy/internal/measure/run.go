// SPDX-License-Identifier: Apache-2.0

package measure

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/energyreceiver/energyreceiver/cmd/energy/internal/command"
	"github.com/energyreceiver/energyreceiver/cmd/energy/internal/notes"
	"github.com/energyreceiver/energyreceiver/cmd/energy/internal/phase"
	"github.com/energyreceiver/energyreceiver/internal/power"
	"github.com/energyreceiver/energyreceiver/internal/units"
	"github.com/energyreceiver/energyreceiver/internal/usage/cpu"
	energyreceiver "github.com/energyreceiver/energyreceiver/receiver"
)

// CgroupVariable is the environment variable with the path of the command's cgroup in the
// hierarchy, if the command has a cgroup.
const CgroupVariable = "ENERGY_CGROUP"

// ErrNoMeter is why a command with a limit is not started.
var ErrNoMeter = errors.New("no joules are known here")

// run is a command that is measured.
type run struct {
	*Options
	notes   *notes.Notes
	group   *command.Group
	meter   *meter
	record  *record
	machine *wholeMachine // nil unless its programs or containers are wanted
	marks   chan mark
	result  *Result
	phase   string
	begun   marked
	used    units.CPUTime // until the last sample
	// baseline is the measurement before the command, nil if there was none.
	baseline *Baseline
	// late has, for each kind whose energy is incomplete, the time until which its zones have
	// reported energy.
	late map[power.Class]time.Time
	// busy is the node's utilization times seconds of the samples.
	busy float64
}

// Run runs a command and measures what it used.
//
// An error reports why the command was not started: command.ErrNotFound, command.ErrNotExecutable,
// ErrNoMeter, that ctx ended, or what is wrong with the receiver. Once the command runs, nothing
// changes what it does: what cannot be measured is in the notes of the result. Signals are passed
// on to it, and ctx does not end it: it only ends the wait for slow meters.
func Run(ctx context.Context, o Options) (*Result, error) {
	n := notes.New()
	cfg, without := embeddedConfig(&o)
	for _, text := range without {
		n.Set(text, text)
	}
	group, err := command.New(command.Options{Root: cfg.RootPath})
	if err != nil {
		return nil, err
	}
	defer func() { _ = group.Close() }() // the command has ended: a remaining cgroup does no harm
	static := map[power.Class]float64{}
	before := o.Before
	if o.Baseline > 0 && before == nil && isThere(o.Command[0]) {
		if before, err = measureBaseline(ctx, &o, cfg); err != nil {
			return nil, err
		}
	}
	if before != nil {
		static = before.watts
	}
	r := &run{Options: &o, baseline: before, notes: n, group: group, marks: make(chan mark), phase: phase.None}
	if o.Node && (o.By == ByProgram || o.By == ByContainer) {
		if r.machine, err = openWholeMachine(ctx, *cfg, static, &o); err != nil {
			return nil, err
		}
		defer func() { _ = r.machine.close() }()
	}
	// Last, because its baseline is that of the command.
	if r.meter, err = openMeter(ctx, &o, cfg, static, sourceOf(group, &o, cfg), n); err != nil {
		return nil, err
	}
	defer func() { _ = r.meter.close() }() // its meters were only read
	if err := r.prepare(ctx); err != nil {
		return nil, err
	}
	return r.run(ctx)
}

// sourceOf returns a CPU time source of a group. It reports the names of short-lived processes if
// that is wanted and BPF programs can be loaded.
func sourceOf(group *command.Group, o *Options, cfg *energyreceiver.Config) cpu.Source {
	if !o.Names || cfg.CPUTime == cpu.KindProcfs || cfg.CPUTime == cpu.KindClocks {
		return group.Source()
	}
	names, err := cpu.OpenBPF(cpu.Options{Root: cfg.RootPath, Names: true})
	if err != nil {
		return group.Source() // the energy is the same
	}
	return group.NamedSource(names)
}

// isThere reports whether a program can be found. If not, nothing needs to be measured before it fails to start.
func isThere(program string) bool {
	_, err := exec.LookPath(program)
	return err == nil || errors.Is(err, exec.ErrDot)
}

// say prints a message to the user while nothing else happens.
func (o *Options) say(format string, args ...any) {
	if o.Say != nil {
		o.Say(fmt.Sprintf(format, args...))
	}
}

// note adds to what the reader of the figures should know.
func (r *run) note(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	r.notes.Set(text, text)
}

// prepare waits for the meters that are used, and begins the record.
func (r *run) prepare(ctx context.Context) error {
	m := r.meter
	if r.Wait > 0 && m.waits() {
		soon := func() bool { return !m.waits() }
		if !m.await(ctx, min(r.Wait, time.Second), soon) && ctx.Err() == nil {
			r.say("waiting up to %v for the first answer of a meter", r.Wait)
			m.await(ctx, r.Wait, soon)
		}
		if err := r.measure(ctx); err != nil {
			r.note("Not measured before the command: %v", err)
		}
	}
	if r.machine != nil {
		r.machine.restart(ctx)
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if r.NeedsEnergy && !m.isKnown() {
		return fmt.Errorf("%w: %s", ErrNoMeter, strings.Join(r.notes.Lines(), "; "))
	}
	r.record = newRecord(m.last)
	r.used = r.group.Counted()
	return nil
}

func (r *run) measure(ctx context.Context) error {
	_, err := r.meter.measure(context.WithoutCancel(ctx))
	return err
}

// run starts the command and measures it until it ends.
func (r *run) run(ctx context.Context) (*Result, error) {
	env := os.Environ()
	if path := r.group.Path(); path != "" {
		env = append(env, CgroupVariable+"="+path)
	}
	server, socket := r.serveMarks()
	defer server.close()
	if socket != "" {
		env = append(env, phase.Variable+"="+socket)
	}
	if r.Profiler != nil {
		if err := r.Profiler.Begin(r.group.Processes); err != nil {
			return nil, err
		}
	}
	r.result = &Result{Command: r.Command, Before: r.baseline, Started: time.Now()}
	process, err := r.group.Start(command.Command{Args: r.Command, Env: env, Stdin: r.Stdin, Stdout: r.Stdout, Stderr: r.Stderr})
	if err != nil {
		return nil, err
	}
	stop := process.Relay()
	defer stop()
	ended := make(chan time.Duration, 1)
	go func() {
		if err := process.AwaitEnd(); err != nil {
			r.note("The end of the command is not known: %v", err)
		}
		ended <- time.Since(r.result.Started)
	}()
	ticker := time.NewTicker(r.Interval)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			_ = r.sample(ctx, time.Since(r.result.Started)) // the next one covers what it missed
		case m := <-r.marks:
			m.done <- r.begin(ctx, m.Phase)
		case wall := <-ended:
			r.result.Wall = max(wall, r.record.end()) // a sample may have begun after the end
			server.close()
			r.measureEnd(ctx)
			status, err := process.Wait() // only now, so that the last sample includes the command itself
			if err != nil {
				r.note("The exit status is not known: %v", err)
			}
			r.result.Exit = status.Code
			r.finish(ctx)
			return r.result, nil
		}
	}
}

// sample ends an interval of the record, until a time since the start. After an error the next sample covers this one.
func (r *run) sample(ctx context.Context, end time.Duration) error {
	reported, err := r.meter.measure(context.WithoutCancel(ctx))
	if err != nil {
		return err
	}
	r.add(end, reported)
	if r.machine != nil {
		r.machine.add(ctx, r.phase)
	}
	return nil
}

// add adds an interval to the record that ended at a time since the start.
func (r *run) add(end time.Duration, reported func(power.Class) bool) {
	began := r.record.end()
	used := r.group.Counted()
	r.record.add(Sample{
		End: end, Wall: end - began, CPU: time.Duration(units.Advance(r.used, used)), Phase: r.phase,
	}, r.meter.last, reported)
	r.used = max(r.used, used)
	r.busy += r.meter.last.utilization * (end - began).Seconds()
	if r.Progress != nil {
		r.Progress(end, r.record.energy())
	}
}

// lastAttempts is how often the last interval is measured at most.
const lastAttempts = 3

// measureEnd measures what is left.
func (r *run) measureEnd(ctx context.Context) {
	var err error
	for range lastAttempts {
		if err = r.sample(ctx, r.result.Wall); err == nil {
			break
		}
	}
	if err != nil {
		r.note("Not measured at the end: %v", err)
		r.add(r.result.Wall, func(power.Class) bool { return false })
	}
}

// finish fills the result.
func (r *run) finish(ctx context.Context) {
	end := r.meter.at
	r.group.End() // what is left behind is no longer measured
	r.nameLeft()
	r.late = r.awaitLate(ctx, end)
	r.fill(end)
	r.profile(ctx)
	r.explain()
}

// awaitLate waits for the meters whose energy is not complete until the end. For each kind that is
// still incomplete it returns the time until which energy is known.
func (r *run) awaitLate(ctx context.Context, end time.Time) (missing map[power.Class]time.Time) {
	late := r.meter.pending(end)
	if len(late) == 0 {
		return nil
	}
	if r.Wait > 0 && r.meter.answers(late) && ctx.Err() == nil {
		r.say("waiting up to %v until the meter of %s has reported the energy of the end", r.Wait, names(late))
		r.meter.await(ctx, r.Wait, func() bool { return !r.meter.answers(r.meter.pending(end)) })
	}
	missing = r.meter.pending(end)
	since := r.meter.last
	since.kinds = maps.Clone(since.kinds)
	maps.DeleteFunc(since.kinds, func(k power.Class, _ kindTotals) bool { _, ok := late[k]; return !ok })
	r.record.settle(since, func(k power.Class) bool { _, ok := missing[k]; return !ok })
	return missing
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
	r.record.result(r.result, r.meter.isAttributed)
	for i := range r.result.Samples {
		r.result.CPU += r.result.Samples[i].CPU
	}
	r.result.CPUTime = string(r.group.Method())
	r.meter.programs.result(r.result)
	if r.machine != nil {
		r.machine.result(r.result)
	}
	for i := range r.result.Zones {
		z := &r.result.Zones[i]
		z.Static, z.Uncertainty = r.meter.staticOf(z), math.NaN()
		if expected, ok := r.meter.expected[zoneKind(z)]; ok {
			z.Uncertainty = expected
		}
		if until, ok := r.late[zoneKind(z)]; ok {
			z.Missing = min(end.Sub(until), r.result.Wall)
		}
	}
}

// profile fills the functions of the result.
func (r *run) profile(ctx context.Context) {
	if r.Profiler == nil {
		return
	}
	var notes []string
	r.result.Functions, notes = r.Profiler.End(ctx, r.result)
	for _, text := range notes {
		r.note("%s", text)
	}
}

// nameLeft names the processes that the command left behind.
func (r *run) nameLeft() {
	left, err := r.group.Leftover()
	if err != nil {
		r.note("Not known what the command left behind: %v", err)
	}
	for _, p := range left {
		r.result.Left = append(r.result.Left, Process(p))
	}
}
