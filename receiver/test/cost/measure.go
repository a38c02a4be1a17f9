// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// pace is how long a turn takes.
type pace struct {
	warmup, measured time.Duration
	hooks            time.Duration // what hooks cost is measured after measured, for this long
}

// turn holds the costs of one run of a variant.
type turn struct {
	share        float64       // CPU time by elapsed time, 1 is a CPU
	user, system float64       // the same, by ticks
	outside      float64       // the same, of processes that run its hooks
	wakeups      float64       // of its threads, per second
	programs     []program     // of BPF
	watched      time.Duration // time in which programs were measured
	memory       memory
	scraped      int64   // bytes of the last answer
	kept         float64 // windows of those that there should have been
	first        emission
	others       float64 // CPUs that other processes used, if that is measured
}

// emission is a program's first one.
type emission struct{ after, cpu time.Duration }

// all is the share of the process itself and of its hooks.
func (t turn) all() float64 { return t.share + t.outside }

// takeTurn starts a variant, measures it after the warm-up, and stops it.
func takeTurn(v variant, pace pace, price price) (t turn, err error) {
	p, emitted, err := startProcess(v.command, firstEmission)
	if err != nil {
		return t, err
	}
	defer func() { err = errors.Join(err, p.stop()) }()
	if v.starts {
		err = t.measureStart(p, emitted)
		return t, err
	}
	if v.scrape != "" {
		s := startScraper(v.scrape)
		defer func() { t.scraped = s.stop() }()
	}
	if err := awaitWindows(v, p); err != nil {
		return t, err
	}
	if err := p.wait(pace.warmup); err != nil {
		return t, err
	}
	err = t.measureRunning(v, p, pace, price)
	return t, err
}

// firstEmission is a substring of a line of the debug exporter.
const firstEmission = "\tMetrics\t"

func (t *turn) measureStart(p *process, emitted <-chan struct{}) (err error) {
	select {
	case <-emitted:
	case <-p.exited:
	case <-time.After(time.Minute):
		return fmt.Errorf("no emission within a minute: %s", p.output)
	}
	t.first.after = time.Since(p.started)
	t.first.cpu, err = cpuTime(p.cmd.Process.Pid)
	return err
}

// measureRunning measures a process that collects.
func (t *turn) measureRunning(v variant, p *process, pace pace, price price) error {
	before, began, err := readWindows(v)
	if err != nil {
		return err
	}
	if err := t.measureCPU(p, pace.measured); err != nil {
		return err
	}
	after, ended, err := readWindows(v)
	if err != nil {
		return err
	}
	t.kept = (after - before) * v.window.Seconds() / ended.Sub(began).Seconds()
	pid := p.cmd.Process.Pid
	if err := t.measureMemory(pid); err != nil || pace.hooks == 0 {
		return err
	}
	t.programs, t.watched, err = watchPrograms(pid, func() error { return p.wait(pace.hooks) })
	if t.watched > 0 {
		t.outside = price.outside(t.programs).Seconds() / t.watched.Seconds()
	}
	return err
}

// awaitWindows waits until a collector with windows reports them, which is late if all CPUs are
// busy.
func awaitWindows(v variant, p *process) error {
	for deadline := time.Now().Add(2 * time.Minute); ; {
		_, _, err := readWindows(v)
		if err == nil || time.Now().After(deadline) {
			return err
		}
		if err := p.wait(time.Second); err != nil {
			return err
		}
	}
}

// readWindows returns the number of windows that a collector has kept according to its own metrics,
// and the time of that report.
func readWindows(v variant) (kept float64, at time.Time, err error) {
	if v.window == 0 {
		return 0, time.Now(), nil
	}
	client := http.Client{Timeout: 10 * time.Second}
	r, err := client.Get("http://" + telemetryAddress + "/metrics") //nolint:noctx // it has a timeout
	if err != nil {
		return 0, at, err
	}
	defer r.Body.Close() //nolint:errcheck // only read
	b, err := io.ReadAll(r.Body)
	if err != nil {
		return 0, at, err
	}
	at = time.Now()
	kept, err = parseWindows(string(b))
	return kept, at, err
}

// parseWindows parses the number of windows that ended, less those that were skipped, in the
// collector's metrics, as Prometheus' text.
func parseWindows(text string) (kept float64, err error) {
	var found int
	for line := range strings.Lines(text) {
		name, rest, _ := strings.Cut(line, "{")
		sign, wanted := map[string]float64{"otelcol_receiver_energy_windows": 1, "otelcol_receiver_energy_skipped_windows": -1}[name]
		if !wanted {
			continue
		}
		n, err := strconv.ParseFloat(rest[strings.LastIndexByte(rest, ' ')+1:len(rest)-1], 64)
		if err != nil {
			return 0, err
		}
		kept += sign * n
		found++
	}
	if found != 2 {
		return 0, errors.New("the collector does not report its windows")
	}
	return kept, nil
}

// measureCPU measures the CPU time of some time.
func (t *turn) measureCPU(p *process, measured time.Duration) error {
	const ticksOfASecond = 100 // USER_HZ
	pid := p.cmd.Process.Pid
	usedBefore, err := cpuTime(pid)
	if err != nil {
		return err
	}
	started := time.Now()
	ticksBefore, err := readTicks(pid)
	if err != nil {
		return err
	}
	wakeupsBefore, err := readWakeups(pid)
	if err != nil {
		return err
	}
	if err := p.wait(measured); err != nil {
		return err
	}
	used, err := cpuTime(pid)
	if err != nil {
		return err
	}
	elapsed := time.Since(started).Seconds()
	wakeups, err := readWakeups(pid)
	if err != nil {
		return err
	}
	ticks, err := readTicks(pid)
	t.wakeups = (wakeups - wakeupsBefore) / elapsed
	t.share = (used - usedBefore).Seconds() / elapsed
	t.user = (ticks.user - ticksBefore.user) / ticksOfASecond / elapsed
	t.system = (ticks.system - ticksBefore.system) / ticksOfASecond / elapsed
	return err
}

// readWakeups returns how often the threads of a process went to sleep, and hence were woken. Exited threads do not
// count.
func readWakeups(pid int) (n float64, err error) {
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/status", pid))
	if err != nil {
		return 0, err
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ESRCH) {
			continue // the thread has exited
		}
		if err != nil {
			return 0, err
		}
		_, after, _ := strings.Cut(string(text), "\nvoluntary_ctxt_switches:")
		line, _, _ := strings.Cut(after, "\n")
		switches, err := strconv.ParseFloat(strings.TrimSpace(line), 64)
		if err != nil {
			return 0, fmt.Errorf("%s: %w", file, err)
		}
		n += switches
	}
	return n, nil
}

func (t *turn) measureMemory(pid int) (err error) {
	if t.memory, err = readMemory(pid); err != nil {
		return err
	}
	held, err := readBPF(pid)
	t.memory.bpf = held.memory
	return err
}
