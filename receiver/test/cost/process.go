// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// process is a started program, in a process group of its own.
type process struct {
	cmd     *exec.Cmd
	started time.Time
	output  *tail
	exited  chan struct{}
	err     error // of Wait, once exited is closed
}

// startProcess starts a program. It closes firstLine at the first output line that contains text.
func startProcess(command []string, text string) (p *process, firstLine <-chan struct{}, err error) {
	found := make(chan struct{})
	p = &process{cmd: exec.Command(command[0], command[1:]...), output: &tail{}, exited: make(chan struct{})}
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	r, w, err := os.Pipe()
	if err != nil {
		return nil, nil, err
	}
	p.cmd.Stdout, p.cmd.Stderr = w, w
	p.started = time.Now()
	err = errors.Join(p.cmd.Start(), w.Close())
	if err != nil {
		return nil, nil, errors.Join(err, r.Close())
	}
	go func() {
		defer r.Close() //nolint:errcheck // it was read to its end
		p.output.copy(r, text, found)
		p.err = p.cmd.Wait()
		close(p.exited)
	}()
	return p, found, nil
}

// interrupted is closed when this program receives SIGINT or SIGTERM. The program then ends the
// processes that it started, and removes its cgroups.
var interrupted = make(chan struct{})

// wait waits for a time. It fails if the process exits earlier or this program is interrupted.
func (p *process) wait(d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-interrupted:
		return errors.New("interrupted")
	case <-p.exited:
		return fmt.Errorf("%s exited too early (%w): %s", p.cmd.Path, p.err, p.output)
	}
}

// stop interrupts the process and waits for its exit. It kills the process after 20 s.
func (p *process) stop() error {
	_ = p.cmd.Process.Signal(os.Interrupt)
	select {
	case <-p.exited:
	case <-time.After(20 * time.Second):
		_ = p.cmd.Process.Kill()
		<-p.exited
		return fmt.Errorf("%s did not end when it was interrupted: %s", p.cmd.Path, p.output)
	}
	var exit *exec.ExitError
	if errors.As(p.err, &exit) {
		// The signal ends a program that does not handle it. Others may report it in their exit
		// status.
		if status := exit.Sys().(syscall.WaitStatus); status.Signal() == syscall.SIGINT || status.ExitStatus() == 128+int(syscall.SIGINT) {
			return nil
		}
	}
	if p.err != nil {
		return fmt.Errorf("%s: %w: %s", p.cmd.Path, p.err, p.output)
	}
	return nil
}

// tail keeps the last lines of an output.
type tail struct {
	mu    sync.Mutex
	lines []string
}

// copy reads lines until the end. It closes found at the first line that contains text.
func (t *tail) copy(r io.Reader, text string, found chan struct{}) {
	const kept = 20
	lines := bufio.NewReader(r)
	for seen := false; ; {
		line, err := lines.ReadString('\n')
		if !seen && text != "" && strings.Contains(line, text) {
			seen = true
			close(found)
		}
		t.mu.Lock()
		t.lines = append(t.lines, line)
		t.lines = t.lines[max(0, len(t.lines)-kept):]
		t.mu.Unlock()
		if err != nil {
			return
		}
	}
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return strings.Join(t.lines, "")
}

// cpuTime returns the CPU time of all threads of a process since its start, including exited
// threads.
func cpuTime(pid int) (time.Duration, error) {
	const allThreads = 2                         // CPUCLOCK_SCHED, without CPUCLOCK_PERTHREAD_MASK
	clock := int32(^uint32(pid)<<3 | allThreads) // as clock_getcpuclockid(3)
	var t unix.Timespec
	if err := unix.ClockGettime(clock, &t); err != nil {
		return 0, fmt.Errorf("CPU time of process %d: %w", pid, err)
	}
	return time.Duration(t.Nano()), nil
}

// ticks is a process's CPU time in user and in kernel mode by /proc/<pid>/stat, in units of 10 ms.
type ticks struct{ user, system float64 }

func readTicks(pid int) (ticks, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return ticks{}, err
	}
	return parseTicks(b)
}

// parseTicks parses /proc/<pid>/stat, proc_pid_stat(5).
func parseTicks(b []byte) (ticks, error) {
	const userTime, systemTime = 14 - 3, 15 - 3 // indexes after the name, field 2
	fields := bytes.Fields(b[bytes.LastIndexByte(b, ')')+1:])
	if len(fields) <= systemTime {
		return ticks{}, fmt.Errorf("/proc/<pid>/stat is too short: %q", b)
	}
	user, err := strconv.ParseFloat(string(fields[userTime]), 64)
	if err != nil {
		return ticks{}, err
	}
	system, err := strconv.ParseFloat(string(fields[systemTime]), 64)
	return ticks{user, system}, err
}

// memory is the memory of a process, in bytes.
type memory struct {
	resident, anonymous float64 // by /proc/<pid>/smaps_rollup; the rest of resident is of files
	bpf                 float64 // kernel memory of BPF programs and maps that the process has open
}

func (m memory) file() float64 { return m.resident - m.anonymous }

func readMemory(pid int) (memory, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
	if err != nil {
		return memory{}, err
	}
	return parseRollup(string(b))
}

// parseRollup parses /proc/<pid>/smaps_rollup, with lines like "Rss:   1234 kB".
func parseRollup(text string) (m memory, err error) {
	for line := range strings.Lines(text) {
		name, value, ok := strings.Cut(line, ":")
		if !ok {
			continue
		}
		switch name {
		case "Rss":
			m.resident, err = parseKB(value)
		case "Anonymous":
			m.anonymous, err = parseKB(value)
		}
		if err != nil {
			return memory{}, err
		}
	}
	if m.resident == 0 {
		return memory{}, fmt.Errorf("smaps_rollup has no Rss: %q", text)
	}
	return m, nil
}

func parseKB(value string) (float64, error) {
	n, ok := strings.CutSuffix(strings.TrimSpace(value), " kB")
	if !ok {
		return 0, fmt.Errorf("%q is not in kB", value)
	}
	kB, err := strconv.ParseFloat(n, 64)
	return kB * 1024, err
}
