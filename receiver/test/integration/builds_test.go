// SPDX-License-Identifier: Apache-2.0

//go:build linux

package integration

import (
	"context"
	"fmt"
	"maps"
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
	"go.opentelemetry.io/collector/config/configoptional"
	"go.uber.org/zap"

	"github.com/energyreceiver/energyreceiver/internal/units"
	usage "github.com/energyreceiver/energyreceiver/internal/usage/cpu"
	energyreceiver "github.com/energyreceiver/energyreceiver/receiver"
	"github.com/energyreceiver/energyreceiver/receiver/internal/config"
)

// buildUser is the real user ID of the builds, which distinguishes them from all other processes on
// the machine.
const buildUser = "54321"

// builds are commands that start many processes that are shorter than a window.
func builds(t *testing.T) map[string]*exec.Cmd {
	as := func(dir string, env []string, command ...string) *exec.Cmd {
		c := exec.CommandContext(t.Context(), "setpriv", append([]string{"--ruid", buildUser}, command...)...)
		c.Dir, c.Env = dir, append(os.Environ(), env...)
		return c
	}
	files := t.TempDir()
	require.NoError(t, os.Chmod(files, 0o777)) // the shell drops the effective user
	require.NoError(t, os.Chmod(filepath.Dir(files), 0o755))
	var objects []string
	for i := range 150 {
		name := fmt.Sprintf("f%d", i)
		text := fmt.Sprintf("#include <stdio.h>\n#include <stdlib.h>\n#include <string.h>\n#include <math.h>\nint f%d(int x) { printf(\"%%d\\n\", x * %d); return x + %d; }\n", i, i, i)
		require.NoError(t, os.WriteFile(filepath.Join(files, name+".c"), []byte(text), 0o644))
		objects = append(objects, name+".o")
	}
	makefile := "all: " + strings.Join(objects, " ") + "\n%.o: %.c\n\t@gcc -O1 -c $< -o $@ && test -s $@\n"
	require.NoError(t, os.WriteFile(filepath.Join(files, "Makefile"), []byte(makefile), 0o644))
	return map[string]*exec.Cmd{
		"go build":              as("../../..", []string{"GOCACHE=" + t.TempDir(), "GOFLAGS=-p=2"}, "go", "build", "./internal/attribution"),
		"make -j2, 150 C files": as(files, nil, "make", "-s", "-j2"),
	}
}

// accounted holds the cgroups of a command, and the file that counts its CPU time.
type accounted struct {
	dirs    []string
	counter string
}

// account makes cgroups for a command. If unified is set, the command has a cgroup in version 2;
// otherwise it runs in the root of version 2.
func account(t *testing.T, unified bool) accounted {
	const version2, hybrid, version1 = "/sys/fs/cgroup", "/sys/fs/cgroup/unified", "/sys/fs/cgroup/cpuacct"
	name := "energy-programs-" + strconv.Itoa(os.Getpid())
	var a accounted
	add := func(in string) string {
		dir := filepath.Join(in, name)
		require.NoError(t, os.Mkdir(dir, 0o755))
		a.dirs = append(a.dirs, dir)
		t.Cleanup(func() {
			assert.Eventually(t, func() bool { return os.Remove(dir) == nil }, 10*time.Second, 100*time.Millisecond)
		})
		return dir
	}
	exists := func(path string) bool { _, err := os.Stat(path); return err == nil }
	switch {
	case exists(version1):
		a.counter = filepath.Join(add(version1), "cpuacct.usage")
		if unified && !exists(hybrid) {
			t.Skip("lacks cgroup v2")
		} else if unified {
			add(hybrid)
		}
	case unified:
		a.counter = filepath.Join(add(version2), "cpu.stat")
	default:
		t.Skip("lacks cgroup v1, without which the CPU time of the root cgroup is not counted")
	}
	return a
}

func (a accounted) used(t *testing.T) float64 {
	text, err := os.ReadFile(a.counter)
	require.NoError(t, err)
	usec, unified := strings.CutPrefix(string(text), "usage_usec ")
	digits, _, _ := strings.Cut(strings.TrimSpace(usec), "\n")
	n, err := strconv.ParseFloat(digits, 64)
	require.NoError(t, err)
	if unified {
		return n / 1e6
	}
	return n / 1e9
}

// named is the CPU time of series of the build's user, by the name of the program: the last value
// of each series.
type named map[string]map[string]float64

func (n named) collect(t *testing.T, e *energyreceiver.Embedded) {
	md, err := e.Collect(t.Context())
	require.NoError(t, err)
	for _, rm := range md.ResourceMetrics().All() {
		attributes := rm.Resource().Attributes()
		owner, ok := attributes.Get("process.owner")
		if !ok || owner.Str() != buildUser {
			continue
		}
		name, _ := attributes.Get("process.executable.name")
		of := name.Str()
		if v, ok := attributes.Get("process.descendants"); ok && v.Bool() {
			of += " (descendants)"
		}
		for _, m := range rm.ScopeMetrics().At(0).Metrics().All() {
			if m.Name() != "process.cpu.time" {
				continue
			}
			p := m.Sum().DataPoints().At(m.Sum().DataPoints().Len() - 1)
			if n[of] == nil {
				n[of] = map[string]float64{}
			}
			n[of][fmt.Sprint(attributes.AsRaw(), p.StartTimestamp())] = p.DoubleValue()
		}
	}
}

// Run as root with BUILDS=1 on an otherwise idle machine:
//
//	go test ./receiver/test/integration -run ProgramsOfABuild -v
func TestProgramsOfABuildHaveNames(t *testing.T) {
	if os.Getenv("BUILDS") == "" || os.Geteuid() != 0 {
		t.Skip("requires minutes on an otherwise idle machine, and root to create cgroups: run it as root with BUILDS=1")
	}
	for _, c := range []struct {
		source  usage.SourceKind
		unified bool
		most    float64 // of the CPU time may have no name
	}{{usage.KindBPF, false, 0.03}, {usage.KindBPF, true, 0.03}, {usage.KindProcfs, false, 0.15}, {usage.KindProcfs, true, 0.15}} {
		for name, command := range builds(t) {
			t.Run(fmt.Sprintf("%s, %s, unified %v", name, c.source, c.unified), func(t *testing.T) {
				in := account(t, c.unified)
				cfg := energyreceiver.DefaultConfig()
				cfg.Meters.Use, cfg.CPUTime, cfg.Window = []string{}, c.source, time.Second
				cfg.Model = configoptional.Some(config.ModelConfig{IdlePower: 100, MaxPower: 100})
				cfg.Metrics.ProcessCPUTime.Enabled = true
				e, err := energyreceiver.Embed(cfg, energyreceiver.EmbeddedOptions{Logger: zap.NewNop()})
				require.NoError(t, err)
				err = e.Start(t.Context())
				if err != nil && c.source == usage.KindBPF {
					t.Skipf("lacks BPF: %v", err)
				}
				require.NoError(t, err)
				defer func() { assert.NoError(t, e.Shutdown(context.Background())) }()
				got := named{}
				got.collect(t, e)

				began := time.Now()
				shell := exec.CommandContext(t.Context(), "sh", append([]string{
					"-c", `for c in $0; do echo $$ > $c/cgroup.procs; done; exec "$@"`, strings.Join(in.dirs, " "),
				}, command.Args...)...)
				shell.Dir, shell.Env, shell.Stdout, shell.Stderr = command.Dir, command.Env, os.Stdout, os.Stderr
				require.NoError(t, shell.Start())
				done := make(chan error)
				go func() { done <- shell.Wait() }()
				for running := true; running; {
					select {
					case err := <-done:
						require.NoError(t, err)
						running = false
					case <-time.After(10 * time.Second):
					}
					if !running {
						time.Sleep(2 * time.Second) // the kernel frees the last processes a moment later
					}
					got.collect(t, e)
				}

				all, sum := in.used(t), 0.0
				by := map[string]float64{}
				for program, series := range got {
					for _, used := range series {
						by[program] += used
						sum += used
					}
				}
				for _, program := range slices.SortedFunc(maps.Keys(by), func(a, b string) int { return int(1e6 * (by[b] - by[a])) }) {
					t.Logf("%8.3f s %s", by[program], program)
				}
				t.Logf("%.2f s of CPU time in %v, %.2f %% of it without the name of a program", all, time.Since(began).Round(time.Second), 100*(1-sum/all))
				assert.LessOrEqual(t, 1-sum/all, c.most)
				assert.LessOrEqual(t, sum/all, 1.03, "no CPU time is counted twice")
				assert.Greater(t, units.CPUTime(all*1e9), units.Second)
			})
		}
	}
}
