// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"
)

// heldBPF holds the BPF objects of a process, by its descriptors.
type heldBPF struct {
	programs map[ebpf.ProgramID]bool // by program: whether other processes run it (a hook)
	memory   float64                 // bytes of its programs and maps
}

// readBPF reads the BPF objects of a process from /proc/<pid>/fdinfo.
func readBPF(pid int) (h heldBPF, err error) {
	h.programs = map[ebpf.ProgramID]bool{}
	dir := fmt.Sprintf("/proc/%d/fdinfo", pid)
	descriptors, err := os.ReadDir(dir)
	if err != nil {
		return h, err
	}
	for _, d := range descriptors {
		b, err := os.ReadFile(filepath.Join(dir, d.Name()))
		if errors.Is(err, os.ErrNotExist) {
			continue // closed in the meantime
		}
		if err != nil {
			return h, err
		}
		if err := h.add(parseFdinfo(string(b))); err != nil {
			return h, err
		}
	}
	return h, nil
}

// add adds a descriptor. Links to tracepoints and functions are hooks. Iterators are not: they run
// within the process's own reads.
func (h *heldBPF) add(info map[string]string) error {
	if memlock, ok := info["memlock"]; ok {
		n, err := strconv.ParseFloat(memlock, 64)
		if err != nil {
			return err
		}
		h.memory += n
	}
	text, ok := info["prog_id"]
	if !ok {
		return nil
	}
	id, err := strconv.ParseUint(text, 10, 32)
	if err != nil {
		return err
	}
	isHook := slices.Contains([]string{"tracing", "raw_tracepoint", "perf_event", "perf", "kprobe_multi"}, info["link_type"])
	h.programs[ebpf.ProgramID(id)] = isHook || h.programs[ebpf.ProgramID(id)]
	return nil
}

// parseFdinfo parses lines of a name, a colon and a value.
func parseFdinfo(text string) map[string]string {
	info := map[string]string{}
	for line := range strings.Lines(text) {
		if name, value, ok := strings.Cut(line, ":"); ok {
			info[name] = strings.TrimSpace(value)
		}
	}
	return info
}

// program is the cost of the calls of a BPF program during an interval.
type program struct {
	name  string
	hook  bool // other processes run it
	calls float64
	run   time.Duration // of all calls, as reported with kernel.bpf_stats_enabled
}

// price is the cost of a call of an attached program in addition to the program itself.
type price struct {
	call  time.Duration // of an empty program, by the CPU time of two threads that wake each other
	stats time.Duration // run time of an empty program in the kernel's statistics
}

// outside returns the CPU time of hooks in the processes that run them.
func (p price) outside(programs []program) (sum time.Duration) {
	for _, h := range programs {
		if !h.hook {
			continue
		}
		sum += max(0, h.run-time.Duration(h.calls)*p.stats) + time.Duration(h.calls)*p.call
	}
	return sum
}

// watchPrograms returns the run times of a process's BPF programs while wait waits. The kernel
// measures run times only during that call, because measuring takes CPU time itself.
func watchPrograms(pid int, wait func() error) (programs []program, elapsed time.Duration, err error) {
	held, err := readBPF(pid)
	if err != nil || len(held.programs) == 0 {
		return nil, 0, err
	}
	stats, err := ebpf.EnableStats(uint32(unix.BPF_STATS_RUN_TIME))
	if err != nil {
		return nil, 0, err
	}
	defer stats.Close() //nolint:errcheck // closing ends the statistics
	before, err := held.read()
	if err != nil {
		return nil, 0, err
	}
	started := time.Now()
	if err := wait(); err != nil {
		return nil, 0, err
	}
	after, err := held.read()
	if err != nil {
		return nil, 0, err
	}
	for _, id := range slices.Sorted(maps.Keys(after)) {
		p := after[id]
		p.calls, p.run = p.calls-before[id].calls, p.run-before[id].run
		programs = append(programs, p)
	}
	return programs, time.Since(started), nil
}

// read returns the calls and the run time of each program since its load. It leaves out unloaded
// programs.
func (h heldBPF) read() (programs map[ebpf.ProgramID]program, err error) {
	programs = map[ebpf.ProgramID]program{}
	for id, hook := range h.programs {
		p, err := readProgram(id)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		p.hook = hook
		programs[id] = p
	}
	return programs, nil
}

func readProgram(id ebpf.ProgramID) (p program, err error) {
	loaded, err := ebpf.NewProgramFromID(id)
	if err != nil {
		return p, err
	}
	defer loaded.Close() //nolint:errcheck // only its figures are read
	info, err := loaded.Info()
	if err != nil {
		return p, err
	}
	stats, err := loaded.Stats()
	if err != nil {
		return p, err
	}
	return program{name: info.Name, calls: float64(stats.RunCount), run: stats.Runtime}, nil
}

// priceOfCalls measures an empty program at sched_switch.
func priceOfCalls() (p price, err error) {
	empty, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Name: "empty", Type: ebpf.Tracing, AttachType: ebpf.AttachTraceRawTp, AttachTo: "sched_switch",
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 0), asm.Return()}, License: "GPL",
	})
	if err != nil {
		return p, err
	}
	defer empty.Close() //nolint:errcheck // it is empty
	const rounds, turns = 5_000, 40
	var added []float64
	for range turns {
		bare, err := switches(rounds)
		if err != nil {
			return p, err
		}
		hooked, err := attached(empty, func() (time.Duration, error) { return switches(rounds) })
		if err != nil {
			return p, err
		}
		added = append(added, (hooked - bare).Seconds())
	}
	p.call = max(0, time.Duration(spreadOf(added).median*1e9))
	p.stats, err = priceOfStats(empty, rounds)
	return p, err
}

// priceOfStats returns the run time of a call of an empty program in the kernel's statistics.
func priceOfStats(empty *ebpf.Program, rounds int) (time.Duration, error) {
	stats, err := ebpf.EnableStats(uint32(unix.BPF_STATS_RUN_TIME))
	if err != nil {
		return 0, err
	}
	defer stats.Close() //nolint:errcheck // closing ends the statistics
	if _, err := attached(empty, func() (time.Duration, error) { return switches(rounds) }); err != nil {
		return 0, err
	}
	s, err := empty.Stats()
	if err != nil || s.RunCount == 0 {
		return 0, errors.Join(err, errors.New("the kernel has no statistics for BPF programs"))
	}
	return s.Runtime / time.Duration(s.RunCount), nil
}

func attached(p *ebpf.Program, f func() (time.Duration, error)) (time.Duration, error) {
	l, err := link.AttachTracing(link.TracingOptions{Program: p})
	if err != nil {
		return 0, err
	}
	defer l.Close() //nolint:errcheck // the program is detached anyway
	return f()
}

// switches makes two threads of one CPU wake each other, and returns their CPU time per switch.
func switches(rounds int) (time.Duration, error) {
	var there, back [2]int
	if err := errors.Join(unix.Pipe(there[:]), unix.Pipe(back[:])); err != nil {
		return 0, err
	}
	defer func() {
		for _, fd := range append(there[:], back[:]...) {
			_ = unix.Close(fd)
		}
	}()
	used := make(chan time.Duration)
	failed := make(chan error, 2)
	player := func(in, out int, serves bool) {
		runtime.LockOSThread() // never unlocked, so that the thread and its affinity end
		var set unix.CPUSet
		set.Set(0)
		err := unix.SchedSetaffinity(0, &set)
		before := threadTime()
		for i := 0; i < rounds && err == nil; i++ {
			err = exchange(in, out, serves)
		}
		failed <- err
		used <- threadTime() - before
	}
	go player(back[0], there[1], true)
	go player(there[0], back[1], false)
	err := errors.Join(<-failed, <-failed)
	sum := <-used + <-used
	return sum / time.Duration(2*rounds), err
}

// exchange writes a byte and reads one, or reads before it writes if it serves.
func exchange(in, out int, serves bool) error {
	b := []byte{0}
	if serves {
		if _, err := unix.Write(out, b); err != nil {
			return err
		}
	}
	if _, err := unix.Read(in, b); err != nil || serves {
		return err
	}
	_, err := unix.Write(out, b)
	return err
}

func threadTime() time.Duration {
	var t unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t) // cannot fail with these arguments
	return time.Duration(t.Nano())
}
