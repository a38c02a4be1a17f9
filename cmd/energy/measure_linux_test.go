// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// measured runs energy measure and returns its exit status, standard output and standard error.
func measured(t *testing.T, args ...string) (status int, stdout, stderr string) {
	t.Helper()
	return measuredUntil(t.Context(), t, args...)
}

// measuredUntil is measured with a context. The command has an input that is not empty.
func measuredUntil(ctx context.Context, t *testing.T, args ...string) (status int, stdout, stderr string) {
	t.Helper()
	o, err := parsed[measureOptions](args)
	require.NoError(t, err)
	out, errs := filepath.Join(t.TempDir(), "stdout"), filepath.Join(t.TempDir(), "stderr")
	for to, open := range map[**os.File]func() (*os.File, error){
		&o.Stdin:  func() (*os.File, error) { return os.Open("/proc/self/stat") },
		&o.Stdout: func() (*os.File, error) { return os.Create(out) },
		&o.Stderr: func() (*os.File, error) { return os.Create(errs) },
	} {
		f, err := open()
		require.NoError(t, err)
		t.Cleanup(func() { _ = f.Close() })
		*to = f
	}
	status = o.run(ctx)
	return status, read(t, out), read(t, errs)
}

func TestASignalBeforeTheStartIsTheExitStatus(t *testing.T) {
	for _, s := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP} {
		ctx, stop := untilSignal()
		require.NoError(t, syscall.Kill(os.Getpid(), s))
		<-ctx.Done()
		stop()
		started := filepath.Join(t.TempDir(), "started")
		o, err := parsed[measureOptions]([]string{"touch", started})
		require.NoError(t, err)
		assert.Equal(t, 128+int(s), o.run(ctx))
		assert.NoFileExists(t, started)
	}
}

func TestAReaderThatIsGoneDoesNotChangeTheExitStatus(t *testing.T) {
	out, in, err := os.Pipe()
	require.NoError(t, err)
	require.NoError(t, out.Close())
	measure := exec.Command(os.Args[0], "measure", "sh", "-c", "exit 4")
	measure.Env, measure.Stderr = append(os.Environ(), standIn+"=energy"), in
	var exit *exec.ExitError
	require.ErrorAs(t, measure.Run(), &exit)
	assert.Equal(t, 4, exit.ExitCode(), exit)
	assert.NoError(t, in.Close())
}

// model is a machine of 10 to 50 W.
const tenToFifty = "10-50"

func TestTheExitStatusOfMeasure(t *testing.T) {
	busy := "i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done; "
	for name, c := range map[string]struct {
		args   []string
		status int
		stderr string
	}{
		"the command's":         {[]string{"--quiet", "sh", "-c", "exit 7"}, 7, ""},
		"a signal":              {[]string{"--quiet", "sh", "-c", "kill -TERM $$"}, 143, ""},
		"not found":             {[]string{"--quiet", "no-such-program"}, 127, "no-such-program: command not found"},
		"one word":              {[]string{"--quiet", "sleep 0.1"}, 127, "sleep 0.1: command not found: the command and its arguments are separate words"},
		"not executable":        {[]string{"--quiet", "/etc"}, 126, "/etc: command cannot be executed"},
		"below the limit":       {[]string{"--quiet", "--model", tenToFifty, "--max-joules", "1e6", "true"}, 0, ""},
		"above the limit":       {[]string{"--quiet", "--model", tenToFifty, "--max-joules", "1e-6", "sh", "-c", busy}, 124, "more than the 0.000001 J of --max-joules"},
		"failed and above it":   {[]string{"--quiet", "--model", tenToFifty, "--max-joules", "1e-6", "sh", "-c", busy + "exit 5"}, 5, "more than"},
		"not written":           {[]string{"--quiet", "-o", "/dev/full", "true"}, 125, "the result is not written: write /dev/full: no space left"},
		"figures not lost":      {[]string{"--quiet", "-o", "/dev/full", "--model", tenToFifty, "true"}, 125, " (modeled) · "},
		"failed, not written":   {[]string{"--quiet", "-o", "/dev/full", "sh", "-c", "exit 6"}, 6, "the result is not written"},
		"no such config":        {[]string{"--config", "/no/such/file", "true"}, 125, "/no/such/file: no such file"},
		"no such model":         {[]string{"--model", "/no/such/file", "true"}, 125, "--model: "},
		"no such directory":     {[]string{"-o", "/no/such/directory/file", "true"}, 125, "no such file"},
		"no energy profile":     {[]string{"--profile", os.DevNull, "--base", "go.mod", "true"}, 125, "go.mod: "},
		"no earlier result":     {[]string{"--base", "go.mod", "true"}, 125, "go.mod: not a result of energy measure"},
		"no profiler":           {[]string{"--profile", os.DevNull, "--profiler", "/no/such/file", "true"}, 125, "the profiler did not start: "},
		"a model beyond reason": {[]string{"--model", "50-10", "true"}, 125, "max_power"},
	} {
		t.Run(name, func(t *testing.T) {
			status, stdout, stderr := measured(t, c.args...)
			assert.Equal(t, c.status, status, stderr)
			assert.Empty(t, stdout)
			if c.stderr == "" {
				assert.Empty(t, stderr)
			} else {
				assert.Contains(t, stderr, c.stderr)
			}
		})
	}
}

func TestTheCommandsOutputIsItsOwn(t *testing.T) {
	status, stdout, stderr := measured(t, "--model", tenToFifty, "sh", "-c", "echo out; echo err >&2")
	assert.Zero(t, status)
	assert.Equal(t, "out\n", stdout)
	assert.Regexp(t, `^err\n\n[^\n]+J (± \d+ % )?\(modeled\) · [^\n]+ ms · [^\n]+W\n$`, stderr)
}

func TestAResultHasThreeLinesUnlessMoreIsAskedFor(t *testing.T) {
	busy := []string{"sh", "-c", "i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done; sh -c 'i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done'; true"}
	_, _, stderr := measured(t, append([]string{"--model", "auto"}, busy...)...)
	lines := strings.Split(strings.TrimSpace(stderr), "\n")
	assert.Regexp(t, `^\S+ m?J ± \d+ % \(.*modeled\) · \S+ m?s · \S+ m?W$`, lines[0])
	assert.LessOrEqual(t, len(lines), 3)
}

func TestAResultIsComparedWithAnEarlierOne(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	busy := []string{"sh", "-c", "i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done"}
	status, stdout, stderr := measured(t, append([]string{"--model", tenToFifty, "--markdown", "--html", at("base.html"), "-o", at("second.html"), "-o", at("base.json"), "-o", at("base.md"), "-o", at("base.csv"), "-o", at("base")}, busy...)...)
	require.Zero(t, status, stderr)
	assert.Empty(t, stdout+stderr)
	for _, name := range []string{"base.md", "base"} {
		assert.True(t, strings.HasPrefix(read(t, at(name)), "|  | energy | power |"), name)
	}
	assert.True(t, strings.HasPrefix(read(t, at("base.csv")), "command,run,"))
	assert.Equal(t, read(t, at("base.html")), read(t, at("second.html")))
	status, stdout, stderr = measured(t, append([]string{"--model", tenToFifty, "--base", at("base.html"), "--runs", "2", "--markdown", "-o", "-"}, busy...)...)
	require.Zero(t, status, stderr)
	assert.Contains(t, stdout, "| **now/base** | **")
	assert.Contains(t, stdout, "than the base.")
	assert.Contains(t, stdout, "Energy is modeled from CPU time")
}

func TestStandardOutputHasTheResultAlone(t *testing.T) {
	_, stdout, stderr := measured(t, "--json", "-o", "-", "--model", tenToFifty, "echo", "hello")
	assert.Equal(t, "hello\n", stderr)
	var document map[string]any
	require.NoError(t, json.Unmarshal([]byte(stdout), &document))
	assert.Equal(t, []any{"echo", "hello"}, document["command"])
	_, stdout, _ = measured(t, "--html", "-", "--model", tenToFifty, "echo", "hello")
	assert.True(t, strings.HasPrefix(stdout, "<!doctype html>"), stdout)
}

func TestAFileHasTheResult(t *testing.T) {
	file := filepath.Join(t.TempDir(), "result.csv")
	require.NoError(t, os.WriteFile(file, bytes.Repeat([]byte("an earlier result\n"), 1000), 0o600))
	status, _, _ := measured(t, "--force", "-o", file, "no-such-program")
	assert.Equal(t, 127, status)
	assert.Len(t, read(t, file), 18_000, "an earlier result stays until there is a new one")
	_, stdout, stderr := measured(t, "--force", "--csv", "-o", file, "--model", tenToFifty, "true")
	assert.Empty(t, stdout+stderr)
	assert.True(t, strings.HasPrefix(read(t, file), "command,run,"))
	assert.NotContains(t, read(t, file), "earlier")
}

func TestTwoOutputsNeedTwoFiles(t *testing.T) {
	file := filepath.Join(t.TempDir(), "result")
	require.NoError(t, os.WriteFile(file, []byte("earlier"), 0o600))
	link := file + ".link"
	require.NoError(t, os.Symlink(file, link))
	status, _, stderr := measured(t, "--force", "-o", file, "--html", link, "true")
	assert.Equal(t, exitFailed, status)
	assert.Contains(t, stderr, "two outputs have the same file "+link)
	assert.Equal(t, "earlier", read(t, file))
	status, _, _ = measured(t, "-o", os.DevNull, "--html", os.DevNull, "true")
	assert.Zero(t, status, "a device is no file")
}

func TestFailedCommandsLeaveNoEmptyFiles(t *testing.T) {
	for name, args := range map[string][]string{
		"a command that is not found":       {"--html", "page", "-o", "result", "no-such-program"},
		"runs of a command that fails":      {"--html", "page", "-o", "result", "--runs", "2", "false"},
		"a profiler that does not start":    {"--html", "page", "-o", "result", "--profile", "profile", "--profiler", "/no/such/file", "true"},
		"a file that cannot be opened":      {"--html", "page", "-o", "result", "--profile", "no/such/directory", "true"},
		"a configuration that is not there": {"--html", "page", "-o", "result", "--config", "no/such/file", "true"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Chdir(t.TempDir())
			require.NoError(t, os.WriteFile("earlier", nil, 0o600))
			status, _, _ := measured(t, args...)
			assert.NotZero(t, status)
			files, err := filepath.Glob("*")
			require.NoError(t, err)
			assert.Equal(t, []string{"earlier"}, files)
		})
	}
}

func TestAConfigurationIsTaken(t *testing.T) {
	file := filepath.Join(t.TempDir(), "collector.yaml")
	require.NoError(t, os.WriteFile(file, []byte(`
receivers:
  otlp: {protocols: {grpc: {}}}
  energy:
    model: {idle_power: "${env:MEASURE_TEST_IDLE}", max_power: 50, zone: platform}
    zones: [platform]
    meters: {use: [], gpu: {extensions: [nvml]}}
exporters: {debug: {}}
service: {extensions: [nvml], pipelines: {metrics: {receivers: [energy], exporters: [debug]}}}
`), 0o600))
	t.Setenv("MEASURE_TEST_IDLE", "10")
	status, _, stderr := measured(t, "-v", "--config", file, "true")
	assert.Zero(t, status)
	assert.Contains(t, stderr, "platform  modeled")
	assert.Contains(t, stderr, "gpu::extensions is left out")
}

func TestRunsWithoutAMeterHaveNoJoules(t *testing.T) {
	file := filepath.Join(t.TempDir(), "config.yaml")
	require.NoError(t, os.WriteFile(file, []byte("{model: none, meters: {use: [powercap], powercap: {path: /nonexistent}}}\n"), 0o600))
	status, _, stderr := measured(t, "-v", "--config", file, "--runs", "2", "true")
	assert.Zero(t, status)
	assert.Contains(t, stderr, "energy measure: run 1 of 2: energy not available in ")
	assert.NotContains(t, stderr, " J ")
}

func TestMeasureFlagsThatAreRefused(t *testing.T) {
	for _, args := range [][]string{
		{}, {"--quiet", "-v", "true"}, {"--interval", "1ms", "true"}, {"--baseline", "-1s", "true"}, {"--wait", "-1s", "true"}, {"--max-joules", "-1", "true"},
		{"--max-joules", "NaN", "true"}, {"--max-joules", "1e30", "true"}, {"--json", "--csv", "true"}, {"--receiver", "energy", "true"}, {"-nonsense"},
		{"--node", "--runs", "2", "true"}, {"--node", "--vs", "true", "true"},
		{"--by", "node", "true"}, {"--by", "container", "true"}, {"--by", "program", "--runs", "2", "true"}, {"--markdown", "--json", "true"},
		{"--runs", "-1", "true"}, {"--runs", "0", "true"}, {"--vs", "true", "--runs", "0", "true"}, {"--warmup", "-1", "true"},
		{"--vs", " ", "true"}, {"--vs", "true"}, {"--vs", "true", "--base", "r.json", "true"}, {"--profile", "f", "--vs", "true", "true"},
		{"--max-ratio", "1.1", "true"}, {"--max-ratio", "0.9", "--vs", "true", "true"}, {"--max-ratio", "Inf", "--vs", "true", "true"},
		{"--max-ratio", "1.1", "--vs", "true", "--runs", "1", "true"},
		{"--grid", "Atlantis", "true"}, {"--grid", "-1", "true"}, {"--price", "free", "true"}, {"--price", "Inf", "true"}, {"--currency", "EUR", "true"},
	} {
		_, err := parsed[measureOptions](args)
		require.Error(t, err, args)
		assert.Equal(t, exitFailed, exitCode(append([]string{"measure"}, args...)), args)
	}
}

func TestFlagsAfterTheCommandAreItsOwn(t *testing.T) {
	o, err := parsed[measureOptions]([]string{"--quiet", "--", "make", "-q", "--json"})
	require.NoError(t, err)
	assert.Equal(t, []string{"make", "-q", "--json"}, o.Command)
	assert.False(t, o.json)
}

func TestTheGridIsAPlaceOrANumber(t *testing.T) {
	for text, want := range map[string]float64{"230": 230, "0": 0, "fr": 56.04} {
		o, err := parsed[measureOptions]([]string{"--grid", text, "--price", "0.3", "true"})
		require.NoError(t, err, text)
		assert.InDelta(t, want, *o.rates.Grams, 0.5, text)
		assert.InDelta(t, 0.3, *o.rates.Price, 0)
	}
}
