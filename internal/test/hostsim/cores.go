// SPDX-License-Identifier: Apache-2.0

package hostsim

import "time"

// cores holds the CPUs of a socket if the power depends on the CPUs that tasks run on. Pinned tasks
// run on their CPU and share it in proportion to demand. The other tasks share the rest, also in
// proportion to demand. A task has as many threads as it demands CPUs, and each thread runs on the
// least used core: the kernel also prefers an idle core to an idle CPU. The busy parts of two
// siblings are independent: in a step with the busy parts a and b, both are busy for a·b.
type cores struct {
	cpus     []logicalCPU
	pieces   []piece
	siblings float64 // power of two busy siblings relative to one; 2 without siblings
	// full is the weight of the socket if all CPUs are busy, interrupts the weight of the
	// interrupts in this step.
	full, interrupts float64
	first            int
}

type logicalCPU struct {
	sibling int // the CPU itself on a core with one thread
	pinned  float64
	used    float64 // part of the step that tasks use
	ran     time.Duration
	clocks  cpuClocks
}

// piece is the CPU time that a task uses on one CPU in a step.
type piece struct {
	task *Task
	cpu  int
	part float64
}

// newCores returns the CPUs of a socket, each with an equal part of the socket's CPU times.
func newCores(s *Socket) *cores {
	c := &cores{cpus: make([]logicalCPU, s.CPUs), siblings: 2, full: float64(s.CPUs), first: s.first}
	if s.Threads > 1 && s.Siblings > 0 {
		c.siblings = s.Siblings
		c.full *= s.Siblings / 2
	}
	n := time.Duration(s.CPUs)
	for i := range c.cpus {
		all := &s.clocks
		c.cpus[i].clocks = cpuClocks{all.user / n, all.system / n, all.idle / n, all.ioWait / n, all.irq / n, all.steal / n}
		c.cpus[i].sibling = s.sibling(i)
	}
	return c
}

// sibling returns the other CPU of a CPU's core, or the CPU itself.
func (s *Socket) sibling(cpu int) int {
	if s.Threads < 2 {
		return cpu
	}
	return (cpu + s.CPUs/2) % s.CPUs
}

// siblings returns the numbers of a core's CPUs in the machine.
func (s *Socket) siblings(cpu int) []int {
	other := s.sibling(cpu)
	if other == cpu {
		return []int{s.first + cpu}
	}
	return []int{s.first + min(cpu, other), s.first + max(cpu, other)}
}

// place selects the CPUs for the tasks of sockets with cores in a step. free is the part of each
// CPU that tasks can use. It sets the run and the weight of these tasks.
func (m *Machine) place(free float64) {
	detailed := false
	for _, s := range m.Sockets {
		if s.cores != nil {
			s.cores.begin()
			detailed = true
		}
	}
	if !detailed {
		return
	}
	for _, t := range m.Tasks {
		t.run, t.weight = 0, 0
		if c := m.Sockets[t.Socket].cores; c != nil && t.pin >= 0 {
			c.cpus[t.pin].pinned += t.Demand
		}
	}
	for _, t := range m.Tasks {
		if c := m.Sockets[t.Socket].cores; c != nil && t.pin >= 0 && t.Demand > 0 {
			c.add(t, t.pin, t.Demand*min(1, free/c.cpus[t.pin].pinned))
		}
	}
	for _, s := range m.Sockets {
		if s.cores != nil {
			s.rate = s.cores.rate(s.demand, free)
		}
	}
	for _, t := range m.Tasks {
		if s := m.Sockets[t.Socket]; s.cores != nil && t.pin < 0 && t.Demand > 0 {
			s.cores.spread(t, t.Demand*s.rate, free)
		}
	}
	for _, s := range m.Sockets {
		if s.cores != nil {
			s.demand, s.rate = s.cores.weigh(m.IRQ), 1
		}
	}
}

func (c *cores) begin() {
	c.pieces = c.pieces[:0]
	for i := range c.cpus {
		cpu := &c.cpus[i]
		cpu.pinned, cpu.used, cpu.ran = 0, 0, 0
	}
}

func (c *cores) add(t *Task, cpu int, part float64) {
	c.cpus[cpu].used += part
	c.pieces = append(c.pieces, piece{t, cpu, part})
}

// rate returns the part of their demand that unpinned tasks get: pinned tasks are served first.
func (c *cores) rate(demand, free float64) float64 {
	room := 0.0
	for i := range c.cpus {
		room += max(free-c.cpus[i].used, 0)
		demand -= c.cpus[i].pinned
	}
	if demand > room {
		return room / demand
	}
	return 1
}

// least is the smallest part of a step that is placed. A smaller rest is lost to rounding.
const least = 1e-12

// spread places the threads of a task on the least used cores.
func (c *cores) spread(t *Task, run, free float64) {
	for run > least {
		cpu := c.leastUsed(free)
		if cpu < 0 {
			return
		}
		part := min(run, 1, free-c.cpus[cpu].used)
		c.add(t, cpu, part)
		run -= part
	}
}

// leastUsed returns the least used CPU of the least used core among the CPUs with room, or -1 if
// every CPU is full.
func (c *cores) leastUsed(free float64) int {
	best, ofCore, ofCPU := -1, 0.0, 0.0
	for i := range c.cpus {
		cpu := &c.cpus[i]
		if free-cpu.used <= least {
			continue
		}
		core := cpu.used
		if cpu.sibling != i {
			core += c.cpus[cpu.sibling].used
		}
		if best < 0 || core < ofCore-least || core < ofCore+least && cpu.used < ofCPU-least {
			best, ofCore, ofCPU = i, core, cpu.used
		}
	}
	return best
}

// weigh sets the run and the weight of the tasks that run, and the weight of interrupts, which take
// a part of each CPU. It returns the number of CPUs that tasks keep busy.
func (c *cores) weigh(irq float64) (busy float64) {
	c.interrupts = 0
	for i := range c.cpus {
		c.interrupts += irq * c.alone(i, irq)
		busy += c.cpus[i].used
	}
	for _, p := range c.pieces {
		p.task.run += p.part
		p.task.weight += p.part * c.alone(p.cpu, irq)
	}
	return busy
}

// alone returns the weight of time on a CPU: 1 while the sibling is idle, and half the power of two
// busy siblings while it is busy.
func (c *cores) alone(cpu int, irq float64) float64 {
	sibling := c.cpus[cpu].sibling
	if sibling == cpu {
		return 1
	}
	busy := c.cpus[sibling].used + irq
	return 1 - busy + busy*c.siblings/2
}

// busy returns the number of cores with a busy thread, on average over the step.
func (c *cores) busy(irq float64) (n float64) {
	for i, cpu := range c.cpus {
		used := cpu.used + irq
		switch {
		case cpu.sibling == i:
			n += used
		case cpu.sibling > i:
			n += 1 - (1-used)*(1-c.cpus[cpu.sibling].used-irq)
		}
	}
	return n
}

// use adds the CPU time of the tasks that ran, and returns their sum.
func (c *cores) use(seconds float64) (ran time.Duration) {
	for _, p := range c.pieces {
		used := p.task.use(c.first+p.cpu, p.part*seconds)
		c.cpus[p.cpu].ran += used
		ran += used
	}
	return ran
}

func (c *cores) account(m *Machine, d time.Duration) {
	for i := range c.cpus {
		m.account(&c.cpus[i].clocks, 1, d, c.cpus[i].ran)
	}
}
