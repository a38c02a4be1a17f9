// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// render makes the tables of one scrape.
func render(s *snapshot, sums check, rows int, now time.Time) string {
	var b strings.Builder
	line(&b, "NODE at "+now.Format("15:04:05"), "", "POWER", "ACTIVE", "IDLE", "")
	for _, z := range s.zones {
		name := z.name
		if z.overlaps {
			name += " (not added to package)"
		}
		line(&b, name, "", watts(z.activePower+z.idlePower), watts(z.activePower), watts(z.idlePower), "")
	}
	switch s.source {
	case "modeled":
		b.WriteString("MODELED, not measured: figures come from the power curve in the configuration\n")
	case "measured":
		b.WriteString("Measured by the node's energy counters\n")
	}

	total := s.activePower()
	b.WriteString("\n")
	line(&b, "PROCESS", "PID", "POWER", "ENERGY", "SHARE", "RUNS IN")
	var live []*consumer
	var other *consumer
	ended := 0
	for _, p := range s.processes {
		switch {
		case p.ended:
			ended++
		case isOther(p):
			other = p
		default:
			live = append(live, p)
		}
	}
	for _, p := range live[:min(rows, len(live))] {
		row(&b, p, p.labels["process_executable_name"], p.labels["process_pid"], total, runsIn(p))
	}
	if len(live) > rows {
		rest := &consumer{}
		for _, p := range live[rows:] {
			rest.power += p.power
			rest.energy += p.energy
		}
		row(&b, rest, fmt.Sprintf("%d more", len(live)-rows), "", total, "")
	}
	if other != nil {
		row(&b, other, "other", "", total, "too small or short-lived to be reported one by one")
	}
	if sums.ended > 0 || ended > 0 {
		note := fmt.Sprintf("%d that ended lately", ended)
		if sums.earlier > 0 {
			note += fmt.Sprintf(", and %s before this table", joules(sums.earlier))
		}
		line(&b, "ended", "", "-", joules(sums.ended), "-", note)
	}
	line(&b, "unattributed", "", "-", joules(sums.unattributed), "-", "no process can be named for it")

	table(&b, "CONTAINER", s.containers, rows, total, func(c *consumer) (string, string) {
		note := c.labels["container_runtime_name"]
		if uid := c.labels["k8s_pod_uid"]; uid != "" {
			note = strings.TrimSpace(note + " pod " + short(uid))
		}
		return short(c.labels["container_id"]), note
	})
	table(&b, "POD", s.pods, rows, total, func(c *consumer) (string, string) {
		return c.labels["k8s_pod_uid"], c.labels["k8s_pod_qos_class"]
	})
	table(&b, "VM", s.vms, rows, total, func(c *consumer) (string, string) {
		name := c.labels["vm_name"]
		if name == "" {
			name = c.labels["vm_id"]
		}
		return name, c.labels["vm_hypervisor"]
	})

	sign := "="
	if !sums.ok() {
		sign = "IS NOT"
	}
	fmt.Fprintf(&b, "\nΣ processes %.6f J + unattributed %.6f J %s active %.6f J\n",
		sums.processes.joules(), sums.unattributed.joules(), sign, sums.active.joules())
	return b.String()
}

// table is one of the groups: nothing where there are none of its kind.
func table(b *strings.Builder, title string, all []*consumer, rows int, total float64, describe func(*consumer) (name, note string)) {
	var live []*consumer
	for _, c := range all {
		if !c.ended {
			live = append(live, c)
		}
	}
	if len(live) == 0 {
		return
	}
	b.WriteString("\n")
	line(b, title, "", "POWER", "ENERGY", "SHARE", "")
	for _, c := range live[:min(rows, len(live))] {
		name, note := describe(c)
		row(b, c, name, "", total, note)
	}
	if len(live) > rows {
		rest := &consumer{}
		for _, c := range live[rows:] {
			rest.power += c.power
			rest.energy += c.energy
		}
		row(b, rest, fmt.Sprintf("%d more", len(live)-rows), "", total, "")
	}
}

func row(b *strings.Builder, c *consumer, name, pid string, total float64, note string) {
	share := "-"
	if total > 0 {
		share = fmt.Sprintf("%.1f%%", 100*c.power/total)
	}
	line(b, name, pid, watts(c.power), joules(c.energy), share, note)
}

func line(b *strings.Builder, name, pid, power, energy, share, note string) {
	const width = 36 // a pod's UID
	if n := utf8.RuneCountInString(name); n > width {
		name = string([]rune(name)[:width-1]) + "…"
	}
	if pid != "" { // shares the name's column
		const rest = width - 9
		if utf8.RuneCountInString(name) > rest {
			name = string([]rune(name)[:rest-1]) + "…"
		}
		name = fmt.Sprintf("%-*s %8s", rest, name, pid)
	}
	b.WriteString(strings.TrimRight(clean(fmt.Sprintf("%-*s %10s %12s %7s  %s", width, name, power, energy, share, note)), " ") + "\n")
}

// isOther tells the series that stands for all the small processes.
func isOther(c *consumer) bool {
	return c.labels["process_pid"] == "" && c.labels["process_executable_name"] == "other"
}

func runsIn(p *consumer) string {
	switch {
	case p.labels["vm_id"] != "":
		return "vm " + short(p.labels["vm_id"])
	case p.labels["container_id"] != "" && p.labels["k8s_pod_uid"] != "":
		return "container " + short(p.labels["container_id"]) + " pod " + short(p.labels["k8s_pod_uid"])
	case p.labels["container_id"] != "":
		return "container " + short(p.labels["container_id"])
	case p.labels["k8s_pod_uid"] != "":
		return "pod " + short(p.labels["k8s_pod_uid"])
	}
	return ""
}

// short is enough of an id to find it again. An id that is qualified has enough of each part.
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

// clean keeps what others named from steering the terminal.
func clean(s string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return '?'
		}
		return r
	}, s)
}

func watts(w float64) string {
	switch {
	case w > 0 && w < 0.01:
		return fmt.Sprintf("%.2f mW", 1e3*w)
	case w > 0 && w < 1:
		return fmt.Sprintf("%.0f mW", 1e3*w)
	case w < 10:
		return fmt.Sprintf("%.2f W", w)
	default:
		return fmt.Sprintf("%.1f W", w)
	}
}

func joules(e microjoules) string {
	switch j := e.joules(); {
	case j > 0 && j < 0.01:
		return fmt.Sprintf("%.2f mJ", 1e3*j)
	case j > 0 && j < 1:
		return fmt.Sprintf("%.0f mJ", 1e3*j)
	case j < 100:
		return fmt.Sprintf("%.2f J", j)
	case j < 10_000:
		return fmt.Sprintf("%.1f J", j)
	case j < 10_000_000:
		return fmt.Sprintf("%.1f kJ", j/1e3)
	default:
		return fmt.Sprintf("%.1f MJ", j/1e6)
	}
}
