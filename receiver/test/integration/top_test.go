// SPDX-License-Identifier: Apache-2.0

//go:build linux

package integration

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
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

// table has the values of a document of `energy top --json` that these tests read.
type table struct {
	At            time.Time `json:"at"`
	Since         time.Time `json:"since"`
	ActiveJoules  float64   `json:"active_joules"`
	Contradiction string    `json:"contradiction"`
	Views         map[string][]struct {
		Name   string  `json:"name"`
		User   string  `json:"user"`
		Joules float64 `json:"joules"`
	} `json:"views"`
}

// compilerName fits into the kernel's name of a process, the only name of short-lived processes.
const compilerName = "test-compiler"

// writeSources writes C files, and a Makefile that compiles them with a copy of gcc's compiler
// under the name compilerName. Each compiler writes a line with its user and system seconds to the
// file times.
func writeSources(t *testing.T, dir string, files int) {
	t.Helper()
	compiler, err := os.ReadFile(strings.TrimSpace(run(t, exec.Command("gcc", "-print-prog-name=cc1"))))
	require.NoError(t, err)
	wrapper := fmt.Sprintf(`#!/bin/bash
[ "${1##*/}" = cc1 ] || exec "$@"
TIMEFORMAT='%%3U %%3S'
{ time %[1]s/%[2]s "${@:2}" 2>&3; } 3>&2 2>>%[1]s/times
`, dir, compilerName)
	makefile := fmt.Sprintf("all: $(patsubst %%.c,%%.o,$(wildcard *.c))\n%%.o: %%.c\n\t@gcc -wrapper %s/wrapper -O2 -c $< -o $@\n", dir)
	for name, content := range map[string][]byte{compilerName: compiler, "wrapper": []byte(wrapper), "Makefile": []byte(makefile)} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), content, 0o700))
	}
	for i := range files {
		var b bytes.Buffer
		b.WriteString("#include <stdio.h>\n#include <stdlib.h>\n")
		for j := range 30 {
			fmt.Fprintf(&b, "int f%d_%d(int n, int *v) { int s = 0; for (int k = 0; k < n * %d; k++) { s += v[k %% n] * k; if (s > k) printf(\"%%d\", s); } return s; }\n", i, j, j)
		}
		require.NoError(t, os.WriteFile(filepath.Join(dir, fmt.Sprintf("f%d.c", i)), b.Bytes(), 0o600))
	}
}

// busyTime is the CPU time of this machine without idle time, in seconds, at a time.
type busyTime struct {
	at      time.Time
	seconds float64
}

// busyTimes samples the busy time until done is closed.
func busyTimes(t *testing.T, done <-chan struct{}) (samples []busyTime) {
	for tick := time.NewTicker(20 * time.Millisecond); ; {
		stat, err := os.ReadFile("/proc/stat")
		assert.NoError(t, err)
		sample := busyTime{at: time.Now()}
		for i, field := range strings.Fields(string(stat))[1:8] { // proc_stat(5): user to softirq
			ticks, _ := strconv.ParseFloat(field, 64)
			if isIdle := i == 3 || i == 4; !isIdle {
				sample.seconds += ticks / 100
			}
		}
		samples = append(samples, sample)
		select {
		case <-done:
			return samples
		case <-tick.C:
		}
	}
}

// busyAt returns the busy time at a time between the first and the last sample.
func busyAt(samples []busyTime, at time.Time) float64 {
	i := 1
	for i < len(samples)-1 && samples[i].at.Before(at) {
		i++
	}
	a, b := samples[i-1], samples[i]
	return a.seconds + (b.seconds-a.seconds)*at.Sub(a.at).Seconds()/b.at.Sub(a.at).Seconds()
}

// The compilers of a build are short-lived. Their row has their share of the active energy, which
// is proportional to CPU time with this model, and no table contradicts itself.
func TestTopNextToABuild(t *testing.T) {
	need(t)
	program(t, "gcc", "gcc")
	program(t, "make", "make")
	dir := t.TempDir()
	const files = 150
	writeSources(t, dir, files)
	done, sampled := make(chan struct{}), make(chan []busyTime, 1)
	go func() { sampled <- busyTimes(t, done) }()

	config := filepath.Join(dir, "receiver.yaml")
	require.NoError(t, os.WriteFile(config, []byte("meters: {use: []}\nseries: {processes: {min_energy: 0.01, max: 500}}\n"+straight), 0o600))
	top := exec.Command(energyBinary(t), "top", "--local", "--config", config, "--json", "--interval", "2s")
	top.Stderr = os.Stderr
	out, err := top.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, top.Start())
	t.Cleanup(func() { _ = top.Process.Kill() })
	tables := json.NewDecoder(out)
	var last table
	require.NoError(t, tables.Decode(&last))

	finished := make(chan error, 1)
	go func() { finished <- exec.Command("make", "-s", "-j4", "-C", dir).Run() }()
	for built := (time.Time{}); built.IsZero() || last.At.Before(built); {
		last = table{}
		require.NoError(t, tables.Decode(&last))
		assert.Empty(t, last.Contradiction)
		select {
		case err := <-finished:
			require.NoError(t, err)
			built = time.Now()
		default:
		}
	}
	close(done)
	require.NoError(t, top.Process.Signal(syscall.SIGTERM))
	_, _ = io.Copy(io.Discard, out)
	require.NoError(t, top.Wait())

	content, err := os.ReadFile(filepath.Join(dir, "times"))
	require.NoError(t, err)
	times := strings.Fields(string(content))
	require.Len(t, times, 2*files)
	used, joules := 0.0, 0.0
	for _, field := range times {
		seconds, err := strconv.ParseFloat(field, 64)
		require.NoError(t, err)
		used += seconds
	}
	for _, row := range last.Views["programs"] {
		if row.Name == compilerName && row.User == "root" {
			joules += row.Joules
		}
	}
	samples := <-sampled
	want, got := used/(busyAt(samples, last.At)-busyAt(samples, last.Since)), joules/last.ActiveJoules
	t.Logf("the compiler has %.2f %% of the CPU time, and %.2f %% of the energy", 100*want, 100*got)
	assert.InDelta(t, want, got, 0.02)
}
