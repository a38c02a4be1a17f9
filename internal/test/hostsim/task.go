// SPDX-License-Identifier: Apache-2.0

package hostsim

import (
	"math"
	gopath "path"
	"slices"
	"time"
)

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
	// IPC is the number of instructions per cycle relative to the program's; see PMU. Spawn sets 1.
	IPC float64
	// Memory is the DRAM power while one CPU runs the task, in W.
	Memory float64
	// Resident is the resident memory in bytes, which is charged to the task's cgroup.
	Resident uint64
	// MemorySocket is the socket of the memory that the task holds and uses. Spawn sets -1, for the
	// socket on which the task runs.
	MemorySocket int
	Cgroup       string // path in the v2 hierarchy

	// Used is the CPU time, in ns.
	Used time.Duration
	// Waited is the CPU time of the children that the task has waited for.
	Waited time.Duration
	// Energy is the energy that the task has caused, in µJ.
	Energy Energies
	// Events are the hardware events of the task. They are 0 on machines without a PMU.
	Events Events
	// Execs counts the executed programs. A child starts with the count of its parent.
	Execs uint64
	// Zombie is true after the task has ended and before its parent waits for it.
	Zombie bool
	// Adopted is true if the task's parent ended first.
	Adopted bool

	stirred  time.Duration // see stir
	kept     bool          // events of a Life do not change it
	machine  *Machine
	group    *cgroup
	process  *Process
	fraction float64 // of a ns
	pin      int     // CPU within the socket, or -1
	run      float64 // CPUs that the task keeps busy in this step
	weight   float64 // run, reduced by the effect of busy siblings
	slices   []Slice
	last     int // index of slices: the last CPU
	contexts []*Context
}

func (m *Machine) newTask(pid, parent int, cgroup string) *Task {
	t := &Task{PID: pid, Parent: parent, Intensity: 1, IPC: 1, Cgroup: cgroup, MemorySocket: -1, machine: m, pin: -1}
	if pid > 1 {
		t.Born = m.Now()
	}
	t.group = m.cgroup(cgroup)
	t.group.live++
	m.Tasks = append(m.Tasks, t)
	m.byPID[pid] = t
	return t
}

// Spawn creates a child of t in the same cgroup, on the same socket and CPU and with the same
// program. It returns nil if all process IDs are in use.
func (t *Task) Spawn() *Task {
	m := t.machine
	pid := m.freePID()
	if pid == 0 {
		return nil
	}
	c := m.newTask(pid, t.PID, t.Cgroup)
	c.Socket, c.pin, c.Execs = t.Socket, t.pin, t.Execs
	p := *t.process
	p.Parent, p.Start = t.PID, int64(c.Born/Tick)
	p.User, p.System, p.Fraction, p.CUser, p.CSystem, p.Threads, p.State, p.Files = 0, 0, 0, 0, 0, 1, 0, nil
	t.stir()
	m.Host.LastPID = pid
	m.Host.Created++
	c.process = &p
	m.Host.Processes[pid] = c.process
	return c
}

// stir adds a microsecond to the CPU clock of the task and to its cgroup's counter, as a sign that
// the task ran: it ended, created a child or waited for one. Used does not include that time.
func (t *Task) stir() {
	t.stirred += time.Microsecond
	t.group.stirred += time.Microsecond
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
	t.Execs++
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

// Shown returns the process as the kernel shows it. Callers may change its threads, name and state.
func (t *Task) Shown() *Process { return t.process }

// Exit ends the task, which is a zombie until Reap. Init adopts its children.
func (t *Task) Exit() {
	t.Demand, t.Resident, t.Zombie = 0, 0, true
	t.stir()
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

// Reap makes the parent wait for an exited task and removes the task. Its CPU time is added to the
// parent's Waited, unless the parent ignores SIGCHLD.
func (t *Task) Reap(ignored bool) {
	m := t.machine
	if parent := m.Find(t.Parent); parent != nil && !ignored {
		parent.Waited += t.Used + t.Waited
		parent.stir()
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

// Slice is the CPU time that a task used on one CPU of the machine.
type Slice struct {
	CPU  int
	Used time.Duration
}

// Pin makes the task run on one logical CPU of its socket, counted from 0. A negative number
// removes the restriction.
func (t *Task) Pin(cpu int) { t.pin = max(cpu, -1) }

// Slices returns the task's CPU time by CPU, in the order of first use. The slices add up to Used.
// They are valid until the next step.
func (t *Task) Slices() []Slice { return t.slices }

func (t *Task) memorySocket() int {
	if t.MemorySocket < 0 {
		return t.Socket
	}
	return t.MemorySocket
}

// step adds the energy that the task caused.
func (t *Task) step(s *Socket, seconds float64) {
	t.Energy.Package += t.weight * t.Intensity * s.weight
	t.Energy.DRAM += t.run * t.Memory * seconds * joule
}

// use adds CPU time on a CPU, in seconds, and returns it in whole nanoseconds.
func (t *Task) use(cpu int, seconds float64) time.Duration {
	ns := seconds*1e9 + t.fraction
	floor := math.Floor(ns)
	t.fraction = ns - floor
	whole := time.Duration(floor)
	if t.last >= len(t.slices) || t.slices[t.last].CPU != cpu {
		t.last = slices.IndexFunc(t.slices, func(s Slice) bool { return s.CPU == cpu })
		if t.last < 0 {
			t.last = len(t.slices)
			t.slices = append(t.slices, Slice{CPU: cpu})
		}
	}
	t.slices[t.last].Used += whole
	t.Used += whole
	t.group.used += whole
	return whole
}
