// SPDX-License-Identifier: Apache-2.0

//go:build linux

package stores

import (
	"encoding/hex"
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

// churn is a simulated machine with 64 CPUs on which pods, containers and processes come and go: 100 containers and 400
// other processes are born each minute. A container lives for 2 s to 5 min, every tenth for 15 s; its other processes
// live for 0.2 s to 1 min. Some containers and services stay.
type churn struct {
	machine    *hostsim.Machine
	random     *rand.Rand
	pods       []*pod
	containers []*container
	tasks      []ending
	births     int
	due        [2]float64 // containers and processes that are to be born
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

// ending is a process and when it ends, since boot.
type ending struct {
	*hostsim.Task
	in    *container
	until time.Duration
}

const (
	containersPerMinute, processesPerMinute = 100, 400
	staying                                 = 20
	step                                    = 200 * time.Millisecond
)

// newChurn returns a machine whose files are below root.
func newChurn(root string, seed uint64, now time.Time) (*churn, error) {
	curve, err := model.Linear(60, 220)
	if err != nil {
		return nil, err
	}
	c := &churn{
		machine: hostsim.NewMachine(root, &hostsim.Socket{CPUs: 64, Idle: 60, DRAMIdle: 8, Curve: curve}),
		random:  rand.New(rand.NewPCG(seed, 16)),
	}
	c.machine.Host.Booted = now.Add(-c.machine.Now())
	c.machine.Host.Files["proc/sys/kernel/random/boot_id"] = "0c1f6a52-6f0b-4a80-9d3e-6ad1b7a0f7c1\n"
	for range staying {
		if err := c.container(c.newPod(), math.MaxInt64); err != nil {
			return nil, err
		}
		service := c.machine.Init().Spawn()
		service.Move(fmt.Sprintf("/system.slice/service-%d.service", service.PID))
		c.run(service, "/usr/sbin/service")
	}
	return c, os.MkdirAll(filepath.Join(root, "var/log/containers"), 0o755)
}

var namespaces = []string{"shop", "search", "payments", "batch"}

func (c *churn) newPod() *pod {
	p := &pod{namespace: namespaces[c.random.IntN(len(namespaces))]}
	p.uid = strings.Join([]string{c.hex(4), c.hex(2), c.hex(2), c.hex(2), c.hex(6)}, "-")
	p.name = "job-" + c.hex(3)
	c.pods = append(c.pods, p)
	return p
}

func (c *churn) hex(bytes int) string {
	b := make([]byte, bytes)
	for i := range b {
		b[i] = byte(c.random.Uint32())
	}
	return hex.EncodeToString(b)
}

// between returns a random duration, equally likely in each factor.
func (c *churn) between(least, most time.Duration) time.Duration {
	return time.Duration(float64(least) * math.Pow(float64(most)/float64(least), c.random.Float64()))
}

// container starts a container that lives for a time.
func (c *churn) container(p *pod, life time.Duration) error {
	k := &container{pod: p, id: c.hex(32), until: math.MaxInt64, first: c.machine.Init().Spawn()}
	if k.first == nil {
		return fmt.Errorf("no process id is free")
	}
	if life < math.MaxInt64 {
		k.until = c.machine.Now() + life
	}
	p.containers++
	c.containers = append(c.containers, k)
	k.first.Move(k.cgroup())
	c.run(k.first, "/usr/bin/app")
	return c.name(k)
}

func (k *container) cgroup() string {
	pod := strings.ReplaceAll(k.pod.uid, "-", "_")
	return "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod" + pod + ".slice/cri-containerd-" + k.id + ".scope"
}

// run has a process run a program with a load.
func (c *churn) run(t *hostsim.Task, program string) {
	t.Exec(program)
	t.Demand = 0.02 + 0.6*c.random.Float64()*c.random.Float64()
	t.Intensity, t.Memory = 0.5+c.random.Float64(), c.random.Float64()
	c.births++
}

// logs returns the paths by which the kubelet names a container.
func (c *churn) logs(k *container) (dir, link string) {
	log := filepath.Join(c.machine.Host.Root(), "var/log")
	return filepath.Join(log, "pods", k.pod.namespace+"_"+k.pod.name+"_"+k.pod.uid),
		filepath.Join(log, "containers", k.pod.name+"_"+k.pod.namespace+"_app-"+k.id+".log")
}

func (c *churn) name(k *container) error {
	dir, link := c.logs(k)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(link), 0o755); err != nil {
		return err
	}
	return os.WriteFile(link, nil, 0o600)
}

// advance lets time pass until a moment since boot, and shows the machine as it is then.
func (c *churn) advance(until time.Duration) error {
	for c.machine.Now() < until {
		d := min(step, until-c.machine.Now())
		if err := c.turn(d); err != nil {
			return err
		}
		c.machine.Step(d)
	}
	return c.machine.Render()
}

// turn ends what is to end and starts what is born within a time.
func (c *churn) turn(d time.Duration) error {
	now := c.machine.Now()
	c.tasks = slices.DeleteFunc(c.tasks, func(e ending) bool {
		if e.until > now {
			return false
		}
		e.Exit()
		e.Reap(false)
		return true
	})
	var failed error
	c.containers = slices.DeleteFunc(c.containers, func(k *container) bool {
		if k.until > now {
			return false
		}
		failed = c.stop(k)
		return true
	})
	c.due[0] += d.Minutes() * containersPerMinute
	c.due[1] += d.Minutes() * processesPerMinute
	for ; c.due[0] >= 1 && failed == nil; c.due[0]-- {
		p := c.pods[c.random.IntN(len(c.pods))]
		if c.random.IntN(4) > 0 || p.containers == 0 {
			p = c.newPod()
		}
		life := c.between(2*time.Second, 5*time.Minute)
		if c.random.IntN(10) == 0 {
			life = 15 * time.Second
		}
		failed = c.container(p, life)
	}
	for ; c.due[1] >= 1; c.due[1]-- {
		k := c.containers[c.random.IntN(len(c.containers))]
		child := k.first.Spawn()
		c.run(child, "/usr/bin/step")
		c.tasks = append(c.tasks, ending{child, k, now + c.between(step, time.Minute)})
	}
	return failed
}

// stop ends a container with all of its processes.
func (c *churn) stop(k *container) error {
	c.tasks = slices.DeleteFunc(c.tasks, func(e ending) bool {
		if e.in == k {
			e.Exit()
			e.Reap(false)
		}
		return e.in == k
	})
	k.first.Exit()
	k.first.Reap(false)
	c.machine.RemoveCgroup(k.cgroup())
	dir, link := c.logs(k)
	if k.pod.containers--; k.pod.containers > 0 {
		return os.Remove(link)
	}
	c.machine.RemoveCgroup(filepath.Dir(k.cgroup()))
	c.pods = slices.DeleteFunc(c.pods, func(p *pod) bool { return p == k.pod })
	if err := os.Remove(link); err != nil {
		return err
	}
	return os.RemoveAll(dir)
}
