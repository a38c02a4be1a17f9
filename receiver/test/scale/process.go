// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/energyreceiver/energyreceiver/receiver/test/series"
)

// process is a program whose cost is measured, also across restarts.
type process struct {
	*series.Program
	url string // answers once the program is ready

	spent    usage // of its former processes
	baseline usage
}

// usage is the resource usage of a program.
type usage struct {
	cpu      time.Duration
	in, out  int64 // bytes that it read and wrote, of files and connections
	resident int64 // maximum in bytes
}

func (u *usage) add(o usage) {
	u.cpu, u.in, u.out, u.resident = u.cpu+o.cpu, u.in+o.in, u.out+o.out, max(u.resident, o.resident)
}

// kill ends the program with SIGKILL.
func (p *process) kill() {
	p.spent = p.total()
	p.End(unix.SIGKILL)
}

func (p *process) begin() { p.baseline = p.total() }

// used returns the usage since begin. The memory is the maximum since the start.
func (p *process) used() usage {
	u := p.total()
	u.cpu, u.in, u.out = u.cpu-p.baseline.cpu, u.in-p.baseline.in, u.out-p.baseline.out
	return u
}

func (p *process) total() usage {
	u := p.spent
	if pid := p.PID(); pid > 0 {
		u.add(usageOf(pid))
	}
	return u
}

// usageOf returns the usage of a process, 0 after its end.
func usageOf(pid int) (u usage) {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	_, after, _ := strings.Cut(string(text), ") ")
	if fields := strings.Fields(after); len(fields) > 12 {
		const userTime, systemTime = 11, 12 // after the name, proc_pid_stat(5)
		for _, i := range []int{userTime, systemTime} {
			ticks, _ := strconv.ParseInt(fields[i], 10, 64)
			u.cpu += time.Duration(ticks) * 10 * time.Millisecond
		}
	}
	u.resident = procField(pid, "status", "VmHWM:") << 10
	u.in, u.out = procField(pid, "io", "rchar:"), procField(pid, "io", "wchar:")
	return u
}

// procField returns a number of a file in /proc, 0 if it is missing.
func procField(pid int, file, name string) int64 {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/%s", pid, file))
	for line := range strings.Lines(string(text)) {
		if value, ok := strings.CutPrefix(line, name); ok {
			n, _ := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(value), "kB")), 10, 64)
			return n
		}
	}
	return 0
}
