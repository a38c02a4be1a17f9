// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"math"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/energyreceiver/energyreceiver/cmd/energy/internal/figure"
	"github.com/energyreceiver/energyreceiver/cmd/energy/internal/top"
	"github.com/energyreceiver/energyreceiver/internal/units"
)

// framer makes frames of snapshots. It stores the totals of the first snapshot to compute the
// energy since then.
type framer struct {
	host  string
	procs *processFiles          // nil where the processes are not those of this machine
	fresh bool                   // all totals began at since, which is set
	since time.Time              // of the first snapshot
	first map[string]microjoules // totals of the first snapshot
	base  check                  // sums of the first snapshot
	last  microjoules            // active energy of the last one
	programs
}

// frame returns a snapshot as a frame. sums are those of the same snapshot.
func (f *framer) frame(s *snapshot, sums check, now time.Time) *top.Frame {
	f.begin(s, sums, now)
	out := &top.Frame{At: now, Since: f.since, Host: cmp.Or(f.host, s.host), Active: s.activePower()}
	for _, z := range s.zones {
		energy := f.used("zone "+z.name, z.active+z.idle)
		if z.besides == "" {
			out.Node += energy
		}
		out.Zones = append(out.Zones, top.Zone{
			Name: z.name, Besides: z.besides, Source: z.source, Active: z.activePower, Idle: z.idlePower, Energy: energy,
		})
	}
	if err := sums.err(); err != nil {
		out.Wrong = err.Error()
	}
	names := namesOf(s)
	for view, all := range map[top.View][]*consumer{
		top.Processes: s.processes, top.Containers: s.containers, top.Pods: s.pods, top.VMs: s.vms, top.Units: s.units, top.Jobs: s.jobs,
	} {
		out.Tables[view] = f.rows(view, all, names)
	}
	f.nameOwners(s.processes, out.Tables[top.Processes])
	out.Tables[top.Programs] = f.programRows(s.processes, names, out.Tables[top.Processes])
	out.Tables[top.Users] = userRows(out.Tables[top.Programs])
	for _, view := range []top.View{top.Programs, top.Processes, top.Users} {
		if rows := out.Tables[view]; len(rows) > 0 {
			out.Tables[view] = append(rows, f.without(rows, sums)...)
		}
	}
	for _, g := range s.gpus {
		row := top.Row{
			Key: g.id, Power: g.power, GPU: g.power, Busy: g.utilization, CPUTime: -1, Energy: f.used("gpu "+g.id, g.energy), Total: units.Energy(g.energy),
		}
		row.Text[top.Name], row.Text[top.ID] = cmp.Or(g.name, g.id), g.id
		out.Tables[top.GPUs] = append(out.Tables[top.GPUs], row)
	}
	return out
}

// begin keeps the first snapshot. One with less energy than the last is of a collector that began
// anew: all of its energy is since then.
func (f *framer) begin(s *snapshot, sums check, now time.Time) {
	begun, restarted := f.first != nil, sums.active < f.last
	f.last = sums.active
	if begun && !restarted {
		return
	}
	f.first, f.base, f.programs = map[string]microjoules{}, check{}, newPrograms()
	if restarted || f.fresh {
		return
	}
	f.since, f.base = now, sums
	for _, z := range s.zones {
		f.first["zone "+z.name] = z.active + z.idle
	}
	for _, g := range s.gpus {
		f.first["gpu "+g.id] = g.energy
	}
	for _, c := range s.consumers() {
		f.first[c.key] = c.energy
	}
}

// used returns what has been added to a total since the first snapshot. A total that was not there began at 0.
func (f *framer) used(key string, total microjoules) units.Energy {
	if first := f.first[key]; first <= total {
		total -= first
	}
	return units.Energy(total)
}

// rows returns the rows of the consumers that have not ended. The overflow series without names is pinned.
func (f *framer) rows(view top.View, all []*consumer, names names) (rows []top.Row) {
	live := running(all)
	f.procs.begin(time.Now())
	for _, c := range live {
		r := top.Row{
			Key: c.key, Power: c.power, GPU: c.gpu, Busy: math.NaN(), CPUTime: c.cpuTime, Energy: f.used(c.key, c.energy), Total: units.Energy(c.energy),
		}
		group := groupName(c)
		if r.Pinned = isOverflow(c) && group == ""; r.Pinned {
			r.Text[top.Name] = "(others): too small to be reported one by one"
			rows = append(rows, r)
			continue
		}
		describe(&r, view, c, names)
		if isOverflow(c) {
			r.Text[top.Name] = "(others): " + group
		}
		if view == top.Processes {
			f.procs.describe(&r, c.labels[labelCreated])
		}
		rows = append(rows, r)
	}
	return rows
}

// without returns the rows of energy that has no running process: the energy of exited processes and
// unattributed energy. With these rows, all rows add up to the active energy since the first
// snapshot.
func (f *framer) without(rows []top.Row, sums check) []top.Row {
	unattributed := units.Energy(sums.unattributed - min(f.base.unattributed, sums.unattributed))
	ended := units.Energy(sums.active-min(f.base.active, sums.active)) - unattributed
	total := sums.processes
	for i := range rows {
		ended -= rows[i].Energy
		total -= microjoules(rows[i].Total)
	}
	var out []top.Row
	add := func(name string, energy units.Energy, total microjoules) {
		r := top.Row{Key: name, Pinned: true, Power: math.NaN(), GPU: math.NaN(), CPUTime: -1, Energy: max(energy, 0), Total: units.Energy(total)}
		r.Text[top.Name] = name
		out = append(out, r)
	}
	if ended > 0 || total > 0 {
		add("ended: processes that are gone", ended, max(total, 0))
	}
	add("unattributed: no process can be named for it", unattributed, sums.unattributed)
	return out
}

// names holds the names of containers, images and pods, by ID. The metrics of processes have only
// the IDs.
type names struct{ container, image, pod map[string]string }

func namesOf(s *snapshot) names {
	n := names{container: map[string]string{}, image: map[string]string{}, pod: map[string]string{}}
	for _, c := range s.containers {
		id := c.labels[labelContainer]
		if id == "" {
			continue
		}
		n.container[id], n.image[id] = containerName(c), c.labels["container_image_name"]
	}
	for _, c := range s.pods {
		n.pod[c.labels[labelPod]] = podOf(c)
	}
	return n
}

func containerName(c *consumer) string {
	return cmp.Or(c.labels["k8s_container_name"], c.labels["container_name"], short(c.labels[labelContainer]))
}

// groupName returns the names that the containers or pods of an overflow series share, empty if there are none.
func groupName(c *consumer) string {
	return cmp.Or(c.labels["k8s_container_name"], c.labels["container_image_name"], c.labels["k8s_namespace_name"])
}

// describe fills the texts of a row from labels.
func describe(r *top.Row, view top.View, c *consumer, n names) {
	l := c.labels
	t := &r.Text
	t[top.Pod], t[top.Namespace] = cmp.Or(n.pod[l[labelPod]], short(l[labelPod])), l["k8s_namespace_name"]
	t[top.VM], t[top.Unit] = short(l[labelVM]), l[labelUnit]
	switch view {
	case top.Programs, top.Processes:
		t[top.Name] = programName(c)
		if view == top.Processes {
			t[top.Name] = processName(c)
		}
		id := l[labelContainer]
		t[top.Container], t[top.Image] = cmp.Or(n.container[id], short(id)), n.image[id]
		pid, err := strconv.ParseInt(l[labelPID], 10, 32)
		if err == nil {
			r.PID = int32(pid)
		}
		_, t[top.Arguments], _ = strings.Cut(l[labelCommandLine], " ")
		t[top.User] = l[labelOwner]
	case top.Containers:
		t[top.Name], t[top.ID] = containerName(c), short(l[labelContainer])
		t[top.Runtime], t[top.Image] = l["container_runtime_name"], l["container_image_name"]
	case top.Pods:
		t[top.Name], t[top.ID], t[top.Class] = cmp.Or(l["k8s_pod_name"], short(l[labelPod])), l[labelPod], l["k8s_pod_qos_class"]
		t[top.Pod] = ""
	case top.VMs:
		t[top.Name], t[top.ID], t[top.Runtime] = cmp.Or(l["vm_name"], l[labelVM]), l[labelVM], l["vm_hypervisor"]
		t[top.VM] = ""
	case top.Units:
		t[top.Name], t[top.Unit] = l[labelUnit], ""
	case top.Jobs:
		t[top.Name] = strings.TrimSuffix(l[labelJob]+"."+l[labelStep], ".")
	}
}

// hostOf returns the name of the machine that an endpoint is on, empty if it is this one.
func hostOf(endpoint string) string {
	u, err := url.Parse(endpoint)
	if err != nil || isLoopback(u.Hostname()) {
		return ""
	}
	return figure.Line(u.Hostname())
}
