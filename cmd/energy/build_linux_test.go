// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/procfs"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/energyreceiver/energyreceiver/cmd/energy/internal/snapshot"
	"github.com/energyreceiver/energyreceiver/cmd/energy/internal/top"
)

const (
	compilerCopy = "ENERGY_TOP_TEST_COMPILER" // the file that a compiler runs, under a name of its own
	compilerTime = "ENERGY_TOP_TEST_TIME"     // the file with the CPU times of compilers
)

// compilerName is short enough for the kernel's name of a process, which is that of short-lived processes.
const compilerName = "test-compiler"

// runTimed is the role of a wrapper of gcc: it runs the compiler, and adds its CPU time to a file.
func runTimed(args []string) int {
	isCompiler := filepath.Base(args[0]) == "cc1"
	if isCompiler {
		args[0] = os.Getenv(compilerCopy)
	}
	c := exec.Command(args[0], args[1:]...)
	c.Stdout, c.Stderr = os.Stdout, os.Stderr
	if err := c.Run(); err != nil {
		return 1
	}
	f, err := os.OpenFile(os.Getenv(compilerTime), os.O_APPEND|os.O_WRONLY|os.O_CREATE, 0o600)
	if err != nil || !isCompiler {
		return 0
	}
	_, _ = fmt.Fprintln(f, (c.ProcessState.UserTime() + c.ProcessState.SystemTime()).Nanoseconds())
	_ = f.Close()
	return 0
}

// writeSources writes C files and a Makefile.
func writeSources(t *testing.T, dir string, files int) {
	t.Helper()
	for i := range files {
		var b bytes.Buffer
		b.WriteString("#include <stdio.h>\n#include <stdlib.h>\n")
		for j := range 30 {
			fmt.Fprintf(&b, "int f%d_%d(int n, int *v) { int s = 0; for (int k = 0; k < n * %d; k++) { s += v[k %% n] * k; if (s > k) printf(\"%%d\", s); } return s; }\n", i, j, j)
		}
		require.NoError(t, os.WriteFile(filepath.Join(dir, fmt.Sprintf("f%d.c", i)), b.Bytes(), 0o600))
	}
	makefile := fmt.Sprintf("all: $(patsubst %%.c,%%.o,$(wildcard *.c))\n%%.o: %%.c\n\t@gcc -wrapper %s -O2 -c $< -o $@\n", os.Args[0])
	require.NoError(t, os.WriteFile(filepath.Join(dir, "Makefile"), []byte(makefile), 0o600))
}

// busyTime returns the CPU time of this machine without idle time.
func busyTime() (time.Duration, error) {
	fs, err := procfs.NewDefaultFS()
	if err != nil {
		return 0, err
	}
	stat, err := fs.Stat()
	c := stat.CPUTotal
	return time.Duration((c.User + c.Nice + c.System + c.IRQ + c.SoftIRQ) * float64(time.Second)), err
}

// reading is a frame, and the busy time before and after its figures were measured.
type reading struct {
	*top.Frame
	before, after time.Duration
}

// followed receives all frames of top.
type followed struct {
	reading
	frames chan reading
}

// measure is read, whose time it notes.
func (r *followed) measure(read func(context.Context) (*snapshot.Snapshot, error)) func(context.Context) (*snapshot.Snapshot, error) {
	return func(ctx context.Context) (*snapshot.Snapshot, error) {
		r.before, _ = busyTime()
		s, err := read(ctx)
		r.after, _ = busyTime()
		return s, err
	}
}

func (r *followed) show(ctx context.Context, f *top.Frame, _ []string) error {
	r.Frame = f
	select {
	case r.frames <- r.reading:
	case <-ctx.Done():
	}
	return nil
}

func (*followed) explain(context.Context, string, bool, []string) error { return nil }

// The compilers of a build are short-lived. Their row has their share of the active energy, which is
// proportional to CPU time with this model.
func TestACompilerHasTheShareOfItsCPUTimeInABuild(t *testing.T) {
	if testing.Short() || os.Geteuid() != 0 {
		t.Skip("it builds 150 files, and reads the CPU time of short-lived processes with BPF")
	}
	cc1, err := exec.Command("gcc", "-print-prog-name=cc1").Output()
	if err != nil {
		t.Skip("no gcc: ", err)
	}
	dir := t.TempDir()
	writeSources(t, dir, 150)
	compiler, times := filepath.Join(dir, compilerName), filepath.Join(dir, "times")
	from, err := os.Open(strings.TrimSpace(string(cc1)))
	require.NoError(t, err)
	to, err := os.OpenFile(compiler, os.O_CREATE|os.O_WRONLY, 0o700)
	require.NoError(t, err)
	_, err = io.Copy(to, from)
	require.NoError(t, err)
	require.NoError(t, to.Close())
	config := filepath.Join(dir, "config.yaml")
	require.NoError(t, os.WriteFile(config, []byte("energy: {series: {processes: {min_energy: 0.01, max: 500}}, meters: {use: []}, model: {points: "+
		"[{utilization: 0, power: 10}, {utilization: 1, power: 50}]}}\n"), 0o600))

	ctx, stop := context.WithCancel(t.Context())
	shown, ended, opened := &followed{frames: make(chan reading, 1)}, make(chan error, 1), make(chan error, 1)
	var baseline reading
	go func() {
		o := options{local: true, config: config, interval: 2 * time.Second, plain: true}
		ended <- follow(ctx, o, func(ctx context.Context, o options) (s *source, err error) {
			baseline.before, _ = busyTime()
			s, err = openSource(ctx, o)
			baseline.after, _ = busyTime()
			if err == nil {
				s.read = shown.measure(s.read)
			}
			opened <- err
			return s, err
		}, shown)
	}()
	require.NoError(t, <-opened)
	build := exec.Command("make", "-s", "-j4", "-C", dir)
	build.Env = append(os.Environ(), standIn+"=times", compilerCopy+"="+compiler, compilerTime+"="+times)
	finished := make(chan error, 1)
	go func() { finished <- build.Run() }()
	var last reading
	for done := (time.Time{}); done.IsZero() || last.At.Before(done); {
		select {
		case last = <-shown.frames:
			require.Empty(t, last.Wrong)
			requireRowsAddUp(t, last.Frame)
		case err := <-finished:
			require.NoError(t, err)
			done = time.Now()
		}
	}
	stop()
	require.NoError(t, <-ended)

	var used time.Duration
	lines := strings.Fields(read(t, times))
	for _, line := range lines {
		d, err := time.ParseDuration(line + "ns")
		require.NoError(t, err)
		used += d
	}
	require.Len(t, lines, 150)
	row := rowOf(t, last.Tables[top.Programs], compilerName, "root")
	share := float64(row.Energy) / float64(last.Zones[0].ActiveEnergy)
	least, most := float64(used)/float64(last.after-baseline.before), float64(used)/float64(last.before-baseline.after)
	t.Logf("the compiler has %.2f to %.2f %% of the CPU time, and %.2f %% of the energy", 100*least, 100*most, 100*share)
	assert.Greater(t, share, least-0.02)
	assert.Less(t, share, most+0.02)
}
