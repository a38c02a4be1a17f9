// SPDX-License-Identifier: Apache-2.0

package measure

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/energyreceiver/energyreceiver/cmd/energy/internal/figure"
	"github.com/energyreceiver/energyreceiver/cmd/energy/internal/phase"
	"github.com/energyreceiver/energyreceiver/internal/units"
)

// WriteTable writes the result for people.
func (r *Result) WriteTable(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "Command   %s\n", figure.Fit(figure.Command(r.Command), figure.Columns-len("Command   ")))
	if r.Exit != 0 {
		fmt.Fprintf(&b, "Exit      %d\n", r.Exit)
	}
	fmt.Fprintf(&b, "Time      %s, %s of CPU time (%s)\n", figure.Seconds(r.Wall), figure.Seconds(r.CPU), r.CPUTime)
	if len(r.Zones) == 0 {
		b.WriteString("Energy    unknown\n")
	} else {
		fmt.Fprintf(&b, "Energy    %s = %s, %s on average\n", figure.Joules(r.Used()), figure.WattHours(r.Used()), meanWatts(r.Used(), r.Wall))
		if r.WholeNode {
			fmt.Fprintf(&b, "Node      %s = %s, %s on average\n", figure.Joules(r.Node()), figure.WattHours(r.Node()), meanWatts(r.Node(), r.Wall))
		}
		r.Rates.write(&b, r)
		r.writeZones(&b)
		if r.By == "" || r.By == ByProgram && len(r.Workloads) == 0 {
			r.writePrograms(&b)
		}
		r.writeWorkloads(&b)
		r.writeFunctions(&b)
		if r.By == "" || r.By == ByPhase {
			r.writePhases(&b)
		}
	}
	r.writeLeft(&b)
	r.writeNotes(&b)
	_, err := io.WriteString(w, b.String())
	return err
}

func meanWatts(e units.Energy, d time.Duration) string { return figure.Watts(units.Watts(e, d)) }

func (r *Result) writeZones(b *strings.Builder) {
	row := func(zone, source, energy, power, share, node, static string) {
		line := fmt.Sprintf("%s %-9s%11s%11s%7s%11s  %s", figure.Pad(zone, 19), source, energy, power, share, node, static)
		b.WriteString(strings.TrimRight(line, " ") + "\n")
	}
	b.WriteString("\n")
	row("ZONE", "SOURCE", "ENERGY", "POWER", "SHARE", "NODE", "STATIC")
	var overlapped string
	added := 0
	for i := range r.Zones {
		z := &r.Zones[i]
		name := z.Name
		if z.Besides == "" {
			added++
		} else {
			name, overlapped = "("+name+")", z.Besides
		}
		row(name, z.Source, figure.Joules(z.Used), meanWatts(z.Used, r.Wall), figure.Share(z.Used, z.Node()), figure.Joules(z.Node()), shortStatic[z.Static])
	}
	if added > 1 {
		row("sum", "", figure.Joules(r.Used()), meanWatts(r.Used(), r.Wall), figure.Share(r.Used(), r.Node()), figure.Joules(r.Node()), "")
	}
	if overlapped != "" {
		fmt.Fprintf(b, "Zones in parentheses overlap with %s, and are not added\n", overlapped)
	}
}

// shortStatic has the names of what static power is known from, as short as the column.
var shortStatic = map[Static]string{
	StaticModel: "model", StaticConfiguration: "config", StaticBaseline: "baseline", StaticLearned: "learned", StaticLearning: "learning",
	StaticHypervisor: "none", StaticUnknown: "unknown",
}

// maxPrograms is the maximum number of programs with a row each.
const maxPrograms = 6

// writePrograms writes a row for each of the programs that used the most, and one for the others,
// if there are several programs.
func (r *Result) writePrograms(b *strings.Builder) {
	if len(r.Programs) < 2 {
		return
	}
	fmt.Fprintf(b, "\n%-29s%11s%11s%7s\n", "PROGRAM", "ENERGY", "POWER", "SHARE")
	row := func(name string, used units.Energy) {
		fmt.Fprintf(b, "%s %11s%11s%7s\n", figure.Pad(name, 28), figure.Joules(used), meanWatts(used, r.Wall), figure.Share(used, r.Used()))
	}
	shown := len(r.Programs)
	if shown > maxPrograms {
		shown = maxPrograms - 1
	}
	rest := r.Used()
	for _, p := range r.Programs[:shown] {
		used := r.added(p.Used)
		rest -= used
		row(p.Name, used)
	}
	if more := len(r.Programs) - shown; more > 0 {
		row(fmt.Sprintf("%d more", more), rest)
	}
}

// maxWorkloads is the maximum number of programs or containers of a phase with a row each.
const maxWorkloads = 20

// writeWorkloads writes a row for each program or container of the machine in each phase.
func (r *Result) writeWorkloads(b *strings.Builder) {
	if len(r.Workloads) == 0 {
		return
	}
	row := func(name, energy, power, share, of string) {
		line := fmt.Sprintf("%s %11s%11s%7s  %s", figure.Pad(name, 28), energy, power, share, figure.Fit(figure.Clean(of), 18))
		b.WriteString(strings.TrimRight(line, " ") + "\n")
	}
	b.WriteString("\n")
	head := ""
	if len(r.Phases) > 0 {
		head = "PHASE"
	}
	row(strings.ToUpper(string(r.By)), "ENERGY", "POWER", "SHARE", head)
	for rows := r.Workloads; len(rows) > 0; {
		n := slices.IndexFunc(rows, func(w Workload) bool { return w.Phase != rows[0].Phase })
		if n < 0 {
			n = len(rows)
		}
		wall, of := r.Wall, ""
		if i := slices.IndexFunc(r.Phases, func(p Phase) bool { return p.Name == rows[0].Phase }); i >= 0 {
			wall, of = r.Phases[i].Wall, phaseName(rows[0].Phase)
		}
		write := func(name string, used units.Energy) {
			row(name, figure.Joules(used), meanWatts(used, wall), figure.Share(used, r.Node()), of)
		}
		shown := min(n, maxWorkloads)
		for _, w := range rows[:shown] {
			write(w.Name, r.added(w.Used))
		}
		var rest units.Energy
		for _, w := range rows[shown:n] {
			rest += r.added(w.Used)
		}
		if n > shown {
			write(fmt.Sprintf("%d more", n-shown), rest)
		}
		rows = rows[n:]
	}
}

// phaseName returns the name of a phase for people.
func phaseName(name string) string {
	if name == phase.None {
		return "(none)"
	}
	return name
}

// maxFunctions is the maximum number of functions with a row each.
const maxFunctions = 10

// writeFunctions writes a row for each of the first functions, and one for the others.
func (r *Result) writeFunctions(b *strings.Builder) {
	if len(r.Functions) == 0 {
		return
	}
	row := func(name, energy, share, base, change string) {
		line := fmt.Sprintf("%s %11s%7s", figure.Pad(name, 39), energy, share)
		if r.Compared {
			line += fmt.Sprintf("%11s%11s", base, change)
		}
		b.WriteString(line + "\n")
	}
	write := func(f Function) {
		change := "+" + figure.Joules(f.Used-min(f.Used, f.Base))
		if f.Used < f.Base {
			change = "-" + figure.Joules(f.Base-f.Used)
		}
		row(f.Name, figure.Joules(f.Used), figure.Share(f.Used, r.Used()), figure.Joules(f.Base), change)
	}
	b.WriteString("\n")
	row("FUNCTION", "ENERGY", "SHARE", "BEFORE", "CHANGE")
	shown := min(len(r.Functions), maxFunctions)
	if len(r.Functions) > maxFunctions {
		shown--
	}
	var rest Function
	for i, f := range r.Functions {
		if i < shown {
			write(f)
			continue
		}
		rest.Used += f.Used
		rest.Base += f.Base
	}
	if more := len(r.Functions) - shown; more > 0 {
		rest.Name = fmt.Sprintf("%d more", more)
		write(rest)
	}
}

// writePhases writes a row for each phase: the energy of the command, or of the whole machine.
func (r *Result) writePhases(b *strings.Builder) {
	if len(r.Phases) == 0 {
		return
	}
	head := "ENERGY"
	if r.WholeNode {
		head = "NODE"
	}
	var whole units.Energy
	of := func(p *Phase) units.Energy {
		if r.WholeNode {
			return r.added(p.NodeUsed)
		}
		return r.added(p.Used)
	}
	for i := range r.Phases {
		whole += of(&r.Phases[i])
	}
	fmt.Fprintf(b, "\n%-29s%11s%11s%7s%11s\n", "PHASE", head, "POWER", "SHARE", "TIME")
	for i := range r.Phases {
		p := &r.Phases[i]
		used := of(p)
		fmt.Fprintf(b, "%s %11s%11s%7s%11s\n", figure.Pad(phaseName(p.Name), 28), figure.Joules(used), meanWatts(used, p.Wall),
			figure.Share(used, whole), figure.Seconds(p.Wall))
	}
}

// added returns the sum of the energies of zones that are added up.
func (r *Result) added(byZone []units.Energy) (sum units.Energy) {
	for i, e := range byZone {
		if r.Zones[i].Besides == "" {
			sum += e
		}
	}
	return sum
}

// maxLeft is how many processes are named that were left behind.
const maxLeft = 10

func (r *Result) writeLeft(b *strings.Builder) {
	if len(r.Left) == 0 {
		return
	}
	var names []string
	for _, p := range r.Left[:min(len(r.Left), maxLeft)] {
		names = append(names, fmt.Sprintf("%s (%d)", figure.Clean(p.Name), p.PID))
	}
	if more := len(r.Left) - maxLeft; more > 0 {
		names = append(names, fmt.Sprintf("%d more", more))
	}
	b.WriteString("\n")
	figure.Wrap(b, "Still running, and no longer measured: "+list(names))
}

func (r *Result) writeNotes(b *strings.Builder) {
	if len(r.Notes) == 0 {
		return
	}
	b.WriteString("\n")
	for _, note := range r.Notes {
		figure.Wrap(b, "Note: "+figure.Clean(note))
	}
}
