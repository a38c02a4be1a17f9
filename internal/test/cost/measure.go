// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"errors"
	"time"
)

// pace is how long a turn takes.
type pace struct {
	warmup, measured time.Duration
	hooks            time.Duration // what hooks cost is measured after measured, for this long
}

// turn is what one run of a variant cost.
type turn struct {
	share        float64 // CPU time by elapsed time, 1 is a CPU
	user, system float64 // the same, by ticks
	outside      float64 // the same, of processes that run its hooks
	hooks        []hook
	hooksElapsed time.Duration
	memory       memory
	scraped      int64 // bytes of the last answer
}

// all is the share of the process itself and of its hooks.
func (t turn) all() float64 { return t.share + t.outside }

// takeTurn starts a variant, measures it after the warm-up, and stops it.
func takeTurn(v variant, pace pace, price price) (t turn, err error) {
	p, _, err := startProcess(v.command, "")
	if err != nil {
		return t, err
	}
	defer func() { err = errors.Join(err, p.stop()) }()
	if v.scrape != "" {
		s := startScraper(v.scrape)
		defer func() { t.scraped = s.stop() }()
	}
	if err := p.wait(pace.warmup); err != nil {
		return t, err
	}
	if err := t.measureCPU(p, pace.measured); err != nil {
		return t, err
	}
	if err := t.measureMemory(p.cmd.Process.Pid); err != nil || pace.hooks == 0 {
		return t, err
	}
	t.hooks, t.hooksElapsed, err = watchHooks(p.cmd.Process.Pid, func() error { return p.wait(pace.hooks) })
	if t.hooksElapsed > 0 {
		t.outside = price.outside(t.hooks).Seconds() / t.hooksElapsed.Seconds()
	}
	return t, err
}

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
	if err := p.wait(measured); err != nil {
		return err
	}
	used, err := cpuTime(pid)
	if err != nil {
		return err
	}
	elapsed := time.Since(started).Seconds()
	ticks, err := readTicks(pid)
	t.share = (used - usedBefore).Seconds() / elapsed
	t.user = (ticks.user - ticksBefore.user) / ticksOfASecond / elapsed
	t.system = (ticks.system - ticksBefore.system) / ticksOfASecond / elapsed
	return err
}

func (t *turn) measureMemory(pid int) (err error) {
	if t.memory, err = readMemory(pid); err != nil {
		return err
	}
	held, err := readBPF(pid)
	t.memory.bpf = held.memory
	return err
}
