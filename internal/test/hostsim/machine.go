// SPDX-License-Identifier: Apache-2.0

package hostsim

import (
	"fmt"
	"time"
)

// Machine is a simulated computer with the true energy of each task. It has sockets with a power
// curve, and tasks that run on the sockets. Host renders the machine as a kernel would. Time passes
// in steps, and the same calls give the same machine. A socket shows its clock rate unless it is
// the nominal one.
//
// The physics: a socket's load is the CPU time of its tasks divided by the CPU time of its CPUs.
// Each CPU second is weighted by the task's Intensity and by the third power of the clock rate
// (dynamic power is proportional to f·V², and V to f). The package draws its power at rest (Idle,
// Drift and Leakage) plus the difference between Curve at the load and at Curve's first point. DRAM
// draws its own Idle plus the Memory watts of each running task. The running tasks cause the power
// above rest in proportion to their weights. Without Uncore, a socket's energy is the sum of its
// idle energy, its tasks' energy and its interrupts' energy.
//
// On a socket with two threads per core or with pinned tasks, each task runs on certain CPUs; see
// cores. While both threads of a core are busy, each has half of Socket.Siblings as its weight. The
// socket's load is then the sum of all weights divided by the weight of a socket with all CPUs
// busy.
type Machine struct {
	Host    *Host
	Sockets []*Socket
	// Platform is the power of everything but the sockets, in W. Only the psys zone counts it.
	Platform float64
	// Uncore is additional power of each package while a task runs on any CPU of the machine, in W.
	// The running tasks cause it in proportion to their CPU time.
	Uncore float64
	// PMU counts the hardware events of tasks, if it is not nil.
	PMU *PMU
	// GPUs are the machine's cards; see AddGPU.
	GPUs []*GPU
	// Tasks are the live tasks, oldest first.
	Tasks []*Task
	// Steal, IOWait and IRQ are parts of all CPU time, 0 to 1. Interrupts are busy time without a
	// task. They draw power as a task of Intensity 1 would.
	Steal, IOWait, IRQ float64

	// Hidden holds the CPU times of offline CPUs, which /proc/stat omits.
	Hidden CPU

	clocks       cpuClocks
	byPID        map[int]*Task
	cgroups      map[string]*cgroup
	lastCgroup   uint64
	nextPID      int
	maxPID       int
	psys         *Zone
	psysFraction float64
	registers    []*register
	library      *Library
	ended        func(*Task)   // called with each task that its parent has waited for
	created      func(*cgroup) // called with each new cgroup
	applied      func()        // called after each event of a Life
}

// cpuClocks are the CPU times of the machine by state, in ns.
type cpuClocks struct {
	user, system, idle, ioWait, irq, steal time.Duration
}

// each divides the times evenly among n CPUs.
func (c *cpuClocks) each(cpus int) CPU {
	part := func(d time.Duration) int64 { return int64(d / time.Duration(cpus) / Tick) }
	return CPU{
		User: part(c.user), System: part(c.system), Idle: part(c.idle), IOWait: part(c.ioWait), IRQ: part(c.irq), Steal: part(c.steal),
	}
}

// NewMachine returns a machine that booted 1,000 s ago and runs only init. Its zones are
// package-<n>, each with core and dram below it. It is rendered below root.
func NewMachine(root string, sockets ...*Socket) *Machine {
	m := &Machine{Host: New(root), Sockets: sockets, byPID: map[int]*Task{}, cgroups: map[string]*cgroup{}, nextPID: 2, maxPID: 32768}
	m.Host.Cached = true
	m.Host.CPUs, m.Host.Topology = 0, nil
	m.Host.LastPID, m.Host.Created, m.Host.MaxPID = 1, 1, m.maxPID+1
	for i, s := range sockets {
		s.first = m.Host.CPUs
		m.Host.CPUs += s.CPUs
		s.clocks.idle = m.Host.Uptime * time.Duration(s.CPUs)
		if s.Threads > 1 {
			s.cores = newCores(s)
		}
		for cpu := range s.CPUs {
			m.Host.Topology = append(m.Host.Topology, Place{Package: i, Siblings: s.siblings(cpu)})
		}
		if s.Frequency != nil {
			s.clock = s.Frequency(0)
		}
		if s.Turbo != nil {
			s.clock = s.Turbo.One
		}
		id := fmt.Sprintf("intel-rapl:%d", i)
		s.Package = m.addZone(id, fmt.Sprintf("package-%d", i))
		s.Core = m.addZone(id+":0", "core")
		s.DRAM = m.addZone(id+":1", "dram")
	}
	m.clocks.idle = m.Host.Uptime * time.Duration(m.Host.CPUs)
	init := m.newTask(1, 0, "/init.scope")
	init.process = m.Host.Processes[1]
	return m
}

func (m *Machine) addZone(id, name string) *Zone {
	z := &Zone{Name: name, Max: 262_143_328_850}
	m.Host.Zones[id] = z
	return z
}

// AddPlatform adds a psys zone that counts all energy of the machine.
func (m *Machine) AddPlatform(watts float64) {
	m.Platform = watts
	m.psys = m.addZone(fmt.Sprintf("intel-rapl:%d", len(m.Sockets)), "psys")
}

// LimitPIDs sets the largest process ID. IDs are reused after it.
func (m *Machine) LimitPIDs(most int) { m.maxPID, m.Host.MaxPID = most, most+1 }

// Now returns the time since boot.
func (m *Machine) Now() time.Duration { return m.Host.Uptime }

// Init returns the first process, which adopts orphans.
func (m *Machine) Init() *Task { return m.Tasks[0] }

// Find returns the task with a process ID, or nil if there is no such task.
func (m *Machine) Find(pid int) *Task { return m.byPID[pid] }

// Step lets time pass. If the tasks of a socket demand more CPUs than it has, they share the CPUs
// in proportion to demand.
func (m *Machine) Step(d time.Duration) {
	seconds := d.Seconds()
	have := max(1-m.Steal-m.IRQ, 0)
	for _, s := range m.Sockets {
		s.demand, s.weight, s.memory, s.ran = 0, 0, 0, 0
	}
	for _, t := range m.Tasks {
		s := m.Sockets[t.Socket]
		s.demand += t.Demand
		if t.pin >= 0 && s.cores == nil {
			s.cores = newCores(s)
		}
	}
	for _, s := range m.Sockets {
		capacity := float64(s.CPUs) * have
		s.rate = 1
		if s.demand > capacity {
			s.rate = capacity / s.demand
		}
	}
	m.place(have)
	for _, t := range m.Tasks {
		if t.Demand > 0 {
			s := m.Sockets[t.Socket]
			if s.cores == nil {
				t.run = t.Demand * s.rate
				t.weight = t.run
			}
			s.weight += t.weight * t.Intensity
			m.Sockets[t.memorySocket()].memory += t.run * t.Memory
		}
	}
	all := m.stepUncore(seconds)
	var ran time.Duration
	for _, s := range m.Sockets {
		all += s.step(m.Now(), seconds, m.IRQ)
	}
	for _, t := range m.Tasks {
		if t.Demand > 0 {
			s := m.Sockets[t.Socket]
			t.step(s, seconds)
			if m.PMU != nil {
				m.PMU.count(t, s, m.Now(), seconds)
			}
			if s.cores == nil {
				s.ran += t.use(s.first+t.PID%s.CPUs, t.run*seconds)
			}
		}
	}
	online := m.Host.CPUs
	for _, s := range m.Sockets {
		if s.cores != nil {
			s.ran = s.cores.use(seconds)
			s.cores.account(m, d)
		}
		ran += s.ran
		m.account(&s.clocks, min(s.CPUs, online), d, s.ran)
		online -= min(s.CPUs, online)
	}
	m.account(&m.clocks, m.Host.CPUs, d, ran)
	for _, g := range m.GPUs {
		all += g.step(d)
	}
	if m.psys != nil {
		m.psysFraction = m.psys.count(all + m.Platform*seconds*joule + m.psysFraction)
	}
	for _, r := range m.registers {
		r.step(m.Now() + d)
	}
	m.Host.Uptime += d
	if m.library != nil {
		m.library.step()
	}
}

// stepUncore adds the energy of Uncore in a step to all packages and to the running tasks, and
// returns it, in µJ.
func (m *Machine) stepUncore(seconds float64) float64 {
	if m.Uncore == 0 {
		return 0
	}
	run := 0.0
	for _, t := range m.Tasks {
		if t.Demand > 0 {
			run += t.run
		}
	}
	if run == 0 {
		return 0
	}
	each := m.Uncore * min(run, 1) * seconds * joule
	for _, s := range m.Sockets {
		s.Energy.Package += each
		s.fraction.Package += each
	}
	all := each * float64(len(m.Sockets))
	for _, t := range m.Tasks {
		if t.Demand > 0 {
			t.Energy.Package += all * t.run / run
		}
	}
	return all
}

// account adds the CPU times of cpus CPUs in a step of length d. Tasks used the CPU time ran.
func (m *Machine) account(c *cpuClocks, cpus int, d, ran time.Duration) {
	all := d * time.Duration(cpus)
	part := func(share float64) time.Duration { return time.Duration(share * float64(all)) }
	irq, steal := part(m.IRQ), part(m.Steal)
	rest := max(all-ran-irq-steal, 0)
	ioWait := min(part(m.IOWait), rest)
	c.system += ran / 4
	c.user += ran - ran/4
	c.irq += irq
	c.steal += steal
	c.ioWait += ioWait
	c.idle += rest - ioWait
}

// Ran returns the CPU time of all tasks that ever existed.
func (m *Machine) Ran() time.Duration { return m.clocks.user + m.clocks.system }
