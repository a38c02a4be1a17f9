// SPDX-License-Identifier: Apache-2.0

//go:build linux

package integration

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// patience is the time limit of every wait, for runs that went wrong.
const patience = 5 * time.Minute

// eventually waits until a condition holds, up to patience.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	within(t, patience, what, holds)
}

// within waits until a condition holds, for a limited time.
func within(t *testing.T, soon time.Duration, what string, holds func() bool) {
	t.Helper()
	for began := time.Now(); !holds(); time.Sleep(50 * time.Millisecond) {
		if time.Since(began) > soon {
			t.Fatalf("not within %v: %s", soon, what)
		}
	}
}

// collector is a collector that measures this machine.
type collector struct {
	out, log string // files
	ended    <-chan struct{}
	cmd      *exec.Cmd
}

// receiverConfig selects the model meter. Its power is constant, so the active energy and the
// energy per second of CPU time do not depend on other load. With N CPUs a CPU second is 100/N J.
// It is a little more if the kernel used CPU time outside processes, such as interrupts.
const receiverConfig = `
receivers:
  energy:
    collection_interval: 1s
    initial_delay: 0s
    meters: {use: []}
    model: {idle_power: 100, max_power: 100}
    zones: [package]
    cpu_time: SOURCE
    attribution: {preset: kepler}
    series: {processes: {group_by: pid, min_energy: 0, max: 0}}
    metrics:
      process.cpu.time: {enabled: true}
      container.cpu.time: {enabled: true}
`

const fileExporter = `
exporters:
  file:
    path: OUT
    flush_interval: 100ms
service:
  telemetry: {metrics: {level: none}, logs: {encoding: json}}
  pipelines:
    metrics: {receivers: [energy], exporters: [file]}
`

// startCollector starts a collector with a CPU time source and further settings of the receiver,
// and returns when it has its baseline.
func startCollector(t *testing.T, source string, settings ...string) *collector {
	t.Helper()
	config := strings.ReplaceAll(receiverConfig, "SOURCE", source)
	for _, setting := range settings {
		config += "    " + setting + "\n"
	}
	return runCollector(t, source, config+fileExporter)
}

// runCollector starts a collector with a configuration whose exporter writes to OUT, and returns
// when it has its baseline. Its output and its log are kept in build/integration/<test>.
func runCollector(t *testing.T, name, text string) *collector {
	t.Helper()
	return runCollectorOf(t, collectorBinary(t), name, text)
}

// runCollectorOf is runCollector with another collector binary.
func runCollectorOf(t *testing.T, binary, name, text string) *collector {
	t.Helper()
	dir := filepath.Join(cache(t), strings.ToLower(strings.NewReplacer("/", "-", "Test", "").Replace(t.Name())))
	require.NoError(t, os.MkdirAll(dir, 0o755))
	c := &collector{out: filepath.Join(dir, name+".json"), log: filepath.Join(dir, name+".log")}
	if err := os.Remove(c.out); err != nil {
		require.ErrorIs(t, err, os.ErrNotExist)
	}
	config := filepath.Join(t.TempDir(), name+".yaml")
	require.NoError(t, os.WriteFile(config, []byte(strings.ReplaceAll(text, "OUT", c.out)), 0o600))
	c.cmd = exec.Command(binary, "--config", config)
	c.ended = startDaemon(t, c.cmd, c.log)
	eventually(t, "the collector emits", func() bool { return c.hasEnded() || c.emissions() > 0 })
	return c
}

// startDaemon starts a program that runs until the test ends. The end of the test terminates it and
// waits for it.
func startDaemon(t *testing.T, cmd *exec.Cmd, logPath string) (ended <-chan struct{}) {
	t.Helper()
	log, err := os.Create(logPath)
	require.NoError(t, err)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: unix.SIGTERM}
	require.NoError(t, cmd.Start())
	done := make(chan struct{})
	go func() {
		_ = cmd.Wait() // the exit status is not tested
		_ = log.Close()
		close(done)
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Signal(unix.SIGTERM) // it may have ended
		select {
		case <-done:
		case <-time.After(patience):
			t.Errorf("%s did not end", cmd)
			_ = cmd.Process.Kill()
			<-done
		}
	})
	return done
}

func (c *collector) hasEnded() bool {
	select {
	case <-c.ended:
		return true
	default:
		return false
	}
}

// stop ends the collector, and returns after all output is written.
func (c *collector) stop(t *testing.T) {
	t.Helper()
	require.NoError(t, c.cmd.Process.Signal(unix.SIGTERM))
	<-c.ended
	require.Zero(t, c.cmd.ProcessState.ExitCode(), "exit code, the log is in %s", c.log)
}

func (c *collector) emissions() int {
	text, _ := os.ReadFile(c.out) // may not exist yet
	return bytes.Count(text, []byte("\n"))
}

// emits waits for more emissions.
func (c *collector) emits(t *testing.T, more int) {
	t.Helper()
	want := c.emissions() + more
	eventually(t, "the collector emits", func() bool {
		require.Falsef(t, c.hasEnded(), "the collector ended, its log is in %s", c.log)
		return c.emissions() >= want
	})
}

// lastLine returns the last line of a log.
func lastLine(path string) string {
	text, _ := os.ReadFile(path) // a missing log is empty
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	return lines[len(lines)-1]
}
