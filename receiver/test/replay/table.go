// SPDX-License-Identifier: Apache-2.0

package replay

import (
	"fmt"
	"slices"
	"strings"

	"github.com/energyreceiver/energyreceiver/internal/attribution/static"
)

// Row is a line of a table of figures.
type Row struct {
	Figure string
	Cases  int
	Value  string
}

// Table returns the figures of all series that are present.
func Table(all []Series) (rows []Row) {
	rows = append(rows, energyRows(all)...)
	rows = append(rows, powerRows(all)...)
	rows = append(rows, wallRows(all)...)
	return append(rows, priorRows(all)...)
}

// priorRows returns a row with the machines that the prior does not have, so that nothing was excluded for
// them. It returns none if the prior has all of them.
func priorRows(all []Series) []Row {
	var unknown []string
	for i := range all {
		machine := all[i].Machine
		if _, excluded := static.PriorWithout(machine); !excluded && !slices.Contains(unknown, machine) {
			unknown = append(unknown, machine)
		}
	}
	if len(unknown) == 0 {
		return nil
	}
	return []Row{{"machines that are not part of the prior, and not excluded from it", len(unknown), strings.Join(unknown, ", ")}}
}

func energyRows(all []Series) (rows []Row) {
	var whole, starts []Energy
	for i := range all {
		s := &all[i]
		if strings.HasPrefix(s.Run, "scaphmax") && s.Zone == "package" {
			whole = append(whole, WholeRun(s))
		}
		// Memory of gemini-1 draws the same at any load.
		if _, given := idlePower[s.Machine+" "+s.Zone]; given || s.truth().Known && s.truth().Ten > 0.01*s.truth().Static {
			starts = append(starts, LoadedStarts(s)...)
		}
	}
	if len(whole) > 0 {
		rows = append(rows, energyRow("gemini-1 package, whole run with an untrained model: error of active energy", whole))
	}
	for _, zone := range []string{"gemini-1 package", "nx12 package", "nx12 dram", "wall"} {
		machine, kind, given := strings.Cut(zone, " ")
		if !given {
			machine, kind = "", zone
		}
		some := slices.DeleteFunc(slices.Clone(starts), func(e Energy) bool {
			return !strings.HasPrefix(e.Case, machine) || !strings.HasSuffix(e.Case, " "+kind)
		})
		if len(some) > 0 {
			row := energyRow(zone+", run that begins under load, until the first estimate: error of active energy", some)
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

// campaigns are runs of gemini-1 that followed one another within hours, by the beginnings of their names.
var campaigns = [][]string{
	{"scaphmax-2022-04-13"}, {"scaphmax-2022-04-14", "scaphmax-2022-04-15"}, {"powerapimax-2022-04-14"}, {"powerapimax-2022-09-28"},
	{"powerapimax-2023-02-01"},
}

func powerRows(all []Series) (rows []Row) {
	var related [3][]Power
	for _, campaign := range campaigns {
		same, next, later := Runs(campaignOf(all, campaign))
		for i, powers := range [...][]Power{same, next, later} {
			related[i] = append(related[i], powers...)
		}
	}
	for i, powers := range related {
		if len(powers) == 0 {
			continue
		}
		relative := each(powers, func(p Power) float64 { return p.Relative })
		name := [...]string{"same run", "next run", "hours later"}[i]
		rows = append(rows, Row{"gemini-1 package, " + name + ": error of static power relative to what a 10 % load adds", len(powers),
			fmt.Sprintf("median %.1f %%, worst %.1f %%, within the standard error %.0f %%", 100*quantile(relative, 0.5), 100*quantile(relative, 1),
				100*part(powers, Power.Within))})
	}
	return append(rows, stepRows(all)...)
}

// stepRows returns the figures of the step of 2.3 W between 2022 and the last campaign.
func stepRows(all []Series) (rows []Row) {
	last := len(campaigns) - 1
	after := campaignOf(all, campaigns[last])
	if len(after) < 2 {
		return nil
	}
	for _, campaign := range campaigns[:last] {
		if before := campaignOf(all, campaign); len(before) > 0 {
			p := powerOf("", trainedOn(append(before, after[0])...), after[1].truth())
			rows = append(rows, Row{"gemini-1 package, " + campaign[0] + " and one run after the step: error of static power", 1,
				fmt.Sprintf("%+.2f W, standard error %.2f W", p.Watts, p.StandardError)})
		}
	}
	return rows
}

// campaignOf returns the package series of a campaign, by time.
func campaignOf(all []Series, campaign []string) (runs []*Series) {
	for i := range all {
		s := &all[i]
		if s.Zone == "package" && slices.ContainsFunc(campaign, func(name string) bool { return strings.HasPrefix(s.Run, name) }) {
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
		rows = append(rows, Row{machine + ", wall: models called trained that are off by more than a tenth of what a 10 % load adds", len(cases),
			fmt.Sprintf("%d; error of all: median %.0f %%, worst %.0f %%, within the standard error %.0f %%", len(wrong), 100*quantile(relative, 0.5),
				100*quantile(relative, 1), 100*part(cases, Power.Within))})
	}
	return rows
}
