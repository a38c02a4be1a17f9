// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/energyreceiver/energyreceiver/cmd/energy/internal/figure"
	"github.com/energyreceiver/energyreceiver/internal/units"
)

// render returns the tables of one scrape: the node, its largest consumers of each kind, and
// whether their energy adds up.
func render(s *snapshot, sums check, rows int, now time.Time) string {
	var b strings.Builder
	renderNode(&b, s, now)
	renderGPUs(&b, s)
	w := workloads{b: &b, rows: rows, total: s.activePower()}
	w.gpus = slices.ContainsFunc(s.zones, func(z *zone) bool { return z.name == "gpu" })
	w.programs(s, sums)
	w.processes(s)
	w.table("CONTAINER", s.containers, func(c *consumer) (string, string) {
		id := short(c.labels[labelContainer])
		name := cmp.Or(c.labels["k8s_container_name"], c.labels["container_name"], id)
		note := []string{c.labels["container_runtime_name"]}
		if name != id {
			note = append(note, id)
		}
		if pod := podOf(c); pod != "" {
			note = append(note, "pod", pod)
		}
		return name, strings.TrimSpace(strings.Join(note, " "))
	})
	w.table("POD", s.pods, func(c *consumer) (string, string) {
		if c.labels["k8s_pod_name"] == "" {
			return c.labels[labelPod], c.labels["k8s_pod_qos_class"]
		}
		return podOf(c), strings.TrimSpace(c.labels["k8s_pod_qos_class"] + " " + short(c.labels[labelPod]))
	})
	w.table("VM", s.vms, func(c *consumer) (string, string) {
		return cmp.Or(c.labels["vm_name"], c.labels[labelVM]), c.labels["vm_hypervisor"]
	})
	renderSums(&b, sums)
	return b.String()
}

func renderNode(b *strings.Builder, s *snapshot, now time.Time) {
	line(b, "NODE at "+now.Format("15:04:05"), "", "POWER", "ACTIVE", "IDLE", "")
	has := func(source string) bool {
		return slices.ContainsFunc(s.zones, func(z *zone) bool { return z.source == source })
	}
	modeled, measured, reported := has("modeled"), has("measured"), has("reported")
	for _, z := range s.zones {
		name := z.name
		if z.besides != "" {
			name += " (not added to " + z.besides + ")"
		}
		if (measured || reported) && z.source == "modeled" {
			name += " (modeled)"
		}
		line(b, name, "", watts(z.activePower+z.idlePower), watts(z.activePower), watts(z.idlePower), "")
	}
	switch {
	case modeled && (measured || reported):
		b.WriteString("MODELED, not measured, for zones marked (modeled): their figures come from a power curve\n")
	case modeled:
		b.WriteString("MODELED, not measured: figures come from a power curve\n")
	case reported:
		b.WriteString("Reported by the hypervisor\n")
	case measured:
		b.WriteString("Measured by the node's energy counters\n")
	}
}

// renderGPUs writes a row for each GPU, or nothing if there is none.
func renderGPUs(b *strings.Builder, s *snapshot) {
	if len(s.gpus) == 0 {
		return
	}
	b.WriteString("\n")
	line(b, "GPU", "", "POWER", "ENERGY", "BUSY", "")
	for _, g := range s.gpus {
		power, busy := "-", "-"
		if !math.IsNaN(g.power) {
			power = watts(g.power)
		}
		if !math.IsNaN(g.utilization) {
			busy = fmt.Sprintf("%.1f%%", 100*g.utilization)
		}
		line(b, cmp.Or(g.name, g.id), "", power, joules(g.energy), busy, g.id)
	}
}

// workloads writes the tables of workloads.
type workloads struct {
	b     *strings.Builder
	rows  int     // of a table
	total float64 // power that they share
	gpus  bool    // there is a column for the power of GPUs
}

// programs writes the table of programs, and below it the energy without a program.
func (w *workloads) programs(s *snapshot, sums check) {
	w.head("PROGRAM", "", "USER, RUNS IN")
	programs := programsOf(s.processes)
	w.largest(programs, func(p *consumer) (string, string, string) {
		return programName(p), "", strings.TrimSpace(p.labels[labelOwner] + " " + runsIn(p))
	})
	live := running(s.processes)
	if i := slices.IndexFunc(live, isOverflow); i >= 0 {
		w.row(live[i], "(others)", "", "too small to be reported one by one")
	}
	ended := sums.ended
	for _, p := range s.processes {
		if p.ended && !isOverflow(p) {
			ended -= p.energy // in the row of its program
		}
	}
	if ended > 0 {
		note := "what has ended"
		if sums.earlier > 0 {
			note += fmt.Sprintf(", and %s before this table", joules(sums.earlier))
		}
		w.line("ended", "", "-", "-", joules(ended), "-", note)
	}
	w.line("unattributed", "", "-", "-", joules(sums.unattributed), "-", "no process can be named for it")
}

// processes writes the table of the processes that have a series each.
func (w *workloads) processes(s *snapshot) {
	live := running(s.processes)
	live = slices.DeleteFunc(live, func(c *consumer) bool { return c.labels[labelPID] == "" })
	if len(live) == 0 {
		return
	}
	w.head("PROCESS", "PID", "USER, RUNS IN")
	w.largest(live, func(p *consumer) (string, string, string) {
		return programName(p), p.labels[labelPID], strings.TrimSpace(p.labels[labelOwner] + " " + runsIn(p))
	})
}

// table writes the table of one kind of consumer, or nothing if none of them runs.
func (w *workloads) table(title string, all []*consumer, describe func(*consumer) (name, note string)) {
	live := running(all)
	if len(live) == 0 {
		return
	}
	w.head(title, "", "")
	w.largest(live, func(c *consumer) (string, string, string) {
		name, note := describe(c)
		return name, "", note
	})
}

// running returns the consumers that have not ended.
func running(all []*consumer) (live []*consumer) {
	for _, c := range all {
		if !c.ended {
			live = append(live, c)
		}
	}
	return live
}

// largest writes a row for each of the first consumers, and one for all others.
func (w *workloads) largest(all []*consumer, describe func(*consumer) (name, pid, note string)) {
	for _, c := range all[:min(w.rows, len(all))] {
		name, pid, note := describe(c)
		w.row(c, name, pid, note)
	}
	if len(all) <= w.rows {
		return
	}
	rest := &consumer{}
	for _, c := range all[w.rows:] {
		rest.power += c.power
		rest.gpu += c.gpu
		rest.energy += c.energy
	}
	w.row(rest, fmt.Sprintf("%d more", len(all)-w.rows), "", "")
}

func (w *workloads) head(title, pid, note string) {
	w.b.WriteString("\n")
	w.line(title, pid, "POWER", "GPU", "ENERGY", "SHARE", note)
}

func (w *workloads) row(c *consumer, name, pid, note string) {
	share, gpus := "-", "-"
	if w.total > 0 {
		share = fmt.Sprintf("%.1f%%", 100*c.power/w.total)
	}
	if c.gpu > 0 {
		gpus = watts(c.gpu)
	}
	w.line(name, pid, watts(c.power), gpus, joules(c.energy), share, note)
}

func (w *workloads) line(name, pid, power, gpus, energy, share, note string) {
	if w.gpus {
		power = fmt.Sprintf("%10s %10s", power, gpus)
	}
	line(w.b, name, pid, power, energy, share, note)
}

func renderSums(b *strings.Builder, sums check) {
	if sums.loose {
		fmt.Fprintf(b, "\nΣ processes %.6f J of active %.6f J, by Kepler\n", sums.processes.joules(), sums.active.joules())
		return
	}
	sign := "="
	if !sums.ok() {
		sign = "IS NOT"
	}
	fmt.Fprintf(b, "\nΣ processes %.6f J + unattributed %.6f J %s active %.6f J\n",
		sums.processes.joules(), sums.unattributed.joules(), sign, sums.active.joules())
}

func line(b *strings.Builder, name, pid, power, energy, share, note string) {
	const width = 36 // a pod's UID
	if pid != "" {   // the PID is in the name's column
		name = fmt.Sprintf("%s %8s", figure.Pad(name, width-9), pid)
	}
	b.WriteString(strings.TrimRight(fmt.Sprintf("%s %10s %12s %7s  %s", figure.Pad(name, width), power, energy, share, figure.Clean(note)), " ") + "\n")
}

// podOf returns the pod's name with its namespace, or else its shortened UID.
func podOf(c *consumer) string {
	if name := c.labels["k8s_pod_name"]; name != "" {
		return strings.TrimPrefix(c.labels["k8s_namespace_name"]+"/"+name, "/")
	}
	return short(c.labels[labelPod])
}

func runsIn(p *consumer) string {
	switch {
	case p.labels[labelVM] != "":
		return "vm " + short(p.labels[labelVM])
	case p.labels[labelContainer] != "" && p.labels[labelPod] != "":
		return "container " + short(p.labels[labelContainer]) + " pod " + short(p.labels[labelPod])
	case p.labels[labelContainer] != "":
		return "container " + short(p.labels[labelContainer])
	case p.labels[labelPod] != "":
		return "pod " + short(p.labels[labelPod])
	case p.labels[labelOverflow] == "true":
		return "several containers or units"
	}
	return p.labels[labelUnit]
}

// short returns a prefix of an id that is long enough to find it. A qualified id is shortened part by part.
func short(id string) string {
	if delegate, name, found := strings.Cut(id, "/"); found {
		if !strings.HasSuffix(delegate, ".service") && !strings.HasSuffix(delegate, ".scope") {
			delegate = short(delegate)
		}
		return delegate + "/" + short(name)
	}
	if head, _, found := strings.Cut(id, "-"); found && len(head) == 8 { // a UUID
		return head
	}
	if r := []rune(id); len(r) > 13 {
		return string(r[:12])
	}
	return id
}

func watts(w float64) string { return figure.Watts(w) }

func joules(e microjoules) string { return figure.Joules(units.Energy(max(e, 0))) }
