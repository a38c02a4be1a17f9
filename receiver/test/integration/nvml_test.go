// SPDX-License-Identifier: Apache-2.0

//go:build linux

package integration

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// sleeps are the arguments of a load that uses almost no CPU time.
var sleeps = []string{"burn", "0", "0"}

// The model of the CPUs shows whether collections continue while no GPU can be read.
const nvmlConfig = `
extensions:
  nvml: {library: LIBRARY}
receivers:
  energy:
    collection_interval: 1s
    initial_delay: 0s
    model: {idle_power: 100, max_power: 100}
    zones: [package, gpu]
    cpu_time: procfs
    attribution: {preset: kepler}
    meters: {gpu: {extensions: [nvml], poll_interval: 500ms}}
    series: {processes: {group_by: pid, min_energy: 0, max: 0}}
exporters:
  file:
    path: OUT
    flush_interval: 100ms
service:
  extensions: [nvml]
  telemetry: {metrics: {level: none}, logs: {encoding: json}}
  pipelines:
    metrics: {receivers: [energy], exporters: [file]}
`

// scriptedNVML is a libnvidia-ml.so.1 with two GPUs. Two processes use 60 and 20 % of the first
// GPU, whose power is 300 W. The first process also uses the other GPU all the time, whose power is
// 100 W.
type scriptedNVML struct {
	library string
	users   [2]string // PIDs

	start, end    time.Time // of the first GPU's power; zero before
	first, either string    // more statements about the first GPU and about the library
}

const (
	firstGPU, otherGPU = "GPU-7b1e6c52-0f5d-4a3c-9e08-5d2f6a1c4b97", "GPU-c94a1f06-62d7-4be1-8a3e-0b7d5c2e9f18"
	firstGPUWatts      = 300
)

// compileNVML compiles a library, once, and returns its path.
func compileNVML(t *testing.T) string {
	t.Helper()
	out := filepath.Join(t.TempDir(), "libnvidia-ml.so.1")
	run(t, exec.Command(program(t, "gcc", "gcc"), "-shared", "-fPIC", "-O1", "-o", out,
		"../../../extension/nvml/internal/nvmltest/libnvidia-ml/libnvidia-ml.c"))
	return out
}

// energyAt returns the first GPU's counter in mJ.
func (s *scriptedNVML) energyAt(at time.Time) uint64 {
	switch {
	case s.start.IsZero():
		return 1000
	case !s.end.IsZero() && at.After(s.end):
		at = s.end
	}
	return 1000 + uint64(firstGPUWatts*at.Sub(s.start).Microseconds()/1000)
}

// writeScript writes the script, which sets the state that the library reports from now on.
func (s *scriptedNVML) writeScript(t *testing.T) {
	t.Helper()
	energy, load := fmt.Sprintf("energy %d", s.energyAt(time.Now())), ""
	if !s.start.IsZero() && s.end.IsZero() {
		energy = fmt.Sprintf("energy 1000 %d %d\nrefresh 20000", 1000*firstGPUWatts, s.start.UnixMicro())
		load = fmt.Sprintf("load %s 60 %d\nload %s 20 %[2]d", s.users[0], s.start.UnixMicro(), s.users[1])
	}
	script := strings.Join([]string{
		"clock real\ndriver 550.54.15", s.either,
		"device 00000000:65:00.0\nuuid " + firstGPU + "\nname NVIDIA H100 PCIe\nlimit 350000", energy, load,
		"compute " + s.users[0] + " 1000000\ncompute " + s.users[1] + " 1000000", s.first,
		"device 00000000:66:00.0\nuuid " + otherGPU + "\nname NVIDIA H100 PCIe\nlimit 350000\nenergy 1000 100000 " +
			strconv.FormatInt(time.Now().Add(-time.Hour).Truncate(time.Hour).UnixMicro(), 10) + "\nload " + s.users[0] + " 100",
		"",
	}, "\n")
	require.NoError(t, os.WriteFile(s.library+".next", []byte(script), 0o600))
	require.NoError(t, os.Rename(s.library+".next", s.library+".script"))
}

// The build of energy with the nvml extension attributes GPUs to a command.
func TestMeasureAttributesNVIDIAGPUs(t *testing.T) {
	need(t)
	binary := filepath.Join(filepath.Dir(gpuCollectorBinary(t)), "energy")
	s := &scriptedNVML{library: compileNVML(t), users: [2]string{"1", "2"}}
	s.writeScript(t)
	dir := t.TempDir()
	pid, result := filepath.Join(dir, "pid"), filepath.Join(dir, "result.json")
	cmd := exec.Command(binary, "measure", "--json", "-o", result, "--quiet", "--", "sh", "-c", `echo $$ >"$0.next" && mv "$0.next" "$0" && exec sleep 5`, pid)
	cmd.Env = append(os.Environ(), "LD_LIBRARY_PATH="+filepath.Dir(s.library))
	require.NoError(t, cmd.Start())
	eventually(t, "the command runs", func() bool {
		text, err := os.ReadFile(pid)
		s.users[0] = strings.TrimSpace(string(text))
		return err == nil
	})
	s.start = time.Now()
	s.writeScript(t)
	require.NoError(t, cmd.Wait())
	for _, z := range readMeasured(t, result).Zones {
		if z.Zone == "gpu" {
			t.Logf("gpu: %.3f J of %.3f J active", z.Joules, z.NodeActive)
			assert.Positive(t, z.Joules)
			assert.InDelta(t, z.NodeActive, z.Joules+z.Unattributed, 0.5e-6)
			return
		}
	}
	t.Error("no zone gpu")
}

// nvmlRun is a collector that reads a scripted library.
type nvmlRun struct {
	*scriptedNVML
	*collector
}

func (r *nvmlRun) says(t *testing.T, what string, count int) {
	t.Helper()
	eventually(t, fmt.Sprintf("the collector logs %q %d times, see %s", what, count, r.log), func() bool {
		require.False(t, r.hasEnded(), "the collector ended, its log is in %s", r.log)
		text, err := os.ReadFile(r.log)
		require.NoError(t, err)
		return strings.Count(string(text), what) >= count
	})
}

// The collector of `make build-gpu` loads NVIDIA's library as a real file, with GPUs that a script
// simulates. Their users are processes of this machine, one of them in a container. Then the
// library fails in every way.
func TestNVIDIALibraryWithScriptedGPUs(t *testing.T) {
	need(t)
	binary, load := gpuCollectorBinary(t), build(t, "load")
	t.Parallel() // in parallel with the guests, because it mostly waits
	r := &nvmlRun{scriptedNVML: &scriptedNVML{library: compileNVML(t)}}
	process := func() string {
		cmd := exec.Command(load, sleeps...)
		startDaemon(t, cmd, filepath.Join(t.TempDir(), "load.log"))
		return strconv.Itoa(cmd.Process.Pid)
	}
	r.users[1] = process()
	user := &dockerContainer{name: "trains", load: strings.Join(sleeps, " ")}
	if d, lacks := tryDocker(t); d != nil {
		d.importLoad(t)
		d.run(t, user)
		r.users[0] = strings.TrimSpace(d.command(t, "inspect", "--format={{.State.Pid}}", user.name))
	} else {
		t.Logf("without a container, because it lacks %s", lacks)
		r.users[0] = process()
	}
	r.writeScript(t)
	text := strings.NewReplacer("LIBRARY", r.library).Replace(nvmlConfig)
	r.collector = runCollectorOf(t, binary, "nvml", text)
	eventually(t, "both GPUs are read", func() bool {
		return slices.ContainsFunc(readEmissions(t, r.out), func(e emission) bool { return len(e.filter("hw.energy", "hw.type=gpu")) == 2 })
	})

	steady := r.uses(t)
	hung := r.hangs(t)
	lost := r.loses(t)
	gone := r.removes(t)
	r.end = time.Now()
	r.writeScript(t)
	r.emits(t, 5)
	r.stop(t)

	emissions := readEmissions(t, r.out)
	t.Run("TheCounterIsActiveAndIdle", func(t *testing.T) { r.testCounter(t, emissions) })
	t.Run("ProcessesAndUnattributedAreActive", func(t *testing.T) { requireBalance(t, emissions, "package", "gpu") })
	t.Run("ProcessesHaveTheirShares", func(t *testing.T) { r.testShares(t, emissions, steady, user.id) })
	t.Run("CollectionsContinueWhileTheLibraryFails", func(t *testing.T) {
		for what, d := range map[string]during{"a call hangs": hung, "a GPU is lost": lost, "the library is gone": gone} {
			testCollectionsContinue(t, emissions, what, d)
		}
		other := func(d during) float64 { return gainedIn(emissions, d, "hw.energy", "hw.id="+otherGPU) }
		assert.Zero(t, other(hung), "one goroutine calls each library")
		assert.Positive(t, other(lost))
		assert.Zero(t, other(gone))
	})
	t.Run("EachFaultIsOneCondition", r.testConditions)
}

// uses starts the processes' use of the GPU, and returns after the collector and the library have
// observed it for a while.
func (r *nvmlRun) uses(t *testing.T) (steady during) {
	t.Helper()
	r.start = time.Now()
	r.writeScript(t)
	r.emits(t, 4)
	steady.from = r.emissions()
	r.emits(t, 20)
	steady.to = r.emissions()
	return steady
}

// lasts returns the period of some emissions from now on.
func (r *nvmlRun) lasts(t *testing.T, emissions int) (d during) {
	t.Helper()
	r.emits(t, 1)
	d.from = r.emissions()
	r.emits(t, emissions)
	d.to = r.emissions()
	return d
}

// hangs makes a call hang until the collector has logged that.
func (r *nvmlRun) hangs(t *testing.T) during {
	t.Helper()
	at := filepath.Join(t.TempDir(), "hang")
	for _, suffix := range []string{".entered", ".release"} {
		require.NoError(t, unix.Mkfifo(at+suffix, 0o600))
	}
	t.Cleanup(func() { // a FIFO that is opened for both lets the call through
		if f, err := os.OpenFile(at+".release", os.O_RDWR, 0); err == nil {
			_ = f.Close()
		}
	})
	r.first = "hang nvmlDeviceGetTotalEnergyConsumption " + at
	r.writeScript(t)
	meet(t, at+".entered", os.O_RDONLY)
	d := r.lasts(t, 5)
	r.says(t, degraded, 1)
	r.first = ""
	r.writeScript(t)
	meet(t, at+".release", os.O_WRONLY)
	r.says(t, recovered, 1)
	r.emits(t, 2)
	return d
}

// meet opens a FIFO, and waits until the other end is open.
func meet(t *testing.T, path string, flags int) {
	t.Helper()
	met := make(chan error, 1)
	go func() {
		f, err := os.OpenFile(path, flags, 0)
		if err == nil {
			err = f.Close()
		}
		met <- err
	}()
	select {
	case err := <-met:
		require.NoError(t, err)
	case <-time.After(patience):
		t.Fatalf("the library does not open %s", path)
	}
}

// loses makes the first GPU be lost and return.
func (r *nvmlRun) loses(t *testing.T) during {
	t.Helper()
	const gpuIsLost = "fail * 15"
	r.first = gpuIsLost
	r.writeScript(t)
	r.says(t, degraded, 2)
	d := r.lasts(t, 5)
	r.first = ""
	r.writeScript(t)
	r.says(t, recovered, 2)
	r.emits(t, 2)
	return d
}

// removes removes the library, like the installation of a new driver, and restores it.
func (r *nvmlRun) removes(t *testing.T) during {
	t.Helper()
	const uninitialized = "fail * 1"
	require.NoError(t, os.Rename(r.library, r.library+".away"))
	r.either = uninitialized
	r.writeScript(t)
	r.says(t, degraded, 3)
	d := r.lasts(t, 5)
	require.NoError(t, os.Rename(r.library+".away", r.library))
	r.either = ""
	r.writeScript(t)
	r.says(t, recovered, 3)
	r.emits(t, 2)
	return d
}

// testCounter compares the GPUs' energy with the counter of the library and with the sum of its
// parts, after each emission.
func (r *nvmlRun) testCounter(t *testing.T, emissions []emission) {
	counters := totals(emissions, "hw.energy", "hw.type=gpu")
	active := totals(emissions, "system.energy", "energy.zone=gpu", "energy.state=active")
	idle := totals(emissions, "system.energy", "energy.zone=gpu", "energy.state=idle")
	for i := range emissions {
		require.InDelta(t, counters[i], active[i]+idle[i], 0.5e-6, "emission %d", i)
	}
	want := float64(r.energyAt(r.end)-1000) / 1000
	got := total(emissions, "hw.energy", "hw.id="+firstGPU)
	t.Logf("the library's counter %.6f J, reported %.6f J", want, got)
	assert.InDelta(t, want, got, 0.5e-6)
	for _, e := range emissions {
		for _, p := range e.filter("hw.energy", "hw.id="+firstGPU) {
			assert.Equal(t, "gpu", p.attributes["hw.type"])
			assert.Equal(t, "NVIDIA", p.attributes["hw.vendor"])
			assert.Equal(t, "NVIDIA H100 PCIe", p.attributes["hw.name"])
			assert.Equal(t, "measured", p.attributes["energy.method"])
		}
	}
}

// gainedIn returns the growth of a metric in a period.
func gainedIn(emissions []emission, d during, metric string, want ...string) float64 {
	sums := totals(emissions, metric, want...)
	return sums[d.to-1] - sums[d.from-1]
}

// testShares compares the processes' energy of the first GPU in a period of steady load. Only the
// first process uses the other GPU.
func (r *nvmlRun) testShares(t *testing.T, emissions []emission, steady during, container string) {
	const zone = "energy.zone=gpu"
	gained := func(metric string, want ...string) float64 { return gainedIn(emissions, steady, metric, want...) }
	first, other := gained("hw.energy", "hw.id="+firstGPU), gained("hw.energy", "hw.id="+otherGPU)
	trains := gained("process.energy", zone, "process.pid="+r.users[0]) - other
	serves := gained("process.energy", zone, "process.pid="+r.users[1])
	t.Logf("of %.3f J, the two processes have %.3f J and %.3f J (%.4f : 1), unattributed %.3f J, idle %.3f J", first, trains, serves,
		trains/serves, gained("system.unattributed.energy", zone), gained("system.energy", zone, "energy.state=idle"))
	assert.InEpsilon(t, 3, trains/serves, 0.02)
	assert.InEpsilon(t, 0.8, (trains+serves)/first, 0.02)
	if container != "" {
		assert.InDelta(t, total(emissions, "process.energy", zone, "process.pid="+r.users[0]),
			total(emissions, "container.energy", zone, "container.id="+container), 0.5e-6)
	}
}

// testCollectionsContinue checks the time between collections. The bound is for a busy machine.
func testCollectionsContinue(t *testing.T, emissions []emission, what string, d during) {
	longest := time.Duration(0)
	for i := d.from; i < d.to; i++ {
		longest = max(longest, emissions[i].at().Sub(emissions[i-1].at()))
	}
	t.Logf("while %s, collections are at most %.3f s apart", what, longest.Seconds())
	assert.Less(t, longest, 5*time.Second)
	assert.Positive(t, gainedIn(emissions, d, "system.energy", "energy.zone=package"), "of the CPUs while %s", what)
}

func (r *nvmlRun) testConditions(t *testing.T) {
	var said []string
	for _, l := range readLog(t, r.log) {
		if l.Msg == degraded || l.Msg == recovered {
			said = append(said, strings.TrimSpace(l.Msg+" "+l.Condition+" "+l.Error))
		}
	}
	both := firstGPU + ", " + otherGPU
	const cannot, again = "Collection degraded energy zones cannot read ", "Collection recovered energy zones"
	assert.Equal(t, []string{
		cannot + both + ": nvml meter: no answer within 10s", again,
		cannot + firstGPU + ": nvml: energy: the GPU has fallen off the bus", again,
		cannot + both + ": nvml: number of GPUs: NVML is not initialized",
		cannot + both + ": nvml: no library " + r.library + ": file does not exist", again,
	}, said)
}
