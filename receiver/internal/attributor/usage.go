// SPDX-License-Identifier: Apache-2.0

package attributor

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/energyreceiver/energyreceiver/internal/cgroup"
	"github.com/energyreceiver/energyreceiver/internal/identity"
	"github.com/energyreceiver/energyreceiver/internal/kernfs"
	"github.com/energyreceiver/energyreceiver/internal/usage/proc"
	"github.com/energyreceiver/energyreceiver/receiver/internal/emit"
)

// usage reads the counters of containers and pods that are emitted next to their energy, once in each emission.
type usage struct {
	attributor *Attributor
	stacked    map[string]bool
	last       map[emit.Subject]*emit.Usage
	lastAt     time.Time
}

// openUsage returns the reader of the enabled counters, for Config.Usage of package emit. It
// returns nil if all counters are disabled.
func openUsage(a *Attributor) func(time.Time) map[emit.Subject]*emit.Usage {
	if !a.Options.Config.WantsUsage() {
		return nil
	}
	u := &usage{attributor: a, stacked: findStacked(a.Options.Config.RootPath)}
	return u.read
}

// findStacked returns the major numbers of device mapper, md and loop devices. The devices below
// transfer the same bytes again.
func findStacked(root string) map[string]bool {
	text, _ := kernfs.Within(root, filepath.Join(root, "proc"), func() ([]byte, error) {
		return os.ReadFile(filepath.Join(root, "proc/devices"))
	}, nil)
	majors := map[string]bool{}
	_, blocks, _ := bytes.Cut(text, []byte("Block devices:\n"))
	for line := range bytes.Lines(blocks) {
		if fields := bytes.Fields(line); len(fields) == 2 && slices.Contains([]string{"device-mapper", "md", "mdp", "loop"}, string(fields[1])) {
			majors[string(fields[0])] = true
		}
	}
	return majors
}

// member is the oldest process of a container or pod. Later processes may have a network namespace
// of their own.
type member struct {
	process *proc.Process
	in      *cgroup.Node // of a container
	inPod   bool
}

func (u *usage) read(at time.Time) map[emit.Subject]*emit.Usage {
	members := map[emit.Subject]member{}
	u.attributor.Collector.EachProcess(u.attributor.Options.Node.CPU.Table(), func(p *proc.Process, of identity.Workload, in *cgroup.Node) {
		for _, e := range []identity.Entity{identity.ContainerEntity, identity.PodEntity} {
			if !e.Of(&identity.Owner{Workload: of}) {
				continue
			}
			subject := emit.Subject{Entity: e, Key: e.Key(&of)}
			if m, known := members[subject]; !known || p.Start < m.process.Start {
				members[subject] = member{p, in, of.Pod.UID != ""}
			}
		}
	})
	all := make(map[emit.Subject]*emit.Usage, len(members))
	for subject, m := range members {
		c := counting{usage: u, last: u.last[subject]}
		c.read(subject.Entity, m)
		all[subject] = &c.now
	}
	u.last, u.lastAt = all, at
	return all
}

// counting is the reading of one container or pod.
type counting struct {
	*usage
	last *emit.Usage // the previous reading, or nil
	now  emit.Usage
}

func (c *counting) read(entity identity.Entity, m member) {
	a, metrics := c.attributor, &c.attributor.Options.Config.Metrics
	network := entity == identity.PodEntity && metrics.K8sPodNetworkIo.Enabled
	if entity == identity.ContainerEntity {
		network = metrics.ContainerNetworkIo.Enabled && !m.inPod
		if metrics.ContainerDiskIo.Enabled {
			if read, written, ok := a.Options.Node.Cgroups.DiskIO(m.in, c.stacked); ok {
				c.set(emit.DiskRead, read, a.BootTime)
				c.set(emit.DiskWritten, written, a.BootTime)
			}
		}
	}
	if network {
		if received, transmitted, ok := a.Identifier.Network(m.process); ok {
			c.set(emit.Received, received, a.BootTime)
			c.set(emit.Transmitted, transmitted, a.BootTime)
		}
	}
}

// set sets a counter that was 0 at start. A counter that decreased was reset since the previous
// reading.
func (c *counting) set(counter emit.Counter, value uint64, start time.Time) {
	if c.last != nil && !c.last[counter].Start.IsZero() {
		start = c.last[counter].Start
		if value < c.last[counter].Value {
			start = c.lastAt
		}
	}
	c.now[counter] = emit.Count{Value: value, Start: start}
}
