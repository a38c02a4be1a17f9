// SPDX-License-Identifier: Apache-2.0

package hostsim

import (
	"os"
	"slices"
	"time"
)

// Show updates the Host to the state of the machine.
func (m *Machine) Show() {
	h, c := m.Host, &m.clocks
	off := m.Hidden
	h.CPU = CPU{
		User: int64(c.user/Tick) - off.User, System: int64(c.system/Tick) - off.System, Idle: int64(c.idle/Tick) - off.Idle,
		IOWait: int64(c.ioWait/Tick) - off.IOWait, IRQ: int64(c.irq/Tick) - off.IRQ, Steal: int64(c.steal/Tick) - off.Steal,
		Nice: h.CPU.Nice, SoftIRQ: h.CPU.SoftIRQ, Guest: h.CPU.Guest, GuestNice: h.CPU.GuestNice,
	}
	h.EachCPU = h.EachCPU[:0]
	if len(m.Sockets) > 1 || m.Sockets[0].cores != nil { // CPU lines only if CPUs differ
		for _, s := range m.Sockets {
			h.EachCPU = s.eachCPU(h.EachCPU)
		}
	}
	for _, t := range m.Tasks {
		p := t.process
		p.System = int64(t.Used / 4 / Tick)
		p.User = int64((t.Used - t.Used/4) / Tick)
		p.Fraction = t.Used + t.stirred - time.Duration(p.User+p.System)*Tick
		p.CSystem = int64(t.Waited / 4 / Tick)
		p.CUser = int64((t.Waited - t.Waited/4) / Tick)
		p.Cgroup = t.group.text
		p.Resident, p.LastCPU = int64(t.Resident/page), m.cpuOf(t)
		p.Files = t.files()
	}
	m.showClocks()
	for _, g := range m.GPUs {
		g.show(h)
	}
	for path := range h.Memory {
		h.Memory[path] = 0
	}
	for _, nodes := range h.NodeMemory {
		clear(nodes)
	}
	for _, t := range m.Tasks {
		for g := t.group; g != nil && t.Resident > 0; g = g.up {
			h.Memory[g.path] += t.Resident
			m.chargeNode(g.path, t)
		}
	}
	clear(h.Cgroups)
	for path, g := range m.cgroups {
		h.Cgroups[path] += g.used + g.stirred
		for up := g.up; up != nil; up = up.up {
			h.Cgroups[up.path] += g.used + g.stirred
		}
	}
}

// page is the size of a memory page in bytes. nominal is the nominal clock rate in kHz.
var page = uint64(os.Getpagesize())

const nominal = 3_000_000

// cpuOf returns the task's last CPU: its own if it is pinned, otherwise one of its socket.
func (m *Machine) cpuOf(t *Task) int {
	s := m.Sockets[t.Socket]
	switch {
	case t.pin >= 0:
		return s.first + t.pin
	case s.cores != nil && len(t.slices) > 0:
		if cpu := t.slices[t.last].CPU; cpu >= s.first && cpu < s.first+s.CPUs {
			return cpu
		}
	}
	return s.first + t.PID%s.CPUs
}

// eachCPU appends the times of the socket's CPUs.
func (s *Socket) eachCPU(to []CPU) []CPU {
	if s.cores == nil {
		return append(to, slices.Repeat([]CPU{s.clocks.each(s.CPUs)}, s.CPUs)...)
	}
	for i := range s.cores.cpus {
		to = append(to, s.cores.cpus[i].clocks.each(1))
	}
	return to
}

// chargeNode charges a cgroup with a task's memory on a node. A machine with one socket has no
// nodes.
func (m *Machine) chargeNode(path string, t *Task) {
	if len(m.Sockets) < 2 {
		return
	}
	nodes := m.Host.NodeMemory[path]
	if nodes == nil {
		nodes = make([]uint64, len(m.Sockets))
		m.Host.NodeMemory[path] = nodes
	}
	nodes[t.memorySocket()] += t.Resident
}

func (m *Machine) showClocks() {
	for _, s := range m.Sockets {
		for cpu := range s.CPUs {
			if s.Frequency != nil || s.Turbo != nil {
				m.Host.Clocks[s.first+cpu] = int64(s.clock * nominal)
			}
		}
	}
}

// Render updates the Host and writes its trees.
func (m *Machine) Render() error {
	m.Show()
	return m.Host.Render()
}

// RenderSensors writes the sysfs files of the cards' drivers, for meters that read between two
// renders.
func (m *Machine) RenderSensors() error {
	for _, g := range m.GPUs {
		g.show(m.Host)
	}
	r := m.Host.renderer()
	m.Host.renderFiles(r)
	return r.err
}
