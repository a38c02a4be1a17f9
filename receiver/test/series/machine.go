// SPDX-License-Identifier: Apache-2.0

//go:build linux

package series

import (
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/energyreceiver/energyreceiver/internal/power/model"
	"github.com/energyreceiver/energyreceiver/internal/test/hostsim"
)

// Population is the workloads of a machine.
type Population struct {
	// Services, Containers and Processes run until the end: services are processes of systemd units,
	// and the other processes run in the containers, in addition to a process per container. PerPod
	// is the number of containers per pod.
	Services, Containers, PerPod, Processes int
	// ContainerBirths and ProcessBirths are the numbers of containers, and of processes in containers,
	// that start per minute. Containers live for 2 s to 5 min, every tenth for 15 s; processes for
	// 0.2 s to 1 min.
	ContainerBirths, ProcessBirths float64
}

// Machine is a simulated machine with pods, containers and processes that start and exit.
type Machine struct {
	*hostsim.Machine
	// Births is the number of processes that were created.
	Births int

	population Population
	random     *rand.Rand
	pods       []*pod
	containers []*container
	tasks      []ending
	unborn     Population // the fractions of births
}

type pod struct {
	namespace, name, uid string
	containers           int
}

type container struct {
	pod   *pod
	id    string
	first *hostsim.Task
	until time.Duration // since boot
}

// ending is a process that exits at a time since boot.
type ending struct {
	*hostsim.Task
	in    *container
	until time.Duration
}

const step = 200 * time.Millisecond

// NewMachine returns a machine whose files are below root. It has the given number of sockets with
// 64 CPUs each.
func NewMachine(root string, sockets int, p Population, seed uint64, now time.Time) (*Machine, error) {
	// The machine advances by a whole collection interval between two windows of the receiver. Above
	// 150 W, the energy of 10 s would be impossible for a window of 1 s and be taken for a reset.
	curve, err := model.Linear(60, 140)
	if err != nil {
		return nil, err
	}
	var all []*hostsim.Socket
	for range sockets {
		all = append(all, &hostsim.Socket{CPUs: 64, Idle: 60, DRAMIdle: 8, Curve: curve})
	}
	m := &Machine{Machine: hostsim.NewMachine(root, all...), population: p, random: rand.New(rand.NewPCG(seed, 16))}
	m.Host.Booted = now.Add(-m.Now())
	m.Host.Files["proc/sys/kernel/random/boot_id"] = "0c1f6a52-6f0b-4a80-9d3e-6ad1b7a0f7c1\n"
	for i := range max(p.Containers, p.Services) {
		if i < p.Containers {
			if i%p.PerPod == 0 {
				m.newPod()
			}
			if err := m.start(m.pods[len(m.pods)-1], math.MaxInt64); err != nil {
				return nil, err
			}
		}
		if i < p.Services {
			service := m.Init().Spawn()
			if service == nil {
				return nil, errNoPID
			}
			service.Move(fmt.Sprintf("/system.slice/service-%d.service", service.PID))
			m.run(service, "/usr/sbin/service")
		}
	}
	for i := range p.Processes {
		worker := m.containers[i%p.Containers].first.Spawn()
		if worker == nil {
			return nil, errNoPID
		}
		m.run(worker, "/usr/bin/worker")
	}
	return m, os.MkdirAll(filepath.Join(root, "var/log/containers"), 0o755)
}

var errNoPID = errors.New("no process ID is free")

var namespaces = []string{"shop", "search", "payments", "batch"}

func (m *Machine) newPod() *pod {
	p := &pod{namespace: namespaces[m.random.IntN(len(namespaces))]}
	p.uid = strings.Join([]string{m.hex(4), m.hex(2), m.hex(2), m.hex(2), m.hex(6)}, "-")
	p.name = "job-" + m.hex(3)
	m.pods = append(m.pods, p)
	return p
}

func (m *Machine) hex(bytes int) string {
	b := make([]byte, bytes)
	for i := range b {
		b[i] = byte(m.random.Uint32())
	}
	return hex.EncodeToString(b)
}

// between returns a random duration. Its logarithm is uniformly distributed.
func (m *Machine) between(least, most time.Duration) time.Duration {
	return time.Duration(float64(least) * math.Pow(float64(most)/float64(least), m.random.Float64()))
}

// start starts a container that lives for a time.
func (m *Machine) start(p *pod, life time.Duration) error {
	k := &container{pod: p, id: m.hex(32), until: math.MaxInt64, first: m.Init().Spawn()}
	if k.first == nil {
		return errNoPID
	}
	if life < math.MaxInt64 {
		k.until = m.Now() + life
	}
	p.containers++
	m.containers = append(m.containers, k)
	k.first.Move(k.cgroup())
	m.run(k.first, "/usr/bin/app")
	dir, link := m.logs(k)
	return errors.Join(os.MkdirAll(dir, 0o755), os.MkdirAll(filepath.Dir(link), 0o755), os.WriteFile(link, nil, 0o600))
}

func (k *container) cgroup() string {
	pod := strings.ReplaceAll(k.pod.uid, "-", "_")
	return "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod" + pod + ".slice/cri-containerd-" + k.id + ".scope"
}

// logs returns the paths of log files. The receiver takes the names of containers from them.
func (m *Machine) logs(k *container) (dir, link string) {
	log := filepath.Join(m.Host.Root(), "var/log")
	return filepath.Join(log, "pods", k.pod.namespace+"_"+k.pod.name+"_"+k.pod.uid),
		filepath.Join(log, "containers", k.pod.name+"_"+k.pod.namespace+"_app-"+k.id+".log")
}

// run executes a program with a load.
func (m *Machine) run(t *hostsim.Task, program string) {
	t.Exec(program)
	t.Socket = m.Births % len(m.Sockets)
	t.Demand = 0.02 + 0.6*m.random.Float64()*m.random.Float64()
	t.Intensity, t.Memory = 0.5+m.random.Float64(), m.random.Float64()
	m.Births++
}

// Advance lets time pass until a time since boot, and renders the machine.
func (m *Machine) Advance(until time.Duration) error {
	for m.Now() < until {
		d := min(step, until-m.Now())
		if err := m.turn(d); err != nil {
			return err
		}
		m.Step(d)
	}
	return m.Render()
}

// turn stops the workloads whose time has come, and starts those that are born within a time.
func (m *Machine) turn(d time.Duration) error {
	now := m.Now()
	m.tasks = slices.DeleteFunc(m.tasks, func(e ending) bool {
		if e.until > now {
			return false
		}
		e.Exit()
		e.Reap(false)
		return true
	})
	var failed error
	m.containers = slices.DeleteFunc(m.containers, func(k *container) bool {
		if k.until > now {
			return false
		}
		failed = errors.Join(failed, m.stop(k))
		return true
	})
	m.unborn.ContainerBirths += d.Minutes() * m.population.ContainerBirths
	m.unborn.ProcessBirths += d.Minutes() * m.population.ProcessBirths
	for ; m.unborn.ContainerBirths >= 1 && failed == nil; m.unborn.ContainerBirths-- {
		p := m.pods[m.random.IntN(len(m.pods))]
		if m.random.IntN(4) > 0 || p.containers == 0 {
			p = m.newPod()
		}
		life := m.between(2*time.Second, 5*time.Minute)
		if m.random.IntN(10) == 0 {
			life = 15 * time.Second
		}
		failed = m.start(p, life)
	}
	for ; m.unborn.ProcessBirths >= 1; m.unborn.ProcessBirths-- {
		k := m.containers[m.random.IntN(len(m.containers))]
		child := k.first.Spawn()
		if child == nil {
			return errors.Join(failed, errNoPID)
		}
		m.run(child, "/usr/bin/step")
		m.tasks = append(m.tasks, ending{child, k, now + m.between(step, time.Minute)})
	}
	return failed
}

// stop stops a container with its processes.
func (m *Machine) stop(k *container) error {
	m.tasks = slices.DeleteFunc(m.tasks, func(e ending) bool {
		if e.in == k {
			e.Exit()
			e.Reap(false)
		}
		return e.in == k
	})
	k.first.Exit()
	k.first.Reap(false)
	m.RemoveCgroup(k.cgroup())
	dir, link := m.logs(k)
	if k.pod.containers--; k.pod.containers > 0 {
		return os.Remove(link)
	}
	m.RemoveCgroup(filepath.Dir(k.cgroup()))
	m.pods = slices.DeleteFunc(m.pods, func(p *pod) bool { return p == k.pod })
	return errors.Join(os.Remove(link), os.RemoveAll(dir))
}
