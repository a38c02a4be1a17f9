// SPDX-License-Identifier: Apache-2.0

package hostsim

import (
	"fmt"
	"math/rand/v2"
	"path"
	"time"
)

// Act is a kind of event in a history.
type Act uint8

// The acts. A selects a task if the comment does not mention A.
const (
	Advance  Act = iota // time passes, then the machine is observed; A: how long, B: mode
	Pass                // time passes unobserved; A: how long
	Demand              // a task's demand changes; B: new demand
	Fork                // a task creates a child; B: the child's demand
	Exit                // a task ends; B: whether and how its parent waits for it
	Wait                // a parent waits for a zombie
	Exec                // a task executes another program; B: which
	Rename              // a task changes its name
	Contain             // a container starts; B: its runtime
	Restart             // a stopped container starts again under its old id
	Stop                // a container stops with all its processes; B: whether its cgroup remains
	Enter               // a task moves into a container
	Boot                // a virtual machine starts
	Flicker             // a task creates a child that ends before the next scan; B: how long it runs
	OpenGPU             // a task opens a context on a card; B: which card, and its demand
	LoadGPU             // the demand of a context changes; A: which, B: new demand
	CloseGPU            // a context is closed; A: which
	numActs
	// Acts from here on are faults. The observer applies them.
	FirstFault
)

// Event is one event of a history. A and B are random numbers that select among the objects that
// exist at the time. Every event is valid on every machine, so a history stays valid if events are
// removed.
type Event struct {
	Act  Act
	A, B uint32
}

// Weights are the relative frequencies of acts.
type Weights map[Act]int

// CommonWeights are the weights of a busy host.
func CommonWeights() Weights {
	return Weights{
		Advance: 30, Pass: 6, Demand: 25, Fork: 10, Exit: 9, Wait: 5, Exec: 4, Rename: 2, Contain: 4, Restart: 2, Stop: 3,
		Enter: 3, Boot: 1, Flicker: 8, OpenGPU: 4, LoadGPU: 6, CloseGPU: 2,
	}
}

// NewHistory returns n random events, the same for the same seed and weights.
func NewHistory(seed uint64, n int, w Weights) []Event {
	r := rand.New(rand.NewPCG(seed, 0x9e3779b97f4a7c15))
	total := 0
	for a := range 256 {
		total += w[Act(a)]
	}
	events := make([]Event, n)
	for i := range events {
		at := r.IntN(total)
		for a := range 256 {
			if at -= w[Act(a)]; at < 0 {
				events[i].Act = Act(a)
				break
			}
		}
		events[i].A, events[i].B = r.Uint32(), r.Uint32()
	}
	return events
}

// Life is the population of a machine. It records everything that ever existed.
type Life struct {
	*Machine
	// MaxTasks bounds the number of live tasks.
	MaxTasks int
	// Programs, Containers, Pods and VMs hold all that ever existed. Containers, Pods and VMs are
	// keyed by ID.
	Programs              map[Program]bool
	Containers, Pods, VMs map[string]bool
	// Contexts are all contexts on cards that ever existed.
	Contexts []*Context

	containers []*Container
	vms        int
}

// Program is a process under one of its names: its executable's or its own.
type Program struct {
	PID   int
	Start int64 // in ticks
	Name  string
}

// Container is a container of a Life.
type Container struct {
	ID, Pod, Cgroup string
	Stopped         bool
}

// NewLife returns the life of a machine that runs only init.
func NewLife(m *Machine) *Life {
	l := &Life{
		Machine: m, MaxTasks: 40,
		Programs: map[Program]bool{}, Containers: map[string]bool{}, Pods: map[string]bool{}, VMs: map[string]bool{},
	}
	l.remember(m.Init())
	return l
}

// remember records a task under the name of its executable and its own name.
func (l *Life) remember(t *Task) {
	if l.Programs == nil {
		return
	}
	p := t.process
	l.Programs[Program{t.PID, p.Start, path.Base(p.Exe)}] = true
	l.Programs[Program{t.PID, p.Start, p.Comm}] = true
}

// Each calls yield for every container that ever existed.
func (l *Life) Each(yield func(*Container)) {
	for _, c := range l.containers {
		yield(c)
	}
}

var (
	demands  = [...]float64{0, 0, 0, 0, 0.001, 0.013, 0.1, 0.37, 1, 2.5}
	programs = [...]string{"/bin/sh", "/usr/bin/python3", "/opt/app/server", "/usr/lib/postgresql/bin/postgres", "/bin/stress ng"}
)

// pick returns a task that events may change, or nil if no task fits.
func (l *Life) pick(a uint32, fits func(*Task) bool) *Task {
	n := len(l.Tasks)
	for i := range n {
		t := l.Tasks[(int(a%uint32(n))+i)%n]
		if t.PID != 1 && !t.kept && fits(t) {
			return t
		}
	}
	return nil
}

func runs(t *Task) bool { return !t.Zombie }

// Apply applies an event. It ignores faults, which Faults applies.
func (l *Life) Apply(e Event) {
	l.apply(e)
	if l.applied != nil {
		l.applied()
	}
}

func (l *Life) apply(e Event) {
	switch e.Act {
	case Pass:
		l.Step(time.Duration(e.A%3_000) * time.Millisecond)
	case Demand:
		if t := l.pick(e.A, runs); t != nil {
			t.Demand = demands[e.B%uint32(len(demands))]
		}
	case Fork:
		parent := l.pick(e.A, runs)
		if parent == nil || e.A%4 == 0 {
			parent = l.Init()
		}
		l.fork(parent, demands[e.B%uint32(len(demands))])
	case Flicker:
		parent := l.pick(e.A, runs)
		if parent == nil {
			parent = l.Init()
		}
		if child := l.fork(parent, 1); child != nil {
			l.Step(time.Duration(e.B%20_000) * time.Microsecond)
			l.end(child, e.B/20_000)
		}
	case Exit:
		if t := l.pick(e.A, runs); t != nil {
			l.end(t, e.B)
		}
	case Wait:
		if t := l.pick(e.A, func(t *Task) bool { return t.Zombie }); t != nil {
			t.Reap(false)
		}
	case Exec:
		if t := l.pick(e.A, func(t *Task) bool { return !t.Zombie && len(t.process.Args) < 3 }); t != nil {
			t.Exec(programs[e.B%uint32(len(programs))], "x")
			l.remember(t)
		}
	case Rename:
		if t := l.pick(e.A, runs); t != nil {
			t.process.Comm = fmt.Sprintf("worker-%d", e.B%100)
			l.remember(t)
		}
	case Contain:
		l.contain(e)
	case Restart:
		if c := l.container(e.A, true); c != nil {
			c.Stopped = false
			l.inside(c, e)
		}
	case Stop:
		if c := l.container(e.A, false); c != nil {
			l.stop(c, e.B)
		}
	case Enter:
		t, c := l.pick(e.A, runs), l.container(e.B, false)
		if t != nil && c != nil {
			t.Move(c.Cgroup)
		}
	case OpenGPU:
		if t := l.pick(e.A, runs); t != nil && len(l.GPUs) > 0 && len(t.contexts) < 3 {
			c := t.OpenGPU(l.GPUs[int(e.B)%len(l.GPUs)])
			c.load(e.B / 16)
			l.Contexts = append(l.Contexts, c)
		}
	case LoadGPU:
		if c := l.context(e.A); c != nil {
			c.load(e.B)
		}
	case CloseGPU:
		if c := l.context(e.A); c != nil {
			c.Close()
		}
	case Boot:
		if t := l.fork(l.Init(), demands[e.B%uint32(len(demands))]); t != nil {
			l.vms++
			l.virtualize(t, fmt.Sprintf("vm%d", l.vms), fmt.Sprintf("00000000-0000-4000-8000-%012d", l.vms))
		}
	}
}

// virtualize turns a task into a virtual machine.
func (l *Life) virtualize(t *Task, name, id string) {
	t.Exec("/usr/bin/qemu-system-x86_64", "qemu-system-x86_64", "-name", "guest="+name, "-uuid", id)
	t.Move(fmt.Sprintf("/machine.slice/machine-qemu\\x2d%d\\x2d%s.scope", l.vms, name))
	l.VMs[id] = true
	l.VMs[fmt.Sprintf("machine-qemu-%d-%s", l.vms, name)] = true // identified by its cgroup alone
	l.remember(t)
}

// StartVM starts a virtual machine that no event changes.
func (l *Life) StartVM(name, id string, demand float64) *Task {
	l.MaxTasks++
	defer func() { l.MaxTasks-- }()
	t := l.fork(l.Init(), demand)
	t.kept = true
	l.vms++
	l.virtualize(t, name, id)
	return t
}

// context returns an open context, or nil if all are closed.
func (l *Life) context(a uint32) *Context {
	var open []*Context
	for _, g := range l.GPUs {
		open = append(open, g.Contexts...)
	}
	if len(open) == 0 {
		return nil
	}
	return open[int(a%uint32(len(open)))]
}

// load sets the context's demand for each engine.
func (c *Context) load(b uint32) {
	for i := range c.Demand {
		c.Demand[i] = demands[b%uint32(len(demands))]
		b /= 16
	}
}

func (l *Life) fork(parent *Task, demand float64) *Task {
	if len(l.Tasks) >= l.MaxTasks {
		return nil
	}
	t := parent.Spawn()
	if t == nil {
		return nil
	}
	t.Demand = demand
	t.Resident = uint64(t.PID*37%5) << 20
	if parent.PID == 1 {
		t.process.UID = t.PID % 3 * 1000
		t.Move("/system.slice/some.service")
		t.Exec(programs[0], "sh")
	}
	l.remember(t)
	return t
}

// end ends a task. Most parents wait for it at once, some later, and some never.
func (l *Life) end(t *Task, how uint32) {
	t.Exit()
	switch how % 8 {
	case 0: // a zombie until a later Wait
	case 1:
		t.Reap(true)
	default:
		t.Reap(false)
	}
}

func (l *Life) contain(e Event) {
	n := len(l.containers) + 1
	c := &Container{ID: fmt.Sprintf("%064x", n)}
	switch e.B % 3 {
	case 0:
		c.Cgroup = "/system.slice/docker-" + c.ID + ".scope"
	case 1:
		c.Pod = fmt.Sprintf("00000000-0000-4000-9000-%012x", n/3)
		c.Cgroup = "/kubepods/burstable/pod" + c.Pod + "/" + c.ID
	default:
		c.Cgroup = "/machine.slice/libpod-" + c.ID + ".scope"
	}
	l.containers = append(l.containers, c)
	l.Containers[c.ID] = true
	if c.Pod != "" {
		l.Pods[c.Pod] = true
	}
	l.inside(c, e)
}

// inside starts a container's first process: in the container's cgroup, or moved there while it
// runs.
func (l *Life) inside(c *Container, e Event) {
	t := l.fork(l.Init(), demands[e.A%uint32(len(demands))])
	if t == nil {
		c.Stopped = true
		return
	}
	if e.B%16 < 4 {
		l.Step(time.Duration(e.A%50) * time.Millisecond)
	}
	t.Move(c.Cgroup)
}

// container returns a stopped or a running container, or nil if there is no such container.
func (l *Life) container(a uint32, stopped bool) *Container {
	n := len(l.containers)
	for i := range n {
		if c := l.containers[(int(a%uint32(n))+i)%n]; c.Stopped == stopped {
			return c
		}
	}
	return nil
}

func (l *Life) stop(c *Container, how uint32) {
	c.Stopped = true
	for {
		t := l.pick(0, func(t *Task) bool { return t.Cgroup == c.Cgroup })
		if t == nil {
			break
		}
		if !t.Zombie {
			t.Exit()
		}
		t.Reap(false)
	}
	if how%4 > 0 {
		l.RemoveCgroup(c.Cgroup)
	}
}
