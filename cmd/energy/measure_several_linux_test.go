// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/energyreceiver/energyreceiver/cmd/energy/internal/measure"
	"github.com/energyreceiver/energyreceiver/cmd/energy/internal/report"
	"github.com/energyreceiver/energyreceiver/internal/units"
)

// severalRuns are runs of measure whose commands write what they do to a file.
type severalRuns struct {
	t   *testing.T
	ctx context.Context
	dir string
}

func newSeveralRuns(t *testing.T) *severalRuns {
	return &severalRuns{t: t, ctx: t.Context(), dir: t.TempDir()}
}

// path returns that of a file of the test.
func (s *severalRuns) path(name string) string { return filepath.Join(s.dir, name) }

// measure runs energy measure and returns its exit status and what was written to standard error.
func (s *severalRuns) measure(args ...string) (status int, stderr string) {
	s.t.Helper()
	status, _, stderr = measuredUntil(s.ctx, s.t, append([]string{"--model", "35-120", "--wait", "0"}, args...)...)
	return status, stderr
}

func (s *severalRuns) read(name string) string {
	s.t.Helper()
	content, err := os.ReadFile(s.path(name))
	if !errors.Is(err, os.ErrNotExist) {
		require.NoError(s.t, err)
	}
	return string(content)
}

// note returns a command that adds a word to a file, and then does more.
func (s *severalRuns) note(word, more string) string {
	return "printf " + word + " >> " + s.path("log") + "; " + more
}

func TestTwoCommandsRunInTurn(t *testing.T) {
	s := newSeveralRuns(t)
	status, stderr := s.measure("-v", "--runs", "3", "--warmup", "1", "--vs", s.note("B", "true"), "--json", "--output", s.path("out"), "--", "sh", "-c", s.note("A", "true"))
	require.Equal(t, 0, status, stderr)
	assert.Equal(t, "AB"+"ABBAAB", s.read("log"))
	assert.Contains(t, stderr, "energy measure: warm-up run 1 of 1 of B: ")
	assert.Contains(t, stderr, "energy measure: run 3 of 3 of B: ")

	var out struct {
		Commands []struct{ Runs []struct{ Joules float64 } }
		Notes    []string
	}
	require.NoError(t, json.Unmarshal([]byte(s.read("out")), &out))
	require.Len(t, out.Commands, 2)
	for _, c := range out.Commands {
		require.Len(t, c.Runs, 3)
		assert.Positive(t, c.Runs[0].Joules)
	}
	assert.Contains(t, strings.Join(out.Notes, "\n"), "B is run by a shell")
}

func TestTheFirstFailureEndsAllRuns(t *testing.T) {
	s := newSeveralRuns(t)
	failing := s.note("x", "test $(wc -c < "+s.path("log")+") -ne 3 || exit 7")
	status, stderr := s.measure("--runs", "5", "--", "sh", "-c", failing)
	assert.Equal(t, 7, status)
	assert.Equal(t, "xxx", s.read("log"))
	assert.Contains(t, stderr, "energy measure: run 3 of 5 failed with exit status 7: --ignore-failure also counts failed runs\n")
	assert.NotContains(t, stderr, " · ")

	require.NoError(t, os.Remove(s.path("log")))
	status, stderr = s.measure("--runs", "5", "--ignore-failure", "--", "sh", "-c", failing)
	assert.Equal(t, 0, status)
	assert.Equal(t, "xxxxx", s.read("log"))
	assert.Contains(t, stderr, " · 5 runs")
	assert.Contains(t, stderr, "Note: 1 of 5 runs failed")
}

func TestAnInterruptEndsAllRuns(t *testing.T) {
	s := newSeveralRuns(t)
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(interrupted(syscall.SIGTERM))
	s.ctx = ctx
	status, stderr := s.measure("--runs", "3", "--ignore-failure", "--", "sh", "-c", s.note("x", "true"))
	assert.Equal(t, 128+15, status)
	assert.Equal(t, "energy measure: interrupted: 0 of 3 runs are complete\n", stderr)
	assert.Empty(t, s.read("log"))
}

// interruptRun interrupts energy measure during the n-th run of any command. It returns a command
// that waits for that in this run.
func (s *severalRuns) interruptRun(n int) (command string) {
	ctx, cancel := context.WithCancelCause(s.t.Context())
	s.ctx = ctx
	s.t.Cleanup(func() { cancel(nil) })
	fifo := s.path("fifo")
	require.NoError(s.t, syscall.Mkfifo(fifo, 0o600))
	go func() {
		f, err := os.OpenFile(fifo, os.O_RDWR, 0) // of the command, which waits until it is read from and closed
		if err != nil {
			return
		}
		defer func() { _ = f.Close() }()
		if _, err := f.Read(make([]byte, 1)); err == nil {
			cancel(interrupted(syscall.SIGINT))
			_ = os.WriteFile(s.path("interrupted"), nil, 0o600)
		}
	}()
	return fmt.Sprintf("printf x >> %[1]s; test $(wc -c < %[1]s) -ne %[2]d || { printf x > %[3]s; while ! test -e %[4]s; do sleep 0.01; done; }",
		s.path("count"), n, fifo, s.path("interrupted"))
}

func TestAnInterruptOfTwoCommandsReportsCompletePairs(t *testing.T) {
	s := newSeveralRuns(t)
	command := s.interruptRun(6) // A B, B A, A B
	status, stderr := s.measure("--vs", command, "--json", "-o", s.path("out"), "--", "sh", "-c", command)
	assert.Equal(t, 128+2, status, stderr)
	var out struct {
		Commands []struct{ Runs []struct{} }
		Notes    []string
	}
	require.NoError(t, json.Unmarshal([]byte(s.read("out")), &out))
	require.Len(t, out.Commands, 2)
	for _, c := range out.Commands {
		assert.Len(t, c.Runs, 2)
	}
	assert.Contains(t, out.Notes, "Interrupted: 2 of 10 pairs of runs are complete")
}

func TestEachOfSeveralRunsHasAnEmptyInput(t *testing.T) {
	s := newSeveralRuns(t)
	status, _ := s.measure("--runs", "2", "--", "sh", "-c", "if read line; then exit 1; fi; "+s.note("x", "true"))
	assert.Equal(t, 0, status)
	assert.Equal(t, "xx", s.read("log"))
}

func TestTheBaselineOfSeveralRunsIsMeasuredOnce(t *testing.T) {
	s := newSeveralRuns(t)
	status, stderr := s.measure("--runs", "3", "--baseline", "5ms", "--", "true")
	assert.Equal(t, 0, status)
	assert.Equal(t, 1, strings.Count(stderr, "the baseline is skipped"), stderr)
}

func TestMaxJoulesOfSeveralRunsIsThatOfTheirMean(t *testing.T) {
	s := newSeveralRuns(t)
	busy := []string{"sh", "-c", "i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done"}
	status, stderr := s.measure(append([]string{"--runs", "2", "--max-joules", "0.000001", "--"}, busy...)...)
	assert.Equal(t, exitTooMuch, status)
	assert.Contains(t, stderr, "the runs of the command used on average")
	status, _ = s.measure(append([]string{"--runs", "2", "--max-joules", "1e6", "--"}, busy...)...)
	assert.Equal(t, 0, status)
}

func TestMaxRatioFailsOnlyIfTheDifferenceIsSignificant(t *testing.T) {
	of := func(source string, cpu time.Duration, millijoules ...units.Energy) (runs []*measure.Result) {
		for _, used := range millijoules {
			zone := measure.Zone{Name: "package", Source: source, Used: 1000 * used, Uncertainty: math.NaN()}
			runs = append(runs, &measure.Result{Wall: 1, CPU: cpu, Zones: []measure.Zone{zone}})
		}
		return runs
	}
	runs := func(millijoules ...units.Energy) []*measure.Result { return of("measured", 1, millijoules...) }
	for name, c := range map[string]struct {
		limit  float64
		a, b   []*measure.Result
		status int
		text   string
	}{
		"above and significant": {1.02, runs(105, 106, 104), runs(100, 100, 100), exitTooMuch, "is 1.05 (95 % confidence: 1.025 to 1.075), " +
			"above the 1.02 of --max-ratio, and the difference is significant"},
		"above and not significant": {1.02, runs(100, 130, 90), runs(100, 100, 100), 0, "above the 1.02 of --max-ratio, but the difference is not significant"},
		"significant and below":     {1.1, runs(105, 106, 104), runs(100, 100, 100), 0, ""},
		"energies of 0":             {1.02, runs(0, 0, 0), runs(0, 0, 0), exitFailed, "is not checked"},
		"modeled": {1.02, of("modeled", 105*time.Second, 100, 130, 90), of("modeled", 100*time.Second, 100, 100, 100), exitTooMuch,
			"the ratio of CPU time (all energy is modeled) is 1.05 (95 % confidence: 1.05 to 1.05)"},
		"modeled from the same CPU time": {1.02, of("modeled", time.Second, 105, 106, 104), of("modeled", time.Second, 100, 100, 100), 0, ""},
		"no limit":                       {0, runs(0, 0), runs(0, 0), 0, ""},
	} {
		t.Run(name, func(t *testing.T) {
			var messages strings.Builder
			o := measureOptions{maxRatio: c.limit, messages: &messages}
			status := o.checkRatio(report.New(report.Options{MaxRatio: c.limit}, []report.Command{{Label: "A", Runs: c.a}, {Label: "B", Runs: c.b}}))
			assert.Equal(t, c.status, status, messages.String())
			assert.Contains(t, messages.String(), c.text)
			assert.Equal(t, c.text == "", messages.Len() == 0, messages.String())
		})
	}

	s := newSeveralRuns(t)
	busy := func(n int) string { return fmt.Sprintf("i=0; while [ $i -lt %d ]; do i=$((i+1)); done", n) }
	status, stderr := s.measure("--runs", "4", "--max-ratio", "1.1", "--vs", busy(2000), "--", "sh", "-c", busy(200_000))
	assert.Equal(t, exitTooMuch, status, stderr)
}

func TestTheNumbersAndNamesOfRuns(t *testing.T) {
	for names, args := range map[string][]string{
		"1: run 1 of 1":                          {"true"},
		"20: run 1 of 10 of A, run 1 of 10 of B": {"--vs", "false", "true"},
		"8: run 1 of 4 of A, run 1 of 4 of B":    {"--vs", "false", "--runs", "4", "true"},
		"3: warm-up run 1 of 1, run 1 of 2":      {"--runs", "2", "--warmup", "1", "true"},
	} {
		o, err := parsed[measureOptions](args)
		require.NoError(t, err)
		count := o.several.count()
		assert.Equal(t, count > 1, o.several.used())
		got := fmt.Sprint(count, ": ", o.several.step(0).name)
		if count > 1 {
			got += ", " + o.several.step(1).name
		}
		assert.Equal(t, names, got)
	}
}
