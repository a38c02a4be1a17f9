// SPDX-License-Identifier: Apache-2.0

//go:build linux

package integration

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// measured has the values of the output of `energy measure --json` that these tests read.
type measured struct {
	Started       time.Time `json:"started"`
	ExitStatus    int       `json:"exit_status"`
	Seconds       float64   `json:"seconds"`
	CPUSeconds    float64   `json:"cpu_seconds"`
	CPUTimeSource string    `json:"cpu_time_source"`
	Joules        float64   `json:"joules"`
	NodeJoules    float64   `json:"node_joules"`
	Zones         []struct {
		Zone         string  `json:"zone"`
		Source       string  `json:"source"`
		Added        bool    `json:"added"`
		Joules       float64 `json:"joules"`
		NodeActive   float64 `json:"node_active_joules"`
		NodeIdle     float64 `json:"node_idle_joules"`
		Unattributed float64 `json:"unattributed_joules"`
	} `json:"zones"`
	Phases []struct {
		Phase      string    `json:"phase"`
		Seconds    float64   `json:"seconds"`
		CPUSeconds float64   `json:"cpu_seconds"`
		Joules     []float64 `json:"joules"`
	} `json:"phases"`
	Samples []struct {
		Seconds    float64   `json:"seconds"`
		CPUSeconds float64   `json:"cpu_seconds"`
		Joules     []float64 `json:"joules"`
		NodeJoules []float64 `json:"node_joules"`
	} `json:"samples"`
	LeftBehind []struct {
		PID  int    `json:"pid"`
		Name string `json:"name"`
	} `json:"left_behind"`
}

// straight is the configuration of a receiver whose power model is a straight line from 20 to 120
// W. With any other curve, the joules of a CPU second would depend on the machine's load.
const straight, straightWatts = "model: {points: [{utilization: 0, power: 20}, {utilization: 1, power: 120}]}\n", 100

// straightModel returns the path of a file with that configuration. All users can read the file.
func straightModel(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "measure-") // t.TempDir is for root only
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, os.RemoveAll(dir)) })
	require.NoError(t, os.Chmod(dir, 0o755))
	path := filepath.Join(dir, "receiver.yaml")
	require.NoError(t, os.WriteFile(path, []byte(straight), 0o644))
	return path
}

// byCurve returns the joules of seconds of CPU time under that model.
func byCurve(t *testing.T, cpuSeconds float64) float64 {
	t.Helper()
	stat, err := os.ReadFile("/proc/stat")
	require.NoError(t, err)
	return straightWatts * cpuSeconds / float64(strings.Count(string(stat), "\ncpu"))
}

// measureCommand returns a command `energy measure` with that model and further arguments. It
// writes its result to a file as JSON.
func measureCommand(t *testing.T, args ...string) (cmd *exec.Cmd, result string) {
	t.Helper()
	result = filepath.Join(t.TempDir(), "result.json")
	cmd = exec.Command(energyBinary(t), append([]string{"measure", "--config", straightModel(t), "--json", "-o", result, "--quiet"}, args...)...)
	return cmd, result
}

// The Python example returns the energy of a command, here by the model of these tests.
func TestMeasureFromPython(t *testing.T) {
	need(t)
	python, dir := program(t, "python3", "python3"), t.TempDir()
	script := fmt.Sprintf("#!/bin/sh\nshift\nexec '%s' measure --config '%s' \"$@\"\n", energyBinary(t), straightModel(t))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "energy"), []byte(script), 0o755))
	const second = `import time\nwhile time.process_time() < 1: pass`
	cmd := exec.Command(python, "-c", `import joules, sys; print(joules.joules(sys.executable, "-c", "`+second+`"))`)
	cmd.Dir = shipped(t, "python")
	cmd.Env = append(os.Environ(), "PATH="+dir+":"+os.Getenv("PATH"), "PYTHONDONTWRITEBYTECODE=1")
	out, err := strconv.ParseFloat(strings.TrimSpace(strings.TrimPrefix(run(t, cmd), "\n")), 64)
	require.NoError(t, err)
	ratio := out / byCurve(t, 1)
	require.InDelta(t, 1, ratio, 0.049)
	t.Attr("python", fmt.Sprintf("%.1f times the model", ratio))
}

func readMeasured(t *testing.T, path string) *measured {
	t.Helper()
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	m := new(measured)
	require.NoError(t, json.Unmarshal(text, m), "%s", text)
	return m
}

// requireSums checks that all parts of a result add up, to the microjoule and the microsecond.
func (m *measured) requireSums(t *testing.T) {
	t.Helper()
	const half = 0.5e-6
	require.NotEmpty(t, m.Zones)
	joules, node := 0.0, 0.0
	for i, z := range m.Zones {
		require.InDelta(t, z.NodeActive, z.Joules+z.Unattributed, half, "%s: the command's + unattributed = active", z.Zone)
		bySamples, byPhases, nodeBySamples := 0.0, 0.0, 0.0
		for _, s := range m.Samples {
			bySamples += s.Joules[i]
			nodeBySamples += s.NodeJoules[i]
		}
		for _, p := range m.Phases {
			byPhases += p.Joules[i]
		}
		require.InDelta(t, z.Joules, bySamples, half, "%s: samples", z.Zone)
		require.InDelta(t, z.NodeActive+z.NodeIdle, nodeBySamples, half, "%s: samples of the node", z.Zone)
		if len(m.Phases) > 0 {
			require.InDelta(t, z.Joules, byPhases, half, "%s: phases", z.Zone)
		}
		if z.Added {
			joules += z.Joules
			node += z.NodeActive + z.NodeIdle
		}
	}
	require.InDelta(t, m.Joules, joules, half, "zones")
	require.InDelta(t, m.NodeJoules, node, half, "zones of the node")
	seconds, cpu := 0.0, 0.0
	for _, s := range m.Samples {
		seconds += s.Seconds
		cpu += s.CPUSeconds
	}
	require.InDelta(t, m.Seconds, seconds, 1e-6, "time of samples")
	require.InDelta(t, m.CPUSeconds, cpu, 1e-6, "CPU time of samples")
}

// buildScript builds a package of this project with its imports, and then two packages without
// inlining, each in its own phase. It prints its cgroups, the CPU time of each build, and at the
// end the CPU time of the shell and of all its children.
const buildScript = `
set -e
energy phase begin build
echo "cgroup $ENERGY_CGROUP"
grep -h '' /proc/self/cgroup
TIMEFORMAT='build %U %S'
time go build ./internal/units
energy phase begin again
TIMEFORMAT='again %U %S'
time go build -gcflags=-l ./internal/units ./internal/attribution
energy phase end
times
`

// The joules of a real build agree with its CPU time under the machine's curve, at any other load.
func TestMeasureRealBuild(t *testing.T) {
	need(t)
	bash := program(t, "bash", "bash")
	load := build(t, "load")
	for _, neighbors := range []int{1, 2} {
		t.Run(fmt.Sprintf("Beside%dBusyNeighbors", neighbors), func(t *testing.T) {
			for i := range neighbors {
				startDaemon(t, exec.Command(load, "burn", "100", "0"), filepath.Join(cache(t), fmt.Sprintf("neighbor-%d.log", i)))
			}
			cmd, result := measureCommand(t, "--", bash, "-c", buildScript)
			cmd.Dir = "../../.."
			cmd.Env = append(os.Environ(), "PATH="+filepath.Dir(energyBinary(t))+":"+os.Getenv("PATH"), "GOCACHE="+t.TempDir(),
				"GOWORK=off", "GOFLAGS=-buildvcs=false", "XDG_CONFIG_HOME="+withoutTelemetry(t))
			printed := run(t, cmd)
			m := readMeasured(t, result)
			m.requireSums(t)
			testBuild(t, m, printed)
			testCgroupIsGone(t, m, printed)
		})
	}
}

// withoutTelemetry returns a configuration directory that disables go's telemetry. Its process
// would have no parent that waits for it.
func withoutTelemetry(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "go/telemetry"), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "go/telemetry/mode"), []byte("off"), 0o600))
	return dir
}

// testBuild compares the joules of a build with the CPU time that its shell reports.
func testBuild(t *testing.T, m *measured, printed string) {
	t.Helper()
	all := 0.0
	lines := strings.Split(strings.TrimSpace(printed), "\n")
	for _, line := range lines[len(lines)-2:] { // of times: the shell, its children
		for _, text := range strings.Fields(line) {
			d, err := time.ParseDuration(text)
			require.NoError(t, err, printed)
			all += d.Seconds()
		}
	}
	want := byCurve(t, all)
	t.Logf("%s: %.3f s of CPU time by the shell, %.3f s measured in %.1f s; %.3f J by the curve, %.3f J measured (%+.2f %%); the node's above idle %+.1f %%",
		m.CPUTimeSource, all, m.CPUSeconds, m.Seconds, want, m.Joules, 100*(m.Joules/want-1), 100*(m.Zones[0].NodeActive/want-1))
	assert.InEpsilon(t, want, m.Joules, 0.02)
	require.Len(t, m.Zones, 1)
	assert.Equal(t, "modeled", m.Zones[0].Source)
	assert.Zero(t, m.ExitStatus)
	assert.Empty(t, m.LeftBehind)

	require.Len(t, m.Phases, 3)
	for _, p := range m.Phases {
		user, system, ok := strings.Cut(after(printed, p.Phase+" "), " ")
		if !ok {
			assert.Equal(t, "none", p.Phase)
			continue
		}
		u, err := strconv.ParseFloat(user, 64)
		require.NoError(t, err)
		s, err := strconv.ParseFloat(system, 64)
		require.NoError(t, err)
		want := byCurve(t, u+s)
		t.Logf("phase %s: %.3f J by the curve, %.3f J measured (%+.2f %%)", p.Phase, want, p.Joules[0], 100*(p.Joules[0]/want-1))
		const mark = 0.05 // seconds of CPU time to mark the next phase
		assert.InDelta(t, want, p.Joules[0], 0.02*want+byCurve(t, mark), p.Phase)
	}
}

// after returns the rest of the line that begins with a word, or "" without such a line.
func after(text, word string) string {
	for line := range strings.Lines(text) {
		if rest, ok := strings.CutPrefix(line, word); ok {
			return strings.TrimSpace(rest)
		}
	}
	return ""
}

// testCgroupIsGone checks that the command ran in its own cgroup, and that the cgroup was removed.
func testCgroupIsGone(t *testing.T, m *measured, printed string) {
	t.Helper()
	group := after(printed, "cgroup ")
	if m.CPUTimeSource == "child times" {
		assert.Empty(t, group)
		t.Log("cgroups cannot be made on this machine")
		return
	}
	require.NotEmpty(t, group)
	assert.Contains(t, printed, ":"+group+"/command\n", "/proc/self/cgroup of the command")
	for _, pattern := range []string{"/sys/fs/cgroup" + group, "/sys/fs/cgroup/*" + group} {
		left, err := filepath.Glob(pattern)
		require.NoError(t, err)
		assert.Empty(t, left)
	}
}

// A user without privileges gets no cgroup, and the same joules from the times of children.
func TestMeasureAsAUser(t *testing.T) {
	need(t)
	model := straightModel(t)
	dir := filepath.Dir(model)
	copied := func(path string) string {
		content, err := os.ReadFile(path)
		require.NoError(t, err)
		path = filepath.Join(dir, filepath.Base(path))
		require.NoError(t, os.WriteFile(path, content, 0o755))
		return path
	}
	load := copied(build(t, "load"))
	var out bytes.Buffer
	cmd := exec.Command(copied(energyBinary(t)), "measure", "--config", model, "--json", "-o", "-", "--quiet", load, "child", "1")
	cmd.Dir, cmd.Env, cmd.Stdout = dir, []string{"PATH=/usr/bin:/bin"}, &out
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	require.NoError(t, cmd.Run())
	m := new(measured)
	require.NoError(t, json.Unmarshal(out.Bytes(), m))
	assert.Equal(t, "child times", m.CPUTimeSource)
	testKnownTime(t, m, 1)
}

// testKnownTime checks the joules of a command that uses seconds of CPU time. The command uses more
// while it begins and ends, and on a busy virtual machine also CPU time that the host took. The
// test therefore compares the joules with the measured CPU time, and that CPU time with seconds.
func testKnownTime(t *testing.T, m *measured, seconds float64) {
	t.Helper()
	m.requireSums(t)
	want := byCurve(t, m.CPUSeconds)
	t.Logf("%s: %.1f s of CPU time and %.3f s to begin and end: %.3f J by the curve, %.3f J measured (%+.2f %%), the node's above idle %.3f J",
		m.CPUTimeSource, seconds, m.CPUSeconds-seconds, want, m.Joules, 100*(m.Joules/want-1), m.Zones[0].NodeActive)
	assert.InEpsilon(t, want, m.Joules, 0.005)
	assert.GreaterOrEqual(t, m.CPUSeconds, seconds)
	assert.Less(t, m.CPUSeconds, 1.02*seconds+0.05)
	assert.LessOrEqual(t, m.Joules, m.Zones[0].NodeActive)
}
