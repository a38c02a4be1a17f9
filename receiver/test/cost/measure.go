// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// pace is the timing of a turn.
type pace struct {
	warmup, measured time.Duration
	hooks            time.Duration // duration of the measurement of hooks, after measured
}

// turn holds the costs of one run of a variant.
type turn struct {
	share        float64       // CPU time by elapsed time, 1 is a CPU
	user, system float64       // CPU time in user and in system mode by elapsed time
	outside      float64       // the same, of other processes in its hooks
	wakeups      float64       // of its threads, per second
	programs     []program     // of BPF
	watched      time.Duration // duration of the measurement of programs
	memory       memory
	scraped      int64   // bytes of the last answer
	early        float64 // share in the first 20 s, if the variant sets warmup
	first        emission
}

// emission is a program's first emission.
type emission struct{ after, cpu time.Duration }

// all is the share of the process and its hooks.
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
		s := startScraper(v.scrape, v.scraped)
		defer func() { t.scraped = s.stop() }()
	}
	if v.warmup > 0 {
		pace.warmup = v.warmup
		if err := t.measureEarly(p); err != nil {
			return t, err
		}
	}
	if err := p.wait(pace.warmup); err != nil {
		return t, err
	}
	err = t.measureRunning(p, pace, price)
	return t, err
}

// measureEarly measures the CPU time of the first 20 s.
func (t *turn) measureEarly(p *process) error {
	const early = 20 * time.Second
	if err := p.wait(early - time.Since(p.started)); err != nil {
		return err
	}
	used, err := cpuTime(p.cmd.Process.Pid)
	t.early = used.Seconds() / time.Since(p.started).Seconds()
	return err
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
func (t *turn) measureRunning(p *process, pace pace, price price) error {
	if err := t.measureCPU(p, pace.measured); err != nil {
		return err
	}
	pid := p.cmd.Process.Pid
	err := t.measureMemory(pid)
	if err != nil || pace.hooks == 0 {
		return err
	}
	t.programs, t.watched, err = watchPrograms(pid, func() error { return p.wait(pace.hooks) })
	if t.watched > 0 {
		t.outside = price.outside(t.programs).Seconds() / t.watched.Seconds()
	}
	return err
}

// measureCPU measures the CPU time for the duration measured.
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

// readWakeups returns how often the threads of a process went to sleep and were woken. Exited
// threads do not count.
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
