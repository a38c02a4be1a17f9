// SPDX-License-Identifier: Apache-2.0

package replay

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/energyreceiver/energyreceiver/internal/attribution/static"
	"github.com/energyreceiver/energyreceiver/receiver/test/table"
)

// figures is a table of figures.
type figures struct{ *table.Table }

func newFigures() figures { return figures{table.New("figure", "cases", "value")} }

// add adds a figure with the number of its cases and a text.
func (f figures) add(figure string, cases int, format string, values ...any) {
	f.Add(figure, strconv.Itoa(cases), fmt.Sprintf(format, values...))
}

// Table returns the figures of all series that are present.
func Table(all []Series) *table.Table {
	f := newFigures()
	f.addEnergy(all)
	f.addPower(all)
	f.addStep(all)
	f.addWalls(all)
	f.addPrior(all)
	return f.Table
}

// addPrior lists the machines that the prior does not contain, so that no machine was excluded for
// them. It adds no figure if the prior contains all machines.
func (f figures) addPrior(all []Series) {
	var unknown []string
	for i := range all {
		machine := all[i].Machine
		if _, excluded := static.PriorWithout(machine); !excluded && !slices.Contains(unknown, machine) {
			unknown = append(unknown, machine)
		}
	}
	if len(unknown) > 0 {
		f.add("machines that are not part of the prior, and not excluded from it", len(unknown), "%s", strings.Join(unknown, ", "))
	}
}

func (f figures) addEnergy(all []Series) {
	var whole []Energy
	starts := map[string][]Energy{} // by zone
	for i := range all {
		s := &all[i]
		zone := s.Machine + " " + s.Zone
		if strings.HasPrefix(s.Run, "scaphmax") && s.Zone == "package" {
			whole = append(whole, WholeRun(s))
		}
		// The memory of gemini-1 draws the same power at any load.
		if _, given := idlePower[zone]; given || s.truth().Known && s.truth().Ten > 0.01*s.truth().Static {
			if s.Zone == "wall" {
				zone = "wall"
			}
			starts[zone] = append(starts[zone], LoadedStarts(s)...)
		}
	}
	f.addErrors("gemini-1 package, whole run with an untrained model: error of active energy", whole, "")
	for _, zone := range []string{"gemini-1 package", "nx12 package", "nx12 dram", "wall"} {
		within := 100 * part(starts[zone], func(e Energy) bool { return e.Within })
		f.addErrors(zone+", run that begins under load, until the first estimate: error of active energy", starts[zone],
			fmt.Sprintf(", within two standard errors %.0f %%", within))
	}
}

// addErrors adds the errors of several active energies, and a remark.
func (f figures) addErrors(figure string, cases []Energy, remark string) {
	if len(cases) == 0 {
		return
	}
	trained := each(cases, func(e Energy) float64 { return e.Trained })
	rule := each(cases, func(e Energy) float64 { return e.Utilization })
	f.add(figure, len(cases), "median %.1f %%, worst %.1f %% (utilization rule: median %.0f %%)%s", 100*quantile(trained, 0.5),
		100*quantile(trained, 1), 100*quantile(rule, 0.5), remark)
}

// campaigns are runs of gemini-1 within a few hours, by the prefixes of their names.
var campaigns = [][]string{
	{"scaphmax-2022-04-13"}, {"scaphmax-2022-04-14", "scaphmax-2022-04-15"}, {"powerapimax-2022-04-14"}, {"powerapimax-2022-09-28"},
	{"powerapimax-2023-02-01"},
}

func (f figures) addPower(all []Series) {
	var related [3][]Power
	for _, campaign := range campaigns {
		for i, powers := range Runs(campaignOf(all, campaign)) {
			related[i] = append(related[i], powers...)
		}
	}
	for i, name := range [...]string{"same run", "next run", "hours later"} {
		if powers := related[i]; len(powers) > 0 {
			relative := each(powers, func(p Power) float64 { return p.Relative })
			f.add("gemini-1 package, "+name+": error of static power relative to what a 10 % load adds", len(powers),
				"median %.1f %%, worst %.1f %%, within the standard error %.0f %%", 100*quantile(relative, 0.5), 100*quantile(relative, 1),
				100*part(powers, Power.Within))
		}
	}
}

// addStep adds the figures of the step of 2.3 W between 2022 and the last campaign.
func (f figures) addStep(all []Series) {
	last := len(campaigns) - 1
	after := campaignOf(all, campaigns[last])
	if len(after) < 2 {
		return
	}
	for _, campaign := range campaigns[:last] {
		if before := campaignOf(all, campaign); len(before) > 0 {
			p := powerOf("", trainedOn(append(before, after[0])...), after[1].truth())
			f.add("gemini-1 package, "+campaign[0]+" and one run after the step: error of static power", 1,
				"%+.2f W, standard error %.2f W", p.Watts, p.StandardError)
		}
	}
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

func (f figures) addWalls(all []Series) {
	runs := map[string][]*Series{} // by machine
	for i := range all {
		if s := &all[i]; s.Zone == "wall" {
			runs[s.Machine] = append(runs[s.Machine], s)
		}
	}
	for _, machine := range slices.Sorted(maps.Keys(runs)) {
		cases := Workloads(runs[machine])
		wrong := slices.DeleteFunc(slices.Clone(cases), func(p Power) bool { return !p.Trained || p.Relative < 0.1 && p.Relative > -0.1 })
		relative := each(cases, func(p Power) float64 { return p.Relative })
		f.add(machine+", wall: models called trained that are off by more than a tenth of what a 10 % load adds", len(cases),
			"%d; error of all: median %.0f %%, worst %.0f %%, within the standard error %.0f %%", len(wrong), 100*quantile(relative, 0.5),
			100*quantile(relative, 1), 100*part(cases, Power.Within))
	}
}
