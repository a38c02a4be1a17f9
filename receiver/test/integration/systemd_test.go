// SPDX-License-Identifier: Apache-2.0

//go:build linux

package integration

import (
	"errors"
	"fmt"
	"io/fs"
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

// The shipped unit runs under a real systemd. With all of its hardening, the collector reads
// counters that only root may read and may load BPF programs, and has no other privileges.
func TestSystemdService(t *testing.T) {
	need(t)
	program(t, "systemd-analyze", "systemd")
	program(t, "unshare", "util-linux")
	bpfLacks := ""
	if unrestricted := startCollector(t, "bpf"); unrestricted.hasEnded() {
		bpfLacks = lastLine(unrestricted.log)
	} else {
		unrestricted.stop(t)
	}

	const target, cgroup = "integration-test.target", "integration-test-systemd"
	dir, err := os.MkdirTemp("", "systemd-")
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, os.RemoveAll(dir)) })
	require.NoError(t, os.Chmod(dir, 0o755))
	put := func(path, content string, mode os.FileMode) {
		path = filepath.Join(dir, "files", path)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte(content), mode))
		require.NoError(t, os.Chmod(path, mode))
	}
	require.NoError(t, os.Mkdir(filepath.Join(dir, "copy"), 0o755))
	put("usr/local/bin/otelcol-energy", fileText(t, collectorBinary(t)), 0o755)
	put("etc/systemd/system/otelcol-energy.service", fileText(t, shipped(t, "systemd", "otelcol-energy.service")), 0o644)
	// No other unit of this machine may run.
	put("etc/systemd/system/otelcol-energy.service.d/test.conf", "[Unit]\nDefaultDependencies=no\nWants=\nAfter=\n", 0o644)
	put("etc/systemd/system/"+target, "[Unit]\nDefaultDependencies=no\nWants=otelcol-energy.service\n", 0o644)
	put("made-up/sys/class/powercap/intel-rapl:0/name", "package-0\n", 0o444)
	put("made-up/sys/class/powercap/intel-rapl:0/max_energy_range_uj", "262143328850\n", 0o444)
	put("made-up/sys/class/powercap/intel-rapl:0/energy_uj", "0\n", 0o400)
	require.NoError(t, os.Symlink("/proc", filepath.Join(dir, "root/made-up/proc")))
	put("etc/otelcol-energy/config.yaml", `
receivers:
  energy: {root_path: /made-up, collection_interval: 200ms, initial_delay: 0s, meters: {use: [powercap]}, model: none, attribution: {preset: kepler}, zones: [package]}
exporters:
  file: {path: "${env:STATE_DIRECTORY}/out.json", flush_interval: 100ms}
service:
  telemetry: {metrics: {level: none}, logs: {output_paths: ["${env:STATE_DIRECTORY}/log"], encoding: json}}
  pipelines:
    metrics: {receivers: [energy], exporters: [file]}
`, 0o644)

	t.Cleanup(func() { removeCgroupsNamed(t, cgroup) }) // after systemd has ended
	log := filepath.Join(cache(t), "systemd.log")
	script, err := filepath.Abs("systemd.sh")
	require.NoError(t, err)
	cmd := exec.Command(script, dir, target, cgroup)
	ended := startDaemon(t, cmd, log)
	// systemd takes long to terminate. The kill also ends its child.
	t.Cleanup(func() { _ = cmd.Process.Kill() })

	var pid string
	eventually(t, "the collector runs", func() bool {
		select {
		case <-ended:
			t.Skipf("lacks a machine that a second systemd runs on: %s", lastLine(log))
		default:
		}
		pid = processOf("/usr/local/bin/otelcol-energy", cgroup)
		return pid != ""
	})
	root := filepath.Join("/proc", pid, "root")
	status := fileText(t, filepath.Join("/proc", pid, "status"))
	_, parent, _ := strings.Cut(status, "PPid:\t")
	parent, _, _ = strings.Cut(parent, "\n")
	// systemd's root is writable, the collector's is read-only.
	counter := filepath.Join("/proc", parent, "root/made-up/sys/class/powercap/intel-rapl:0/energy_uj")
	var active float64
	energy := 0
	eventually(t, "the collector measures", func() bool {
		energy += 1_000_000
		if err := writeInto(counter, strconv.Itoa(energy)+"\n"); err != nil {
			require.FailNowf(t, "the counter cannot be written", "%v, the log is in %s", err, log)
		}
		out := filepath.Join(root, "var/lib/otelcol-energy/out.json")
		if text, err := os.ReadFile(out); err != nil || !strings.Contains(string(text), "\n") {
			return false
		}
		active = total(readEmissions(t, out), "system.energy", "energy.zone=package", "energy.method=measured")
		return active > 0
	})

	said := fileText(t, filepath.Join(root, "var/lib/otelcol-energy/log"))
	if bpfLacks == "" {
		// The programs are loaded by then. The only error is about the PID namespace, which the
		// test made.
		assert.Contains(t, said, "not those of this kernel, PID namespace and time namespace")
	}
	granted := fmt.Sprintf("%016x", 1<<unix.CAP_DAC_READ_SEARCH|1<<unix.CAP_SYS_PTRACE|1<<unix.CAP_BPF|1<<unix.CAP_PERFMON)
	for _, set := range []string{"CapPrm", "CapEff", "CapBnd", "CapAmb"} {
		assert.Contains(t, status, set+":\t"+granted+"\n")
	}
	assert.Contains(t, status, "NoNewPrivs:\t1\n")
	assert.Contains(t, status, "Seccomp:\t2\n")
	assert.NotContains(t, status, "Uid:\t0\t")
}

// writeInto replaces the content of a file in another process's root. Links cannot lead out of that
// root.
func writeInto(path, content string) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_TRUNC|unix.O_NOFOLLOW, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(content)
	return errors.Join(err, f.Close())
}

// processOf finds the process of a program in a cgroup.
func processOf(program, cgroup string) (pid string) {
	all, _ := filepath.Glob("/proc/[0-9]*")
	i := slices.IndexFunc(all, func(dir string) bool {
		arguments, _ := os.ReadFile(filepath.Join(dir, "cmdline")) // it may have ended
		groups, _ := os.ReadFile(filepath.Join(dir, "cgroup"))
		return strings.HasPrefix(string(arguments), program+"\x00--config") && strings.Contains(string(groups), "/"+cgroup)
	})
	if i < 0 {
		return ""
	}
	return filepath.Base(all[i])
}

// removeCgroupsNamed removes the cgroups with a name directly below the hierarchies' roots, with
// their contents.
func removeCgroupsNamed(t *testing.T, name string) {
	t.Helper()
	eventually(t, "the cgroups "+name+" are removed", func() bool {
		var dirs []string
		for _, pattern := range []string{"/sys/fs/cgroup/", "/sys/fs/cgroup/*/"} {
			tops, err := filepath.Glob(pattern + name)
			require.NoError(t, err)
			for _, top := range tops {
				_ = filepath.WalkDir(top, func(path string, d fs.DirEntry, err error) error {
					if err == nil && d.IsDir() {
						dirs = append(dirs, path)
					}
					return nil
				})
			}
		}
		slices.SortFunc(dirs, func(a, b string) int { return len(b) - len(a) }) // children first
		for _, dir := range dirs {
			_ = os.Remove(dir) // fails until its last process has ended
		}
		return len(dirs) == 0
	})
}
