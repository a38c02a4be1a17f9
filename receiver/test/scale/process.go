// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"time"

	"github.com/prometheus/procfs"
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
func usageOf(pid int) usage {
	p, err := procfs.NewProc(pid)
	if err != nil {
		return usage{}
	}
	stat, _ := p.Stat() // an error leaves 0, also below
	status, _ := p.NewStatus()
	io, _ := p.IO()
	return usage{time.Duration(stat.CPUTime() * float64(time.Second)), int64(io.RChar), int64(io.WChar), int64(status.VmHWM)}
}
