// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// pace is how long a turn takes.
type pace struct {
	warmup, measured time.Duration
	hooks            time.Duration // what hooks cost is measured after measured, for this long
}

// turn is what one run of a variant cost.
type turn struct {
	share        float64       // CPU time by elapsed time, 1 is a CPU
	user, system float64       // the same, by ticks
	outside      float64       // the same, of processes that run its hooks
	programs     []program     // of BPF
	watched      time.Duration // time in which programs were measured
	memory       memory
	scraped      int64   // bytes of the last answer
	kept         float64 // windows of those that there should have been
	first        emission
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
		return t, t.measureStart(p, emitted)
	}
	if v.scrape != "" {
		s := startScraper(v.scrape)
		defer func() { t.scraped = s.stop() }()
	}
	if err := awaitScans(v, p); err != nil {
		return t, err
	}
	if err := p.wait(pace.warmup); err != nil {
		return t, err
	}
	return t, t.measureRunning(v, p, pace, price)
}

// firstEmission is what a line of the debug exporter has.
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
	scansBefore, err := readScans(v)
	if err != nil {
		return err
	}
	elapsed, err := t.measureCPU(p, pace.measured)
	if err != nil {
		return err
	}
	scans, err := readScans(v)
	if err != nil {
		return err
	}
	t.kept = (scans - scansBefore) * v.window.Seconds() / elapsed
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

// awaitScans waits until a collector with windows tells of scans, which it does late where all CPUs are busy.
func awaitScans(v variant, p *process) error {
	for deadline := time.Now().Add(2 * time.Minute); ; {
		_, err := readScans(v)
		if err == nil || time.Now().After(deadline) {
			return err
		}
		if err := p.wait(time.Second); err != nil {
			return err
		}
	}
}

// readScans returns the number of scans that a collector with windows has made, by its own metrics.
func readScans(v variant) (float64, error) {
	if v.window == 0 {
		return 0, nil
	}
	client := http.Client{Timeout: 10 * time.Second}
	r, err := client.Get("http://" + telemetryAddress + "/metrics") //nolint:noctx // it has a timeout
	if err != nil {
		return 0, err
	}
	defer r.Body.Close() //nolint:errcheck // only read
	b, err := io.ReadAll(r.Body)
	if err != nil {
		return 0, err
	}
	return parseScans(string(b))
}

// parseScans parses the number of scans in the collector's metrics, as Prometheus' text.
func parseScans(text string) (float64, error) {
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "otelcol_receiver_energy_scan_duration_count{") {
			return strconv.ParseFloat(line[strings.LastIndexByte(line, ' ')+1:len(line)-1], 64)
		}
	}
	return 0, errors.New("the collector tells no number of scans")
}

// measureCPU measures the CPU time of some time, and returns the seconds that elapsed.
func (t *turn) measureCPU(p *process, measured time.Duration) (elapsed float64, err error) {
	const ticksOfASecond = 100 // USER_HZ
	pid := p.cmd.Process.Pid
	usedBefore, err := cpuTime(pid)
	if err != nil {
		return 0, err
	}
	started := time.Now()
	ticksBefore, err := readTicks(pid)
	if err != nil {
		return 0, err
	}
	if err := p.wait(measured); err != nil {
		return 0, err
	}
	used, err := cpuTime(pid)
	if err != nil {
		return 0, err
	}
	elapsed = time.Since(started).Seconds()
	ticks, err := readTicks(pid)
	t.share = (used - usedBefore).Seconds() / elapsed
	t.user = (ticks.user - ticksBefore.user) / ticksOfASecond / elapsed
	t.system = (ticks.system - ticksBefore.system) / ticksOfASecond / elapsed
	return elapsed, err
}

func (t *turn) measureMemory(pid int) (err error) {
	if t.memory, err = readMemory(pid); err != nil {
		return err
	}
	held, err := readBPF(pid)
	t.memory.bpf = held.memory
	return err
}
