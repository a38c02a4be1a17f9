// SPDX-License-Identifier: Apache-2.0

package hostsim

import (
	"fmt"
	"math"
	"os"
	gopath "path"
	"slices"
	"time"

	"github.com/energyreceiver/energyreceiver/internal/power/model"
)

// Machine is a simulated computer that knows the true energy of each task. It has sockets with a power curve, and tasks
// that run on them. Host shows what a kernel would show of it. Time passes in steps, and the same calls give the same
// machine. A socket shows its clock rate unless that is the nominal one.
//
// The physics: a socket's load is the CPU time of its tasks over that of its CPUs, each CPU second weighted by the
// task's Intensity and by the third power of the clock rate (dynamic power goes with f·V², and V with f). The package
// draws Idle plus the difference between Curve at the load and at Curve's first point. DRAM draws its own Idle plus the
// Memory watts of each running task. The power above Idle is caused by the running tasks in proportion to their
// weights. A socket's energy is the sum of its idle energy, of its tasks' energy and of its interrupts' energy.
type Machine struct {
	Host    *Host
	Sockets []*Socket
	// Platform is the power of everything but the sockets, in W. Only the psys zone counts it.
	Platform float64
	// GPUs are the machine's cards; see AddGPU.
	GPUs []*GPU
	// Tasks are the live tasks, oldest first.
	Tasks []*Task
	// Steal, IOWait and IRQ are shares of all CPU time, 0 to 1. Interrupts are busy time without a task, and draw power
	// as a task of Intensity 1 would.
	Steal, IOWait, IRQ float64

	// Hidden is the CPU times of offline CPUs, which /proc/stat omits.
	Hidden CPU

	clocks       cpuClocks
	byPID        map[int]*Task
	cgroups      map[string]*cgroup
	lastCgroup   uint64
	nextPID      int
	maxPID       int
	psys         *Zone
	psysFraction float64
	library      *Library
	ended        func(*Task)   // called with each task that is gone
	created      func(*cgroup) // called with each new cgroup
}

// Socket is one package and its memory.
type Socket struct {
	CPUs int
	// Idle is the power of the package at rest, DRAMIdle that of its memory, in W.
	Idle, DRAMIdle float64
	// Curve is the package's power by load. Only the difference to its first point counts.
	Curve model.Curve
	// Frequency returns the clock rate relative to the nominal one at a utilization of 0 to 1. If it is nil the rate is
	// always 1.
	Frequency func(utilization float64) float64
	// Package, Core and DRAM are the zones, or nil. Core is inside Package.
	Package, Core, DRAM *Zone

	// Energy is the total energy of package and DRAM, and Idled the part of it that was drawn at rest, in µJ.
	Energy, Idled Energies
	// Interrupts is the part of the package's energy that interrupts caused, in µJ. It belongs to no task.
	Interrupts float64

	fraction Energies // of a µJ, not yet counted
	core     float64
	demand   float64 // scratch of Step
	weight   float64
	memory   float64
	rate     float64
	clock    float64 // relative rate of the last step
	ran      time.Duration
	clocks   cpuClocks
}

// Energies are energies by zone kind, in µJ.
type Energies struct{ Package, DRAM float64 }

// Add adds both energies of f.
func (e *Energies) Add(o Energies) { e.Package += o.Package; e.DRAM += o.DRAM }

// coreShare is the share of the cores in a package's dynamic power.
const coreShare = 0.75

// Task is a process of a Machine. Callers may change its exported settings at any time.
type Task struct {
	PID, Parent int
	// Born is the creation time since boot.
	Born   time.Duration
	Socket int
	// Demand is the number of CPUs that the task keeps busy.
	Demand float64
	// Intensity is the power per CPU second relative to other tasks. Spawn sets 1.
	Intensity float64
	// Memory is the DRAM power while one CPU runs the task, in W.
	Memory float64
	// Resident is the resident memory in bytes, which is charged to the task's cgroup.
	Resident uint64
	Cgroup   string // path in the v2 hierarchy

	// Used is the CPU time so far, in ns.
	Used time.Duration
	// Waited is the CPU time of the children that the task has waited for.
	Waited time.Duration
	// Energy is the energy that the task has caused so far, in µJ.
	Energy Energies
	// Zombie states that the task has ended and its parent has not waited for it.
	Zombie bool
	// Adopted states that the task's parent ended first.
	Adopted bool

	machine  *Machine
	group    *cgroup
	process  *Process
	fraction float64 // of a ns
	execs    uint64
	contexts []*Context
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

type cgroup struct {
	id   uint64
	path string
	text string // of /proc/<pid>/cgroup
	up   *cgroup
	used time.Duration
	live int
}

// NewMachine returns a machine that booted 1,000 s ago and runs only init. Its zones are package-<n>, with core and
// dram below each. It is rendered below root.
func NewMachine(root string, sockets ...*Socket) *Machine {
	m := &Machine{Host: New(root), Sockets: sockets, byPID: map[int]*Task{}, cgroups: map[string]*cgroup{}, nextPID: 2, maxPID: 32768}
	m.Host.Cached = true
	m.Host.CPUs, m.Host.Topology = 0, nil
	for i, s := range sockets {
		m.Host.CPUs += s.CPUs
		s.clocks.idle = m.Host.Uptime * time.Duration(s.CPUs)
		for range s.CPUs {
			m.Host.Topology = append(m.Host.Topology, Place{Package: i})
		}
		if s.Frequency != nil {
			s.clock = s.Frequency(0)
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

// LimitPIDs reuses process ids after n of them.
func (m *Machine) LimitPIDs(most int) { m.maxPID = most }

// Now returns the time since boot.
func (m *Machine) Now() time.Duration { return m.Host.Uptime }

// Init returns the first process, which adopts orphans.
func (m *Machine) Init() *Task { return m.Tasks[0] }

func (m *Machine) newTask(pid, parent int, cgroup string) *Task {
	t := &Task{PID: pid, Parent: parent, Intensity: 1, Cgroup: cgroup, machine: m}
	if pid > 1 {
		t.Born = m.Now()
	}
	t.group = m.cgroup(cgroup)
	t.group.live++
	m.Tasks = append(m.Tasks, t)
	m.byPID[pid] = t
	return t
}

// Spawn creates a child of t in the same cgroup and with the same program. It returns nil if no process id is free.
func (t *Task) Spawn() *Task {
	m := t.machine
	pid := m.freePID()
	if pid == 0 {
		return nil
	}
	c := m.newTask(pid, t.PID, t.Cgroup)
	c.Socket, c.execs = t.Socket, t.execs
	p := *t.process
	p.Parent, p.Start = t.PID, int64(c.Born/Tick)
	p.User, p.System, p.CUser, p.CSystem, p.Threads, p.State, p.Files = 0, 0, 0, 0, 1, 0, nil
	c.process = &p
	m.Host.Processes[pid] = c.process
	return c
}

func (m *Machine) freePID() int {
	for range m.maxPID {
		pid := m.nextPID
		if m.nextPID++; m.nextPID > m.maxPID {
			m.nextPID = 2
		}
		if m.byPID[pid] == nil {
			return pid
		}
	}
	return 0
}

// Exec makes the task run another program.
func (t *Task) Exec(exe string, args ...string) {
	t.execs++
	p := t.process
	p.Exe, p.Args = exe, args
	p.Comm = gopath.Base(exe)
	p.Comm = p.Comm[:min(len(p.Comm), 15)]
}

// Move puts the task into another cgroup.
func (t *Task) Move(path string) {
	t.group.live--
	t.Cgroup, t.group = path, t.machine.cgroup(path)
	t.group.live++
}

// Shown returns the process as the kernel shows it. Callers may change threads, name and state.
func (t *Task) Shown() *Process { return t.process }

// Exit ends the task. Init adopts its children. It is a zombie until Reap.
func (t *Task) Exit() {
	t.Demand, t.Resident, t.Zombie = 0, 0, true
	for len(t.contexts) > 0 {
		t.contexts[0].Close()
	}
	t.process.State, t.process.Exe, t.process.Args = 'Z', "", nil
	for _, c := range t.machine.Tasks {
		if c.Parent == t.PID && c != t {
			c.Parent, c.process.Parent, c.Adopted = 1, 1, true
		}
	}
}

// Reap makes the parent wait for an exited task, which is then gone. Its CPU time is added to the parent's Waited,
// unless the parent ignores SIGCHLD.
func (t *Task) Reap(ignored bool) {
	m := t.machine
	if parent := m.Find(t.Parent); parent != nil && !ignored {
		parent.Waited += t.Used + t.Waited
	}
	t.group.live--
	if m.ended != nil {
		m.ended(t)
	}
	delete(m.Host.Processes, t.PID)
	delete(m.byPID, t.PID)
	i := slices.Index(m.Tasks, t)
	m.Tasks = slices.Delete(m.Tasks, i, i+1)
}

// Find returns the task with a process id, or nil if there is none.
func (m *Machine) Find(pid int) *Task { return m.byPID[pid] }

func (m *Machine) cgroup(path string) *cgroup {
	g := m.cgroups[path]
	if g == nil {
		g = &cgroup{path: path, text: "0::" + path}
		if path != "/" {
			g.up = m.cgroup(gopath.Dir(path))
		}
		m.lastCgroup++
		g.id = m.lastCgroup // the root cgroup has id 1, as in the kernel
		m.cgroups[path] = g
		if m.created != nil {
			m.created(g)
		}
	}
	return g
}

// RemoveCgroup removes a cgroup without processes, and its counter.
func (m *Machine) RemoveCgroup(path string) {
	if g := m.cgroups[path]; g != nil && g.live == 0 {
		delete(m.cgroups, path)
		delete(m.Host.Cgroups, path)
	}
}

// Step lets time pass. If the tasks of a socket demand more CPUs than it has, they share them in proportion to demand.
func (m *Machine) Step(d time.Duration) {
	seconds := d.Seconds()
	have := max(1-m.Steal-m.IRQ, 0)
	for _, s := range m.Sockets {
		s.demand, s.weight, s.memory, s.ran = 0, 0, 0, 0
	}
	for _, t := range m.Tasks {
		m.Sockets[t.Socket].demand += t.Demand
	}
	for _, s := range m.Sockets {
		capacity := float64(s.CPUs) * have
		s.rate = 1
		if s.demand > capacity {
			s.rate = capacity / s.demand
		}
	}
	for _, t := range m.Tasks {
		if t.Demand > 0 {
			s := m.Sockets[t.Socket]
			s.weight += t.Demand * s.rate * t.Intensity
			s.memory += t.Demand * s.rate * t.Memory
		}
	}
	var all float64
	var ran time.Duration
	for _, s := range m.Sockets {
		all += s.step(seconds, m.IRQ)
	}
	for _, t := range m.Tasks {
		if t.Demand > 0 {
			s := m.Sockets[t.Socket]
			s.ran += t.step(s, seconds)
		}
	}
	online := m.Host.CPUs
	for _, s := range m.Sockets {
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
	m.Host.Uptime += d
	if m.library != nil {
		m.library.step()
	}
}

const joule = 1e6 // µJ

// step computes the socket's energy for a time, in µJ. It sets the energy per unit of weight for the package and for
// memory.
func (s *Socket) step(seconds, irq float64) (used float64) {
	utilization := min(s.demand*s.rate/float64(s.CPUs)+irq, 1)
	cubed := 1.0
	if s.Frequency != nil {
		s.clock = s.Frequency(utilization)
		cubed = s.clock * s.clock * s.clock
	}
	weight := s.weight*cubed + irq*float64(s.CPUs)*cubed
	dynamic := s.above(weight/float64(s.CPUs)) * seconds * joule
	idle := s.Idle * seconds * joule
	memoryIdle := s.DRAMIdle * seconds * joule
	memory := s.memory * seconds * joule

	s.Energy.Add(Energies{idle + dynamic, memoryIdle + memory})
	s.Idled.Add(Energies{idle, memoryIdle})
	s.fraction.Package = s.Package.count(idle + dynamic + s.fraction.Package)
	s.fraction.DRAM = s.DRAM.count(memoryIdle + memory + s.fraction.DRAM)
	s.core = s.Core.count(coreShare*dynamic + s.core)

	s.weight = 0
	if weight > 0 {
		s.weight = dynamic / weight * cubed // per unit of a task's own weight
		s.Interrupts += irq * float64(s.CPUs) * s.weight
	}
	return idle + dynamic + memoryIdle + memory
}

// above returns the package's power above Idle at a load, in W.
func (s *Socket) above(load float64) float64 {
	if len(s.Curve) == 0 {
		return 0
	}
	base := s.Curve[0].Watts
	if load > 1 { // more than all CPUs draw at the nominal clock rate
		return (s.Curve.Watts(1) - base) * load
	}
	return s.Curve.Watts(load) - base
}

func (t *Task) step(s *Socket, seconds float64) time.Duration {
	run := t.Demand * s.rate
	ns := run*seconds*1e9 + t.fraction
	whole := math.Floor(ns)
	t.fraction = ns - whole
	t.Used += time.Duration(whole)
	t.group.used += time.Duration(whole)
	t.Energy.Package += run * t.Intensity * s.weight
	t.Energy.DRAM += run * t.Memory * seconds * joule
	return time.Duration(whole)
}

// count adds energy to a counter, which may be nil, and returns the remaining fraction of a µJ.
func (z *Zone) count(energy float64) float64 {
	whole := math.Floor(energy)
	if z != nil {
		z.Energy += uint64(whole)
		z.Counted += uint64(whole)
		if z.Max > 0 {
			z.Energy %= z.Max
		}
	}
	return energy - whole
}

// account adds d to the CPU times, ran of which tasks used.
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
	if len(m.Sockets) > 1 { // single-socket machines have no per-CPU lines
		for _, s := range m.Sockets {
			h.EachCPU = append(h.EachCPU, slices.Repeat([]CPU{s.clocks.each(s.CPUs)}, s.CPUs)...)
		}
	}
	for _, t := range m.Tasks {
		p := t.process
		p.System = int64(t.Used / 4 / Tick)
		p.User = int64((t.Used - t.Used/4) / Tick)
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
	clear(h.Memory)
	for _, t := range m.Tasks {
		for g := t.group; g != nil && t.Resident > 0; g = g.up {
			h.Memory[g.path] += t.Resident
		}
	}
	clear(h.Cgroups)
	for path, g := range m.cgroups {
		h.Cgroups[path] += g.used
		for up := g.up; up != nil; up = up.up {
			h.Cgroups[up.path] += g.used
		}
	}
}

// page is the size of a memory page in bytes. nominal is the clock rate that is 1 in Frequency, in kHz.
var page = uint64(os.Getpagesize())

const nominal = 3_000_000

// cpuOf returns the CPU where the task ran last. Tasks take turns on the CPUs of their socket.
func (m *Machine) cpuOf(t *Task) int {
	first := 0
	for _, s := range m.Sockets[:t.Socket] {
		first += s.CPUs
	}
	return first + t.PID%m.Sockets[t.Socket].CPUs
}

func (m *Machine) showClocks() {
	first := 0
	for _, s := range m.Sockets {
		for cpu := range s.CPUs {
			if s.Frequency != nil {
				m.Host.Clocks[first+cpu] = int64(s.clock * nominal)
			}
		}
		first += s.CPUs
	}
}

// Render updates the Host and writes its trees.
func (m *Machine) Render() error {
	m.Show()
	return m.Host.Render()
}

// RenderSensors writes what the drivers of cards show in sysfs, for meters that read between two renders.
func (m *Machine) RenderSensors() error {
	for _, g := range m.GPUs {
		g.show(m.Host)
	}
	r := m.Host.renderer()
	m.Host.renderFiles(r)
	return r.err
}
