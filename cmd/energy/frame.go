// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"errors"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/energyreceiver/energyreceiver/cmd/energy/internal/snapshot"
	"github.com/energyreceiver/energyreceiver/cmd/energy/internal/top"
	"github.com/energyreceiver/energyreceiver/internal/units"
)

// viewOfKind has the view of each kind of workloads.
var viewOfKind = [snapshot.NumKinds]top.View{
	snapshot.Process: top.Processes, snapshot.Container: top.Containers, snapshot.Pod: top.Pods, snapshot.VM: top.VMs,
	snapshot.Unit: top.Units, snapshot.Job: top.Jobs,
}

// frameOf returns the figures of an account, and of its newest snapshot, as a frame. files may be nil.
func frameOf(a *snapshot.Account, s *snapshot.Snapshot, files *processFiles) *top.Frame {
	f := &top.Frame{At: a.At().Local(), Since: a.Since().Local(), Period: a.Period(), Host: s.Host}
	for i, z := range a.Zones() {
		active, idle, unattributed := a.ZoneUsed(i)
		zone := top.Zone{
			Name: string(z.Zone), Besides: z.Besides, Source: string(z.Method), Uncertainty: z.Uncertainty,
			Energy: active.Used + idle.Used, ActiveEnergy: active.Used, Unattributed: unattributed.Used,
		}
		if zone.Active, zone.Idle = a.ZoneWatts(i); s.Kepler {
			zone.Source = "Kepler"
		}
		if z.Besides == "" {
			f.Node += zone.Energy
			f.Active += zone.Active
		}
		f.Zones = append(f.Zones, zone)
	}
	b := frameBuilder{Account: a, active: f.Active, kepler: s.Kepler, names: namesOf(s), files: files}
	files.begin(time.Now())
	for kind, view := range viewOfKind {
		f.Tables[view] = b.rows(view, snapshot.Kind(kind), a.Workloads(snapshot.Kind(kind)))
	}
	f.Tables[top.Programs] = b.rows(top.Programs, snapshot.Process, a.Programs())
	nameCommands(f.Tables[top.Programs], f.Tables[top.Processes])
	f.Tables[top.Users] = sums(f.Tables[top.Programs], top.User, "(unknown)")
	f.Tables[top.Namespaces] = sums(f.Tables[top.Pods], top.Namespace, "(unknown)")
	for _, m := range s.Meters {
		if m.Type == "gpu" {
			row := top.Row{Key: m.ID, Power: m.Watts, GPU: m.Watts, Busy: m.Utilization, CPUTime: -1}
			row.Energy, row.Total = a.MeterUsed(m.ID), m.Energy
			row.Text[top.Name], row.Text[top.ID] = cmp.Or(m.Name, m.ID), m.ID
			f.Tables[top.GPUs] = append(f.Tables[top.GPUs], row)
		}
	}
	if b.wrong != nil {
		f.Wrong = strings.ReplaceAll("the sums are wrong: "+b.wrong.Error(), "\n", "; ")
	}
	return f
}

// frameBuilder makes rows of the tables of an account.
type frameBuilder struct {
	*snapshot.Account
	active float64 // watts
	kepler bool
	names  names
	files  *processFiles
	wrong  error
}

// rows returns the rows of a table, and below them energy without a workload. It returns no rows if
// there are no workloads.
func (b *frameBuilder) rows(view top.View, kind snapshot.Kind, t snapshot.Table) (rows []top.Row) {
	if len(t.Rows) == 0 {
		return nil
	}
	b.wrong = errors.Join(b.wrong, t.Err)
	left := b.active
	for i := range t.Rows {
		rows = append(rows, b.row(view, &t.Rows[i]))
		left -= snapshot.Plus(0, rows[i].Power)
	}
	others := "(outside): of processes outside of any " + kind.String()
	switch {
	case kind == snapshot.Process && b.kepler:
		others = "(missed): of no process that Kepler reports"
	case kind == snapshot.Process:
		others = "(missed): of processes that exited before they were read"
	}
	for _, rest := range []struct {
		name    string
		amounts []snapshot.Amount
	}{{"exited: no longer listed", t.Ended}, {others, t.Others}, {"unattributed: energy without an owner", t.Unattributed}} {
		r := top.Row{Key: rest.name, Pinned: true, Power: b.Watts(rest.amounts), GPU: math.NaN(), Busy: math.NaN(), CPUTime: -1}
		if math.IsNaN(r.Power) && rest.name == others { // powers are as reported
			r.Power = max(0, math.Round(left*1e6)/1e6)
		}
		sum := b.Sum(rest.amounts)
		r.Energy, r.Total, r.Zones, r.Text[top.Name] = sum.Used, sum.Total, usedOf(rest.amounts), rest.name
		rows = append(rows, r)
	}
	return rows
}

// row returns the row of a workload. The overflow series without names is pinned.
func (b *frameBuilder) row(view top.View, e *snapshot.Entry) top.Row {
	sum := b.Sum(e.Amounts)
	r := top.Row{Key: keyOf(&e.Identity), Power: e.Watts, GPU: e.GPUWatts, Busy: math.NaN(), CPUTime: e.CPUTime}
	// A series that began again without a start timestamp has less energy than was used in total.
	r.Energy, r.Total, r.Zones = sum.Used, max(sum.Total, sum.Used), usedOf(e.Amounts)
	group := cmp.Or(e.Identity[snapshot.ContainerName], e.Identity[snapshot.Image], e.Identity[snapshot.Namespace])
	overflow := e.IsOverflow()
	if r.Pinned = overflow && group == ""; r.Pinned {
		r.Text[top.Name] = "(others): too small to be reported one by one"
		return r
	}
	b.names.describe(&r, view, &e.Identity)
	if overflow {
		r.Text[top.Name] = "(others): " + group
	}
	if view == top.Processes {
		b.files.describe(&r, e.Identity[snapshot.Created])
	}
	return r
}

// usedOf returns the energies of amounts since the first snapshot.
func usedOf(amounts []snapshot.Amount) []units.Energy {
	used := make([]units.Energy, len(amounts))
	for i := range amounts {
		used[i] = amounts[i].Used
	}
	return used
}

// keyOf returns a text that distinguishes a workload from others of its kind.
func keyOf(id *snapshot.Identity) string { return strings.Join(id[:], "\x00") }

// nameCommands sets the command of each program: the command line of its process with the highest
// power.
func nameCommands(programs, processes []top.Row) {
	largest := map[string]*top.Row{}
	for i := range processes {
		p := &processes[i]
		if best := largest[p.Program]; p.PID > 0 && (best == nil || p.Power > best.Power) {
			largest[p.Program] = p
		}
	}
	for i := range programs {
		if p := largest[programs[i].Program]; p != nil && p.Text[top.Arguments] != "" {
			programs[i].Text[top.Command] = p.Text[top.Name] + " " + p.Text[top.Arguments]
		}
	}
}

// sums returns the sums of rows with the same text, and the pinned rows. It returns no rows if no row
// has the text.
func sums(of []top.Row, text top.Text, unknown string) (rows []top.Row) {
	index := map[string]int{}
	var pinned []top.Row
	for i := range of {
		from := &of[i]
		if from.Pinned {
			pinned = append(pinned, *from)
			continue
		}
		name := cmp.Or(from.Text[text], unknown)
		at, ok := index[name]
		if !ok {
			at = len(rows)
			index[name] = at
			r := top.Row{Key: name, Busy: math.NaN(), Power: math.NaN(), GPU: math.NaN(), Zones: make([]units.Energy, len(from.Zones))}
			r.Text[top.Name] = name
			rows = append(rows, r)
		}
		r := &rows[at]
		r.Power, r.GPU = snapshot.Plus(r.Power, from.Power), snapshot.Plus(r.GPU, from.GPU)
		r.Energy += from.Energy
		r.Total += from.Total
		for z := range from.Zones {
			r.Zones[z] += from.Zones[z]
		}
		if r.CPUTime >= 0 {
			r.CPUTime += from.CPUTime
		}
		if from.CPUTime < 0 { // the sum is not complete
			r.CPUTime = -1
		}
	}
	if _, only := index[unknown]; only && len(rows) == 1 || len(rows) == 0 {
		return nil
	}
	return append(rows, pinned...)
}

// names holds the names of containers, images and pods, by ID. The metrics of processes have only
// the IDs.
type names struct{ container, image, pod map[string]string }

func namesOf(s *snapshot.Snapshot) names {
	n := names{container: map[string]string{}, image: map[string]string{}, pod: map[string]string{}}
	for i := range s.Rows {
		id := &s.Rows[i].Identity
		switch s.Rows[i].Kind {
		case snapshot.Container:
			if key := id[snapshot.ContainerID]; key != "" {
				n.container[key], n.image[key] = containerName(id), id[snapshot.Image]
			}
		case snapshot.Pod:
			n.pod[id[snapshot.PodUID]] = podName(id)
		}
	}
	return n
}

func containerName(id *snapshot.Identity) string {
	return cmp.Or(id[snapshot.ContainerName], short(id[snapshot.ContainerID]))
}

// podName returns a pod's name with its namespace, or else its shortened UID.
func podName(id *snapshot.Identity) string {
	if name := id[snapshot.PodName]; name != "" {
		return strings.TrimPrefix(id[snapshot.Namespace]+"/"+name, "/")
	}
	return short(id[snapshot.PodUID])
}

// describe fills the texts of a row.
func (n *names) describe(r *top.Row, view top.View, id *snapshot.Identity) {
	t := &r.Text
	t[top.Pod], t[top.Namespace] = cmp.Or(n.pod[id[snapshot.PodUID]], short(id[snapshot.PodUID])), id[snapshot.Namespace]
	t[top.VM], t[top.Unit] = short(id[snapshot.VMID]), id[snapshot.UnitName]
	switch view {
	case top.Programs, top.Processes:
		t[top.Name] = programName(id)
		program := id.Program()
		r.Program = keyOf(&program)
		if view == top.Processes && id[snapshot.PID] == "" && id[snapshot.Descendants] == "" {
			t[top.Name] += " (small or exited)"
		}
		container := id[snapshot.ContainerID]
		t[top.Container], t[top.Image] = cmp.Or(n.container[container], short(container)), n.image[container]
		if pid, err := strconv.ParseInt(id[snapshot.PID], 10, 32); err == nil {
			r.PID = int32(pid)
		}
		_, t[top.Arguments], _ = strings.Cut(id[snapshot.CommandLine], " ")
		t[top.User] = id[snapshot.Owner]
	case top.Containers:
		t[top.Name], t[top.ID] = containerName(id), short(id[snapshot.ContainerID])
		t[top.Runtime], t[top.Image] = id[snapshot.Runtime], id[snapshot.Image]
	case top.Pods:
		t[top.Name], t[top.ID] = cmp.Or(id[snapshot.PodName], short(id[snapshot.PodUID])), id[snapshot.PodUID]
		t[top.Class], t[top.Pod] = id[snapshot.QoSClass], ""
	case top.VMs:
		t[top.Name], t[top.ID] = cmp.Or(id[snapshot.VMName], id[snapshot.VMID]), id[snapshot.VMID]
		t[top.Runtime], t[top.VM] = id[snapshot.Hypervisor], ""
	case top.Units:
		t[top.Name], t[top.Unit] = id[snapshot.UnitName], ""
	case top.Jobs:
		t[top.Name] = strings.TrimSuffix(id[snapshot.JobID]+"."+id[snapshot.StepID], ".")
	}
}

// programName returns the name of a process's program.
func programName(id *snapshot.Identity) string {
	name := cmp.Or(id[snapshot.Executable], "(unnamed)")
	if id[snapshot.Descendants] == "true" {
		name += " (descendants)"
	}
	return name
}

// short returns a prefix of an ID that is long enough to find it. A qualified ID is shortened part
// by part.
func short(id string) string {
	if owner, name, found := strings.Cut(id, "/"); found {
		if !strings.HasSuffix(owner, ".service") && !strings.HasSuffix(owner, ".scope") {
			owner = short(owner)
		}
		return owner + "/" + short(name)
	}
	if head, _, found := strings.Cut(id, "-"); found && len(head) == 8 { // a UUID
		return head
	}
	if r := []rune(id); len(r) > 13 {
		return string(r[:12])
	}
	return id
}
