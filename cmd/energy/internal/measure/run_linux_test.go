// SPDX-License-Identifier: Apache-2.0

package measure

import (
	"context"
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/config/configoptional"
	"go.opentelemetry.io/collector/confmap"

	"github.com/energyreceiver/energyreceiver/cmd/energy/internal/command"
	"github.com/energyreceiver/energyreceiver/internal/kernfs"
	"github.com/energyreceiver/energyreceiver/internal/power"
	"github.com/energyreceiver/energyreceiver/internal/units"
	"github.com/energyreceiver/energyreceiver/internal/usage/cpu"
	energyreceiver "github.com/energyreceiver/energyreceiver/receiver"
)

// counter is the file of a package's energy in a machine that has this one's processes.
const counter = "sys/class/powercap/intel-rapl:0/energy_uj"

// machine returns the root of a machine with this one's processes and CPUs, and a package that used
// 5 J so far.
func machine(t *testing.T) (root string) {
	t.Helper()
	root = t.TempDir()
	for name, content := range map[string]string{
		"name": "package-0\n", "energy_uj": "5000000\n", "max_energy_range_uj": "262143328850\n", "enabled": "1\n",
	} {
		path := filepath.Join(root, filepath.Dir(counter), name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte(content), 0o600))
	}
	require.NoError(t, os.Symlink("/proc", filepath.Join(root, "proc")))
	require.NoError(t, os.MkdirAll(filepath.Join(root, "sys/devices/system"), 0o755))
	require.NoError(t, os.Symlink("/sys/devices/system/cpu", filepath.Join(root, "sys/devices/system/cpu")))
	return root
}

// options returns those of a shell script on a machine.
func options(t *testing.T, root string, settings map[string]any, script string) Options {
	t.Helper()
	all := map[string]any{"root_path": root}
	for key, value := range settings {
		all[key] = value
	}
	cfg := energyreceiver.DefaultConfig()
	cfg.Attribution.Preset, cfg.Model = energyreceiver.PresetKepler, configoptional.None[energyreceiver.ModelConfig]()
	require.NoError(t, confmap.NewFromStringMap(all).Unmarshal(cfg))
	require.NoError(t, confmap.Validate(cfg))
	return Options{Command: []string{"sh", "-c", script}, Stderr: os.Stderr, Config: cfg, Interval: 50 * time.Millisecond, Wait: 5 * time.Second}
}

func measured(t *testing.T, o Options) *Result {
	t.Helper()
	r, err := Run(t.Context(), o)
	require.NoError(t, err)
	assertSamplesAddUp(t, r)
	return r
}

// noted reports whether a note of a result has a text.
func noted(r *Result, text string) bool { return strings.Contains(strings.Join(r.Notes, "\n"), text) }

var allActive = map[string]any{"attribution": map[string]any{
	"static_power": map[string]any{
		"package": map[string]any{"model": "fixed", "power": 0}, "dram": map[string]any{"model": "fixed", "power": 0},
	},
}}

// modeled are settings of a machine without meters.
var modeled = map[string]any{"meters": map[string]any{"use": []any{}}, "model": map[string]any{"idle_power": 20, "max_power": 120}}

// busy is a script that uses CPU time.
const busy = `i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done; `

func TestACommandIsMeasured(t *testing.T) {
	root := machine(t)
	o := options(t, root, allActive, busy+"echo 15000000 > "+filepath.Join(root, counter))
	o.Interval = time.Minute // nothing is read while the counter is written
	r := measured(t, o)

	require.Len(t, r.Zones, 1)
	z := r.Zones[0]
	assert.Equal(t, "package measured config", fmt.Sprint(z.Name, " ", z.Source, " ", z.Static))
	assert.LessOrEqual(t, z.Active, 10*units.Joule, "a part is of the time before and after the command")
	assert.Zero(t, z.Idle)
	assert.Positive(t, z.Used)
	assert.Zero(t, z.Missing)
	assert.True(t, math.IsNaN(z.Uncertainty))
	assert.Positive(t, r.CPU)
	assert.Zero(t, r.Exit)
	assert.Empty(t, r.Left)
	assert.Equal(t, []Program{{"sh", []units.Energy{z.Used}}}, r.Programs, "it never forks, so it has no descendants")
	assert.NotEmpty(t, r.CPUTime)
}

func TestEnergyBetweenTheFirstReadingAndTheCommandIsNotTheCommands(t *testing.T) {
	o := options(t, machine(t), allActive, busy)
	o.Interval = time.Minute
	var reads, more atomic.Int64 // more: the first read with 10 J more, 0 for none
	restore := kernfs.InjectFaults(func(path string, got []byte, err error) ([]byte, error) {
		if strings.HasSuffix(path, "/energy_uj") && reads.Add(1) >= more.Load() && more.Load() > 0 {
			return []byte("15000000\n"), err
		}
		return got, err
	})
	t.Cleanup(restore)
	cfg, _ := embeddedConfig(&o)
	m, err := openMeter(t.Context(), &o, meterOptions{cfg: cfg})
	require.NoError(t, err)
	require.NoError(t, m.close())
	more.Store(reads.Swap(0) + 1)
	assert.Zero(t, measured(t, o).Zones[0].Active)
	assert.Greater(t, reads.Load(), more.Load(), "read again before the command, and at its end")
}

func TestEnergyIsThatOfTheCommandsCPUTimeWhateverElseRuns(t *testing.T) {
	linear := energyreceiver.ModelConfig{Points: []energyreceiver.ModelPoint{{Power: 20}, {Utilization: 1, Power: 120}}}
	for range 2 { // the second time next to another process
		o := options(t, machine(t), modeled, strings.Repeat(busy, 15))
		o.Config.Model = configoptional.Some(linear)
		before := childTimes(t)
		r := measured(t, o)
		assert.InEpsilon(t, childTimes(t)-before, r.CPU, 0.02)
		assert.InEpsilon(t, 100*r.CPU.Seconds()/float64(runtime.NumCPU()), r.Zones[0].Used.Joules(), 0.02)
		other := exec.Command("sh", "-c", "while :; do :; done")
		require.NoError(t, other.Start())
		t.Cleanup(func() { _ = other.Process.Kill(); _ = other.Wait() })
	}
}

// workload returns the path of a shell with the name workload.
func workload(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("/bin/sh")
	require.NoError(t, err)
	path := filepath.Join(t.TempDir(), "workload")
	require.NoError(t, os.WriteFile(path, text, 0o700))
	return path
}

// childTimes returns the CPU time of children that were waited for.
func childTimes(t *testing.T) time.Duration {
	var u syscall.Rusage
	require.NoError(t, syscall.Getrusage(syscall.RUSAGE_CHILDREN, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// The kernel reports the exit of a process only after the command has ended.
func TestTheLastProgramOfAShortCommandHasItsName(t *testing.T) {
	root := machine(t)
	o := options(t, root, modeled, workload(t)+" -c '"+strings.Repeat(busy, 5)+"'; true")
	o.Names, o.Interval = true, time.Minute
	names, err := cpu.OpenBPF(cpu.Options{Root: root, Names: true})
	if err != nil {
		t.Skip("CPU time by BPF is not available: ", err)
	}
	require.NoError(t, names.Close())
	found := false
	for range 10 { // a busy kernel may report an exit later
		found = found || measured(t, o).Programs[0].Name == "workload"
	}
	assert.True(t, found)
}

func TestAProcessThatRunsIsMeasuredUntilTheTimeIsOver(t *testing.T) {
	o := options(t, machine(t), modeled, "")
	process := exec.Command("sh", "-c", "while :; do :; done")
	require.NoError(t, process.Start())
	t.Cleanup(func() { _ = process.Process.Kill(); _ = process.Wait() })
	require.Eventually(t, func() bool { // the kernel shows the arguments some time after exec
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", process.Process.Pid))
		return err == nil && len(text) > 0
	}, time.Minute, time.Millisecond)
	o.Command, o.PID, o.For = nil, process.Process.Pid, 300*time.Millisecond
	r := measured(t, o)

	assert.Equal(t, process.Args, r.Command)
	assert.GreaterOrEqual(t, r.Wall, o.For)
	assert.Equal(t, []Program{{"sh", []units.Energy{r.Zones[0].Used}}}, r.Programs, "it has no descendants")
	assert.Positive(t, r.CPU)
	assert.Empty(t, r.Left)
	require.NoError(t, process.Process.Signal(syscall.Signal(0)), "it still runs")

	ctx, stop := context.WithCancel(t.Context())
	time.AfterFunc(100*time.Millisecond, stop) // as Ctrl-C
	o.For = 0
	_, err := Run(ctx, o)
	require.NoError(t, err)

	o.Progress = func(time.Duration, units.Energy) { _ = process.Process.Kill(); _ = process.Wait() } // before the last measurement
	r = measured(t, o)
	assert.True(t, noted(r, "between the last measurement and its exit"), r.Notes)
}

func TestTheRunIsDividedIntoSamples(t *testing.T) {
	o := options(t, machine(t), modeled, busy+"sleep 0.3; "+busy)
	var shown []units.Energy
	o.Progress = func(_ time.Duration, used units.Energy) { shown = append(shown, used) }
	r := measured(t, o)
	assert.NotEmpty(t, shown)
	assert.LessOrEqual(t, slices.Max(append(shown, 0)), r.Used())

	assert.GreaterOrEqual(t, len(r.Samples), 5)
	assert.Equal(t, StaticModel, r.Zones[0].Static)
	assert.InEpsilon(t, 20*r.Wall.Seconds(), r.Zones[0].Idle.Joules(), 0.01, "idle power is not attributed to the command")
	assert.Regexp(t, `package is modeled.*expected error \d`, r.Notes)
	assert.Greater(t, r.Zones[0].Uncertainty, 0.01)
	assert.Less(t, r.Zones[0].Uncertainty, 1.0)
}

func TestTheNodesPowerIsThatOfTheModelHoweverShortTheCommand(t *testing.T) {
	r := measured(t, options(t, machine(t), modeled, "exit 0"))
	z := &r.Zones[0]
	assert.InEpsilon(t, 20, z.Idle.Joules()/r.Wall.Seconds(), 0.02)
	assert.LessOrEqual(t, z.Node().Joules()/r.Wall.Seconds(), 122.4)
}

// The receiver of the machine knows the same static power as that of the command.
func TestTheProgramsOfTheMachineIncludeTheCommand(t *testing.T) {
	o := options(t, machine(t), modeled, strings.Repeat(busy, 30))
	o.Node, o.By = true, ByProgram
	o.Command[0] = workload(t)
	r := measured(t, o)
	used := map[string]float64{}
	for _, w := range r.Workloads {
		used[w.Name] = w.Used[0].Joules()
	}
	assert.Greater(t, used["workload"], 0.8*r.Zones[0].Used.Joules(), "it also has what the process used before it was the command")
	assert.InEpsilon(t, r.Zones[0].Idle.Joules(), used[Idle], 0.2)
}

func TestWithoutAMeterTheCommandRunsAndTheReaderIsTold(t *testing.T) {
	o := options(t, machine(t), map[string]any{"meters": map[string]any{"powercap": map[string]any{"path": "/nonexistent"}}}, busy+"exit 3")
	o.Config.Meters.Use = []string{"ipmi"}
	r := measured(t, o)

	assert.Equal(t, 3, r.Exit)
	assert.Empty(t, r.Zones)
	assert.Positive(t, r.CPU)
	assert.True(t, noted(r, "No energy is measured"), r.Notes)
	assert.True(t, noted(r, "--model auto"), r.Notes)
}

func TestTheBaselineIsTheStaticPower(t *testing.T) {
	o := options(t, machine(t), nil, "sleep 0.1")
	o.Before = &Baseline{watts: map[power.Class]float64{packages: 2}}
	assert.Equal(t, StaticBaseline, measured(t, o).Zones[0].Static)

	var said []string
	o.Before, o.Baseline, o.Say = nil, time.Millisecond, func(text string) { said = append(said, text) }
	assert.NotNil(t, measured(t, o).Before)
	assert.Equal(t, []string{"measuring the node for 1ms before the command"}, said)

	o = options(t, machine(t), modeled, "true")
	said, o.Baseline, o.Say = nil, time.Millisecond, func(text string) { said = append(said, text) }
	assert.Empty(t, measured(t, o).Before.watts)
	assert.Equal(t, []string{"the baseline is skipped: the static power of each zone is available without it"}, said)
}

func TestTheBaselineIsTheMeanPowerOfMeasuredZones(t *testing.T) {
	reading := func(zone *power.Zone, second int64, total units.Energy) power.Reading {
		return power.Reading{Zone: zone, At: time.Unix(second, 0), Total: total}
	}
	first, second := &power.Zone{Kind: power.Package, Method: power.Measured}, &power.Zone{Kind: power.Package, Method: power.Measured}
	late, modeled := &power.Zone{Kind: power.Platform, Method: power.Measured}, &power.Zone{Kind: power.DRAM, Method: power.Modeled}
	known, unknown := watts(
		[]power.Reading{reading(first, 10, 0), reading(second, 10, 0), reading(late, 10, 0), reading(modeled, 10, 0)},
		[]power.Reading{reading(first, 20, 20*units.Joule), reading(second, 15, 5*units.Joule), reading(late, 10, 0), reading(modeled, 20, 9)},
	)
	assert.Equal(t, map[power.Class]float64{packages: 3}, known)
	assert.Equal(t, []power.Class{platform}, unknown)
}

// plug is a meter on the network that has used 10 J more each time that it is asked.
func plug(t *testing.T) map[string]any {
	t.Helper()
	var asked atomic.Int64
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, 10*asked.Add(1))
	}))
	t.Cleanup(s.Close)
	return map[string]any{
		"model": map[string]any{"idle_power": 1, "max_power": 2, "zone": "platform"}, "zones": []any{"platform"},
		"meters": map[string]any{
			"use": []any{}, "http/plug": map[string]any{"endpoint": s.URL, "unit": "J", "poll_interval": "1s"},
		},
		"attribution": map[string]any{"static_power": map[string]any{"platform": map[string]any{"model": "fixed", "power": 0}}},
	}
}

// What the command leaves behind uses CPU time until the slow meter has the energy of the end, too.
func TestASlowMeterIsWaitedForAndNotTheProcessesLeftBehind(t *testing.T) {
	settings := plug(t)
	settings["meters"].(map[string]any)["http/plug"].(map[string]any)["poll_interval"] = "2s"
	left := filepath.Join(t.TempDir(), "left")
	o := options(t, machine(t), settings, "touch "+left+"; while test -e "+left+"; do :; done & "+busy)
	t.Cleanup(func() { _ = os.Remove(left) })
	var said []string
	o.Say = func(text string) { said = append(said, text) }
	r := measured(t, o)

	require.Len(t, r.Left, 1)
	assert.Less(t, r.CPU, time.Second)
	require.Len(t, r.Zones, 1)
	z := r.Zones[0]
	assert.Equal(t, "platform measured", z.Name+" "+z.Source)
	assert.Less(t, z.Active, 10*units.Joule, "a part is of the time after the command")
	assert.Positive(t, z.Used)
	assert.Less(t, z.Used, 2*units.Joule, "it ran much longer than the command")
	assert.Zero(t, z.Missing)
	require.Len(t, said, 1)
	assert.Contains(t, said[0], "until the meter of platform has reported")
}

func TestEnergyThatASlowMeterHasNotReportedIsMissing(t *testing.T) {
	o := options(t, machine(t), plug(t), busy)
	o.Wait = 0
	r := measured(t, o)
	assert.True(t, noted(r, "has not reported") || noted(r, "has not answered"), r.Notes)
}

func TestACommandThatCannotBeMeasuredIsNotStarted(t *testing.T) {
	ended, stop := context.WithCancel(t.Context())
	stop()
	for want, set := range map[error]func(o *Options) context.Context{
		command.ErrNotFound: func(o *Options) context.Context {
			o.Baseline = time.Hour // nothing is measured before a program that is not there
			o.Command = []string{"no-such-program"}
			return t.Context()
		},
		command.ErrNotExecutable: func(o *Options) context.Context { o.Command = []string{"/etc"}; return t.Context() },
		context.Canceled:         func(*Options) context.Context { return ended },
		ErrNoMeter: func(o *Options) context.Context {
			o.Config.Meters.Use, o.NeedsEnergy = []string{"ipmi"}, true
			return t.Context()
		},
	} {
		file := filepath.Join(t.TempDir(), "started")
		o := options(t, machine(t), nil, "touch "+file)
		_, err := Run(set(&o), o)
		require.ErrorIs(t, err, want)
		assert.NoFileExists(t, file)
	}
}

func TestAReadThatHangsDoesNotKeepTheResultFromBeingReported(t *testing.T) {
	root := machine(t)
	file, ended := filepath.Join(root, "hang"), make(chan struct{})
	restore := kernfs.InjectFaults(func(path string, got []byte, err error) ([]byte, error) {
		if _, missing := os.Stat(file); strings.HasSuffix(path, "/energy_uj") && missing == nil {
			<-ended
		}
		return got, err
	})
	t.Cleanup(func() { restore(); close(ended) })
	r := measured(t, options(t, root, allActive, "touch "+file+"; exit 3"))
	assert.Equal(t, 3, r.Exit)
	assert.True(t, noted(r, "Not measured at the end: the receiver hangs"), r.Notes)
}

func TestAMeterThatFailsNeverChangesTheCommand(t *testing.T) {
	root := machine(t)
	r := measured(t, options(t, root, allActive, "echo broken > "+filepath.Join(root, counter)+"; sleep 0.2; exit 5"))

	assert.Equal(t, 5, r.Exit)
	assert.Positive(t, r.Zones[0].Missing)
	assert.True(t, noted(r, "intel-rapl:0"), r.Notes)
}
