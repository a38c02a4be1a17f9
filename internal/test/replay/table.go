// SPDX-License-Identifier: Apache-2.0

package replay

import (
	"fmt"
	"slices"
	"strings"
)

// Row is a line of the table of figures.
type Row struct {
	Figure string
	Cases  int
	Value  string
}

// Table returns the figures of all series that are present.
func Table(all []Series) (rows []Row) {
	rows = append(rows, energyRows(all)...)
	rows = append(rows, powerRows(all)...)
	return append(rows, wallRows(all)...)
}

func energyRows(all []Series) (rows []Row) {
	var whole, starts []Energy
	for i := range all {
		s := &all[i]
		if strings.HasPrefix(s.Run, "scaphmax") && s.Zone == "package" {
			whole = append(whole, WholeRun(s))
		}
		if _, given := idlePower[s.Machine+" "+s.Zone]; given || s.truth().Known && s.truth().Ten > 0.01*s.truth().Static {
			starts = append(starts, LoadedStarts(s)...)
		}
	}
	if len(whole) > 0 {
		rows = append(rows, energyRow("gemini-1, whole run, untrained model: error of active energy", whole))
	}
	for _, zone := range []string{"gemini-1 package", "gemini-1 dram", "nx12 package", "nx12 dram", "wall"} {
		some := slices.DeleteFunc(slices.Clone(starts), func(e Energy) bool {
			return !strings.HasPrefix(e.Case, zone[:strings.LastIndex(" "+zone, " ")]) || !strings.HasSuffix(e.Case, zone[strings.LastIndex(zone, " ")+1:])
		})
		if len(some) > 0 {
			row := energyRow(zone+", runs that begin under load: error of active energy before the first estimate", some)
			row.Value += fmt.Sprintf(", within two standard errors %.0f %%", 100*part(some, func(e Energy) bool { return e.Within }))
			rows = append(rows, row)
		}
	}
	return rows
}

func energyRow(figure string, cases []Energy) Row {
	trained := each(cases, func(e Energy) float64 { return e.Trained })
	rule := each(cases, func(e Energy) float64 { return e.Utilization })
	return Row{figure, len(cases), fmt.Sprintf("median %.1f %%, worst %.1f %% (utilization rule: median %.0f %%)", 100*quantile(trained, 0.5),
		100*quantile(trained, 1), 100*quantile(rule, 0.5))}
}

func powerRows(all []Series) (rows []Row) {
	campaigns := []string{"scaphmax-2022-04-13", "scaphmax-2022-04-1[45]", "powerapimax-2022-04", "powerapimax-2023"}
	for _, campaign := range campaigns {
		runs := campaignOf(all, campaign)
		if len(runs) == 0 {
			continue
		}
		same, next, later := Runs(runs)
		for i, list := range [][]Power{same, next, later} {
			if len(list) == 0 {
				continue
			}
			name := [...]string{"same run", "next run", "hours later"}[i]
			relative := each(list, func(p Power) float64 { return p.Relative })
			rows = append(rows, Row{"gemini-1 " + campaign + ", " + name + ": error of static power relative to a 10 % load", len(list),
				fmt.Sprintf("median %.1f %%, worst %.1f %%, within the standard error %.0f %%", 100*quantile(relative, 0.5), 100*quantile(relative, 1),
					100*part(list, Power.Within))})
		}
	}
	after := campaignOf(all, "powerapimax-2023")
	for _, campaign := range campaigns[:3] {
		if before := campaignOf(all, campaign); len(before) > 0 && len(after) > 1 {
			p := powerOf("", trainedOn(append(before, after[0])...), after[1].truth())
			rows = append(rows, Row{"gemini-1 " + campaign + ", one run after the step of 2.3 W: error of static power", 1,
				fmt.Sprintf("%+.2f W, standard error %.2f W", p.Watts, p.StandardError)})
		}
	}
	return rows
}

// campaignOf returns the package series of a campaign, by time.
func campaignOf(all []Series, campaign string) (runs []*Series) {
	prefix, days, _ := strings.Cut(campaign, "[")
	for i := range all {
		s := &all[i]
		rest, ok := strings.CutPrefix(s.Run, prefix)
		if ok && s.Zone == "package" && (days == "" || strings.Contains(days, rest[:1])) {
			runs = append(runs, s)
		}
	}
	return runs
}

func wallRows(all []Series) (rows []Row) {
	var machines []string
	runs := map[string][]*Series{}
	for i := range all {
		s := &all[i]
		if s.Zone != "wall" {
			continue
		}
		if runs[s.Machine] == nil {
			machines = append(machines, s.Machine)
		}
		runs[s.Machine] = append(runs[s.Machine], s)
	}
	for _, machine := range machines {
		cases := Workloads(runs[machine])
		wrong := slices.DeleteFunc(slices.Clone(cases), func(p Power) bool { return !p.Trained || p.Relative < 0.1 && p.Relative > -0.1 })
		relative := each(cases, func(p Power) float64 { return p.Relative })
		rows = append(rows, Row{machine + ", wall: models called trained that are off by more than 10 % at a 10 % load", len(cases),
			fmt.Sprintf("%d; error of all: median %.0f %%, worst %.0f %%, within the standard error %.0f %%", len(wrong), 100*quantile(relative, 0.5),
				100*quantile(relative, 1), 100*part(cases, Power.Within))})
	}
	return rows
}
