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

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// grant is a row of docs/permissions.md: the collector's user and privileges, and their effect.
type grant struct {
	name         string
	uid          uint32
	capabilities []uintptr
	// measures: it reads counters that only root may read. bpf: it reads CPU times with BPF.
	// executables: it reads the executables of other users' processes.
	measures, bpf, executables bool
}

// The effect of each privilege. The counters are in another directory, with the kernel's mode 0400
// and owner root.
func TestPrivileges(t *testing.T) {
	need(t)
	dir, err := os.MkdirTemp("", "privileges-") // t.TempDir is accessible to its user only
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, os.RemoveAll(dir)) })
	require.NoError(t, os.Chmod(dir, 0o755))
	copyProgram := func(from, name string) string {
		content, err := os.ReadFile(from)
		require.NoError(t, err)
		to := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(to, content, 0o755))
		return to
	}
	program(t, "setpriv", "util-linux")
	collector := copyProgram(collectorBinary(t), "collector")
	bpfLacks := ""
	if unrestricted := startCollector(t, "bpf"); unrestricted.hasEnded() {
		bpfLacks = lastLine(unrestricted.log)
	}

	load := exec.Command(copyProgram(build(t, "load"), "load"), "burn", "5", "0")
	require.NoError(t, load.Start())
	t.Cleanup(func() {
		_ = load.Process.Kill()
		_ = load.Wait() // killed
	})

	const nobody = 65534
	for _, g := range []grant{
		{name: "a user", uid: nobody},
		{name: "a user with DAC_READ_SEARCH", uid: nobody, capabilities: []uintptr{unix.CAP_DAC_READ_SEARCH}, measures: true},
		{
			name: "a user with DAC_READ_SEARCH and BPF alone", uid: nobody,
			capabilities: []uintptr{unix.CAP_DAC_READ_SEARCH, unix.CAP_BPF}, measures: true,
		},
		{
			name: "a user with DAC_READ_SEARCH, BPF and PERFMON", uid: nobody,
			capabilities: []uintptr{unix.CAP_DAC_READ_SEARCH, unix.CAP_BPF, unix.CAP_PERFMON}, measures: true, bpf: true,
		},
		{
			name: "a user with DAC_READ_SEARCH and SYS_PTRACE", uid: nobody,
			capabilities: []uintptr{unix.CAP_DAC_READ_SEARCH, unix.CAP_SYS_PTRACE}, measures: true, executables: true,
		},
		{
			name: "a user with all four", uid: nobody,
			capabilities: []uintptr{unix.CAP_DAC_READ_SEARCH, unix.CAP_SYS_PTRACE, unix.CAP_BPF, unix.CAP_PERFMON},
			measures:     true, bpf: true, executables: true,
		},
		{name: "root without capabilities", measures: true},
		{
			name:         "root with SYS_PTRACE, BPF and PERFMON",
			capabilities: []uintptr{unix.CAP_SYS_PTRACE, unix.CAP_BPF, unix.CAP_PERFMON},
			measures:     true, bpf: true, executables: true,
		},
	} {
		t.Run(g.name, func(t *testing.T) {
			if g.bpf && bpfLacks != "" {
				t.Skipf("lacks BPF: %s", bpfLacks)
			}
			g.test(t, dir, collector, load.Process.Pid)
		})
	}
}

func (g *grant) test(t *testing.T, dir, collector string, load int) {
	t.Helper()
	root := filepath.Join(dir, "root-"+strconv.Itoa(int(g.uid))+"-"+strconv.Itoa(len(g.capabilities)))
	require.NoError(t, os.RemoveAll(root))
	zone := filepath.Join(root, "sys/class/powercap/intel-rapl:0")
	require.NoError(t, os.MkdirAll(zone, 0o755))
	require.NoError(t, os.Symlink("/proc", filepath.Join(root, "proc")))
	require.NoError(t, os.MkdirAll(filepath.Join(root, "sys/fs"), 0o755))
	require.NoError(t, os.Symlink("/sys/fs/cgroup", filepath.Join(root, "sys/fs/cgroup")))
	energy := 0
	write := func(name, value string, mode os.FileMode) {
		require.NoError(t, os.WriteFile(filepath.Join(zone, name), []byte(value+"\n"), mode))
	}
	write("name", "package-0", 0o444)
	write("max_energy_range_uj", "262143328850", 0o444)
	write("energy_uj", "0", 0o400)

	out := filepath.Join(root, "out.json")
	require.NoError(t, os.WriteFile(out, nil, 0o600))
	require.NoError(t, os.Chown(out, int(g.uid), int(g.uid)))
	config := filepath.Join(root, "config.yaml")
	text := strings.NewReplacer("ROOT", root, "OUT", out).Replace(`
receivers:
  energy:
    root_path: ROOT
    collection_interval: 200ms
    initial_delay: 0s
    meters: {use: [powercap]}
    model: none
    attribution: {preset: kepler}
    zones: [package]
    series: {processes: {group_by: pid, min_energy: 0, max: 0}}
exporters:
  file: {path: OUT, append: true, flush_interval: 100ms}
service:
  telemetry: {metrics: {level: none}, logs: {encoding: json}}
  pipelines:
    metrics: {receivers: [energy], exporters: [file]}
`)
	require.NoError(t, os.WriteFile(config, []byte(text), 0o644))

	// The bounding set limits root's capabilities at exec. A user gets the ambient set.
	set := "-all"
	for _, c := range g.capabilities {
		set += ",+" + capabilityNames[c]
	}
	args := []string{"--no-new-privs", "--clear-groups", "--bounding-set=" + set, "--inh-caps=" + set, "--ambient-caps=" + set}
	args = append(args, fmt.Sprintf("--reuid=%d", g.uid), fmt.Sprintf("--regid=%d", g.uid), collector, "--config", config)
	log := filepath.Join(root, "log")
	ended := startDaemon(t, exec.Command("setpriv", args...), log)
	hasEnded := func() bool {
		select {
		case <-ended:
			t.Fatalf("the collector ended: %s", lastLine(log))
		default:
		}
		return false
	}
	says := func(what string) bool { return !hasEnded() && strings.Contains(fileText(t, log), what) }

	sources := []string{`"source":"clocks"`, `"source":"procfs"`}
	if g.bpf {
		sources = []string{`"source":"bpf`}
	}
	eventually(t, "the collector logs its source", func() bool { return slices.ContainsFunc(sources, says) })
	if !g.measures {
		eventually(t, "the collector logs a missing permission", func() bool { return says("permission denied") })
		assert.NotContains(t, fileText(t, out), "system.energy")
		return
	}
	var found []point
	eventually(t, "the load has energy", func() bool {
		energy += 1_000_000
		write("energy_uj", strconv.Itoa(energy), 0o400)
		found = nil
		for _, e := range readEmissions(t, out) {
			found = append(found, e.filter("process.energy", "process.pid="+strconv.Itoa(load))...)
		}
		return !hasEnded() && len(found) > 0
	})
	path := found[len(found)-1].attributes["process.executable.path"]
	if g.executables {
		assert.Equal(t, filepath.Join(dir, "load"), path)
	} else {
		assert.Empty(t, path)
	}
	assert.Equal(t, "load", found[len(found)-1].attributes["process.executable.name"], "by the task if the executable is unreadable")
}

// capabilityNames returns setpriv's names.
var capabilityNames = map[uintptr]string{
	unix.CAP_DAC_READ_SEARCH: "dac_read_search",
	unix.CAP_SYS_PTRACE:      "sys_ptrace",
	unix.CAP_BPF:             "bpf",
	unix.CAP_PERFMON:         "perfmon",
}

func fileText(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	return string(text)
}
