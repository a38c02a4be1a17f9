// SPDX-License-Identifier: Apache-2.0

//go:build amd64 || arm64

package hostsim

import (
	"slices"
	"syscall"
	"time"

	"github.com/energyreceiver/energyreceiver/internal/usage/cpu/tasks"
)

// Kernel reports a machine's tasks as the BPF programs do on a real kernel: each task with its
// cgroup, its hardware events and its CPU time in nanoseconds, the final CPU time of each task that
// ends, and each cgroup that is created.
type Kernel struct {
	// Fails is the number of next reads of the list that fail.
	Fails int
	// Late is the number of next reads that report no ends; later reads report them.
	Late int
	// Loses is the number of next ends that do not fit in the buffer.
	Loses int
	// Lost counts the ends that did not fit.
	Lost int
	// Spreads gives every other task threads that run in all domains.
	Spreads bool

	machine  *Machine
	listed   []tasks.Process
	before   []tasks.Process
	changed  []uint64
	created  []*cgroup
	ended    []tasks.Ended
	halfFull func()     // called when the buffer is half full, if set
	lost     tasks.Lost // since the last Drain
	domains  []int32    // by CPU; nil if CPU time is not divided by domain
	slices   []tasks.Slice
	placed   map[*Task][]time.Duration // of tasks on several CPUs: Task.Slices at the last listing
	at       time.Duration             // of the last listing
}

// NewKernel returns the kernel of a machine. A machine has one kernel.
func NewKernel(m *Machine) *Kernel {
	k := &Kernel{machine: m, placed: map[*Task][]time.Duration{}}
	m.ended = k.note
	for _, g := range m.cgroups {
		k.created = append(k.created, g)
	}
	m.created = func(g *cgroup) { k.created = append(k.created, g) }
	m.applied = k.wake
	return k
}

// halfFull is the number of ends that fill half of the buffer.
const halfFull = 3

// Watch calls halfFull after each event of a Life that leaves the buffer half full, until Close.
func (k *Kernel) Watch(halfFull func()) error {
	k.halfFull = halfFull
	return nil
}

func (k *Kernel) wake() {
	if k.halfFull != nil && k.Late == 0 && len(k.ended) >= halfFull {
		k.halfFull()
	}
}

// SetDomains sets the domain of each CPU. From then on CPU time is divided by domain.
func (k *Kernel) SetDomains(of []int32) error {
	k.domains = of
	return nil
}

// weights returns the task's CPU time by domain, or nil before SetDomains.
func (k *Kernel) weights(t *Task) []uint64 {
	if k.domains == nil {
		return nil
	}
	weights := make([]uint64, slices.Max(k.domains)+1)
	weights[k.domains[k.machine.cpuOf(t)]] = uint64(t.Used)
	if k.spreads(t) {
		for i := range weights {
			weights[i] = uint64(t.Used) / uint64(2+i)
		}
	}
	return weights
}

func (k *Kernel) spreads(t *Task) bool { return k.Spreads && t.PID%2 == 0 && k.domains != nil }

// Now returns the clock of the start times.
func (k *Kernel) Now() time.Duration { return k.machine.Now() }

// List returns all processes, oldest first, and the changes since the last successful call.
func (k *Kernel) List(bool) (tasks.Listing, error) {
	if k.Fails > 0 {
		k.Fails--
		return tasks.Listing{}, syscall.ENOMEM
	}
	k.before, k.listed, k.slices = k.listed, k.before[:0], append(k.slices[:0], tasks.Slice{})
	k.list()
	l := tasks.Listing{Processes: k.listed, Slices: k.slices}
	k.changed = k.changed[:0]
	for l.Same < len(k.listed) && l.Same < len(k.before) && sameProcess(&k.listed[l.Same], &k.before[l.Same]) {
		l.Same++
	}
	for i := range k.listed {
		if i >= len(k.before) || k.listed[i] != k.before[i] {
			k.changed = append(k.changed, uint64(i))
		}
	}
	l.Changed = k.changed
	return l, nil
}

func sameProcess(a, b *tasks.Process) bool { return a.Pid == b.Pid && a.Start == b.Start }

func (k *Kernel) list() {
	for _, t := range k.machine.Tasks {
		p := tasks.Process{
			Pid: uint32(t.PID), Parent: uint32(t.Parent), Start: uint64(t.Born), Run: uint64(t.Used), Cgroup: t.group.id,
			Threads: uint32(max(t.process.Threads, 1)), Execs: t.Execs, Cgroups: 1<<63 | t.group.id<<8,
			Cpu: uint32(k.machine.cpuOf(t)), Resident: t.Resident / page, Events: t.Events.counts(),
		}
		p.Uid, p.Comm = uint32(t.process.UID), commOf(t)
		if t.Zombie {
			p.Flags |= tasks.Zombie
		}
		if t.process.Kernel {
			p.Flags |= tasks.KernelThread
		}
		if k.spreads(t) {
			for domain, weight := range k.weights(t) {
				k.addSlice(&p, slices.Index(k.domains, int32(domain)), weight)
			}
		} else if len(t.slices) > 1 {
			k.addSlices(&p, t)
		}
		k.listed = append(k.listed, p)
	}
	k.at = k.machine.Now()
}

func (k *Kernel) addSlice(p *tasks.Process, cpu int, run uint64) {
	k.slices = append(k.slices, tasks.Slice{Cpu: uint32(cpu), Run: run, Next: p.Slice})
	p.Slice = uint32(len(k.slices) - 1)
}

// addSlices adds the CPU time of a task's threads since the last listing. A thread counts for its
// last CPU, so a task with one thread has no slices, and slices on other sockets are dropped. A
// task that used more CPU time than one CPU provides has several threads.
func (k *Kernel) addSlices(p *tasks.Process, t *Task) {
	before := k.placed[t]
	used := time.Duration(0)
	for i := range t.slices {
		if i == len(before) {
			before = append(before, 0)
		}
		used += t.slices[i].Used - before[i]
	}
	several := p.Threads > 1 || used > k.machine.Now()-k.at
	socket := k.machine.Sockets[t.Socket]
	for i, s := range t.slices {
		grown := s.Used - before[i]
		if before[i] = s.Used; several && grown > 0 && s.CPU >= socket.first && s.CPU < socket.first+socket.CPUs {
			k.addSlice(p, s.CPU, uint64(grown))
		}
	}
	k.placed[t] = before
}

func commOf(t *Task) (comm [16]byte) {
	copy(comm[:len(comm)-1], t.process.Comm)
	return comm
}

func (k *Kernel) note(t *Task) {
	delete(k.placed, t)
	if k.Loses > 0 {
		k.Loses--
		k.Lost++
		k.lost.Count++
		k.lost.Run += uint64(t.Used)
		return
	}
	k.ended = append(k.ended, tasks.Ended{
		Pid: uint32(t.PID), Parent: uint32(t.Parent), Start: uint64(t.Born), Run: uint64(t.Used), Cgroup: t.group.id,
		Weights: k.weights(t), UID: uint32(t.process.UID), Comm: commOf(t), Events: t.Events.counts(),
	})
}

// Drain calls yield for each process that ended since the last call. It returns the number and the
// CPU time of the lost ends.
func (k *Kernel) Drain(yield func(*tasks.Ended)) (tasks.Lost, error) {
	if k.Late > 0 {
		k.Late--
		return tasks.Lost{}, nil
	}
	for i := range k.ended {
		yield(&k.ended[i])
	}
	k.ended = k.ended[:0]
	lost := k.lost
	k.lost = tasks.Lost{}
	return lost, nil
}

// DrainCgroups calls yield for each cgroup that was created since the last call. The first call
// yields all existing cgroups.
func (k *Kernel) DrainCgroups(yield func(id uint64, path string)) error {
	for _, g := range k.created {
		yield(g.id, g.path)
	}
	k.created = k.created[:0]
	return nil
}

// Shrink has no effect: a simulated kernel has room for any number of processes.
func (*Kernel) Shrink(int) error { return nil }

// Close ends Watch.
func (k *Kernel) Close() error {
	k.halfFull = nil
	return nil
}
