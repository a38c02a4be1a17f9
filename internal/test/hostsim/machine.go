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

// Machine is a simulated computer of which it is known what each task cost: sockets with a power curve, and
// tasks that run on them. What a kernel would show of it is in Host. Its time passes in steps; the same
// calls give the same machine.
//
// It shows the clock rates of its CPUs at the moment when a socket has any but the nominal one.
//
// Its physics. A socket's load is the sum of what its tasks run, each CPU second weighted by the task's
// Intensity and by the third power of the clock rate (dynamic power goes with f·V², and V with f), over
// its CPUs. The package draws Idle and, for its load, what Curve adds above its first point; DRAM draws its own
// Idle and the Memory watts of each running task. At any moment what is drawn above Idle is caused by those that
// run then, in proportion to what each weighs: that is the truth. What a socket used is what it used at rest, what
// its tasks caused and what interrupts did.
type Machine struct {
	Host    *Host
	Sockets []*Socket
	// Platform is what the machine draws beside its sockets, in W: psys has it, and no other zone.
	Platform float64
	// Tasks are those that live, the oldest first.
	Tasks []*Task
	// Steal, IOWait and IRQ are what part of all CPU time they have, 0 to 1. Interrupts are busy time of no
	// task and draw power as one of Intensity 1 would.
	Steal, IOWait, IRQ float64

	// Hidden is what /proc/stat leaves out: the times of CPUs that are offline.
	Hidden CPU

	clocks       cpuClocks
	byPID        map[int]*Task
	cgroups      map[string]*cgroup
	lastCgroup   uint64
	nextPID      int
	maxPID       int
	psys         *Zone
	psysFraction float64
	ended        func(*Task)   // told of each task that is gone
	created      func(*cgroup) // told of each cgroup
}

// Socket is one package and its memory.
type Socket struct {
	CPUs int
	// Idle is what the package draws at rest, DRAMIdle what its memory does, in W.
	Idle, DRAMIdle float64
	// Curve is the package's power over its load; only what it is above its first point counts.
	Curve model.Curve
	// Frequency is the clock rate, relative to the nominal one, at a utilisation of 0 to 1. nil is 1 always.
	Frequency func(utilization float64) float64
	// Package, Core and DRAM are the zones, nil where there is none. Core is inside Package.
	Package, Core, DRAM *Zone

	// Energy and Idled are what package and DRAM used in all, and what of it at rest, in µJ.
	Energy, Idled Energies
	// Interrupts is what of the package's energy they caused, in µJ: it is no task's.
	Interrupts float64

	fraction Energies // of a µJ, which no counter shows yet
	core     float64
	demand   float64 // scratch of Step
	weight   float64
	memory   float64
	rate     float64
	clock    float64 // rate of the last step, relative
	ran      time.Duration
	clocks   cpuClocks
}

// Energies are energies by zone kind, in µJ.
type Energies struct{ Package, DRAM float64 }

// Add adds to both.
func (e *Energies) Add(o Energies) { e.Package += o.Package; e.DRAM += o.DRAM }

// coreShare is how much of a package's dynamic power its cores draw.
const coreShare = 0.75

// Task is a process of a Machine. Change what it demands as you like.
type Task struct {
	PID, Parent int
	// Born is when it was created, since boot.
	Born   time.Duration
	Socket int
	// Demand is how many CPUs it would keep busy, from now on.
	Demand float64
	// Intensity is its power for each CPU second, relative to others; 1 as Spawn makes it.
	Intensity float64
	// Memory is what DRAM draws while one CPU runs it, in W.
	Memory float64
	// Resident is what it has in memory, in bytes: its cgroup is charged with that.
	Resident uint64
	Cgroup   string // its path in the v2 hierarchy

	// Used is its CPU time so far, in ns.
	Used time.Duration
	// Waited is the CPU time of its children that it waited for.
	Waited time.Duration
	// Energy is what it caused so far, in µJ.
	Energy Energies
	// Zombie says that it has ended and was not waited for.
	Zombie bool
	// Adopted says that its parent ended before it.
	Adopted bool

	machine  *Machine
	group    *cgroup
	process  *Process
	fraction float64 // of a ns
	execs    uint64
}

// cpuClocks are the CPU times of the machine by what ran, in ns.
type cpuClocks struct {
	user, system, idle, ioWait, irq, steal time.Duration
}

// each returns what each of so many CPUs shows that all had the same part in.
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

// NewMachine returns a machine that has been up for 1,000 s and runs nothing but init, with the zones
// package-<n>, and core and dram below each. Root is where it is rendered.
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

// AddPlatform adds a psys zone, which counts everything.
func (m *Machine) AddPlatform(watts float64) {
	m.Platform = watts
	m.psys = m.addZone(fmt.Sprintf("intel-rapl:%d", len(m.Sockets)), "psys")
}

// LimitPIDs makes process ids be used again after so many.
func (m *Machine) LimitPIDs(most int) { m.maxPID = most }

// Now is the time since boot.
func (m *Machine) Now() time.Duration { return m.Host.Uptime }

// Init is the first process, which adopts orphans.
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

// Spawn creates a process whose parent is t. It is in its parent's cgroup and runs its parent's program
// until it is told otherwise. It returns nil when no process id is free.
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
	p.User, p.System, p.CUser, p.CSystem, p.Threads, p.State = 0, 0, 0, 0, 1, 0
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

// Shown is what the kernel shows of the task, to be changed: threads, name, state.
func (t *Task) Shown() *Process { return t.process }

// Exit ends the task. Its children are init's from now on. It is a zombie until Reap.
func (t *Task) Exit() {
	t.Demand, t.Resident, t.Zombie = 0, 0, true
	t.process.State, t.process.Exe, t.process.Args = 'Z', "", nil
	for _, c := range t.machine.Tasks {
		if c.Parent == t.PID && c != t {
			c.Parent, c.process.Parent, c.Adopted = 1, 1, true
		}
	}
}

// Reap has the parent of a task that has exited wait for it: it is gone, and its CPU time is in its
// parent's Waited, unless the parent ignores its children's ends.
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

// Find returns the task that has a process id, nil if none has.
func (m *Machine) Find(pid int) *Task { return m.byPID[pid] }

func (m *Machine) cgroup(path string) *cgroup {
	g := m.cgroups[path]
	if g == nil {
		g = &cgroup{path: path, text: "0::" + path}
		if path != "/" {
			g.up = m.cgroup(gopath.Dir(path))
		}
		m.lastCgroup++
		g.id = m.lastCgroup // the root's is 1, as in the kernel
		m.cgroups[path] = g
		if m.created != nil {
			m.created(g)
		}
	}
	return g
}

// RemoveCgroup removes a cgroup that has no processes; its counter is gone with it.
func (m *Machine) RemoveCgroup(path string) {
	if g := m.cgroups[path]; g != nil && g.live == 0 {
		delete(m.cgroups, path)
		delete(m.Host.Cgroups, path)
	}
}

// Step lets time pass. Where the tasks of a socket demand more than it has, each gets its part.
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
	if m.psys != nil {
		m.psysFraction = m.psys.count(all + m.Platform*seconds*joule + m.psysFraction)
	}
	m.Host.Uptime += d
}

const joule = 1e6 // µJ

// step counts what the socket uses in a time, in µJ. What a weight of 1 causes in it is left in demand and memory.
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
		s.weight = dynamic / weight * cubed // of a task's own weight
		s.Interrupts += irq * float64(s.CPUs) * s.weight
	}
	return idle + dynamic + memoryIdle + memory
}

// above is what the package draws above Idle at a load, in W.
func (s *Socket) above(load float64) float64 {
	if len(s.Curve) == 0 {
		return 0
	}
	base := s.Curve[0].Watts
	if load > 1 { // beyond what all CPUs draw at the nominal clock rate
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

// count adds to the counter, of which a zone may have none, and returns the part of a µJ that is left.
func (z *Zone) count(energy float64) float64 {
	whole := math.Floor(energy)
	if z != nil {
		z.Energy += uint64(whole)
		if z.Max > 0 {
			z.Energy %= z.Max
		}
	}
	return energy - whole
}

// account adds what CPUs did in d, of which tasks ran so long, to their clocks.
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

// Ran is the CPU time of all tasks that there ever were.
func (m *Machine) Ran() time.Duration { return m.clocks.user + m.clocks.system }

// Show brings the Host up to date.
func (m *Machine) Show() {
	h, c := m.Host, &m.clocks
	off := m.Hidden
	h.CPU = CPU{
		User: int64(c.user/Tick) - off.User, System: int64(c.system/Tick) - off.System, Idle: int64(c.idle/Tick) - off.Idle,
		IOWait: int64(c.ioWait/Tick) - off.IOWait, IRQ: int64(c.irq/Tick) - off.IRQ, Steal: int64(c.steal/Tick) - off.Steal,
		Nice: h.CPU.Nice, SoftIRQ: h.CPU.SoftIRQ, Guest: h.CPU.Guest, GuestNice: h.CPU.GuestNice,
	}
	h.EachCPU = h.EachCPU[:0]
	if len(m.Sockets) > 1 { // else nobody reads them
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
	}
	m.showClocks()
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

// page is the size of a page of memory, in bytes, and nominal the clock rate of 1, in kHz.
var page = uint64(os.Getpagesize())

const nominal = 3_000_000

// cpuOf is the CPU where the task was last: those of a socket have their turns.
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

// Render shows and writes the machine's trees.
func (m *Machine) Render() error {
	m.Show()
	return m.Host.Render()
}
