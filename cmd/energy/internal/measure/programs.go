// SPDX-License-Identifier: Apache-2.0

package measure

import (
	"cmp"
	"path/filepath"
	"slices"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/pmetric"

	"github.com/energyreceiver/energyreceiver/internal/power"
	"github.com/energyreceiver/energyreceiver/internal/units"
)

// Program is the energy of the command's processes of one program.
type Program struct {
	// Name is the name of the program, or that of the command followed by " (descendants)".
	Name string
	Used []units.Energy // by the index of Result.Zones
}

// programSeries identifies a series of a program. A program that has not run for a while begins another one.
type programSeries struct {
	name  string
	start pcommon.Timestamp
	kind  power.Class
}

// programTotals is the energy of all series of programs so far.
type programTotals map[programSeries]units.Energy

// add notes the series of a collection.
func (t programTotals) add(md pmetric.Metrics) {
	for _, rm := range md.ResourceMetrics().All() {
		attributes := rm.Resource().Attributes()
		name := textOf(attributes, attrExecutable)
		if name == "" { // the overflow series, or a resource without programs
			continue
		}
		for _, sm := range rm.ScopeMetrics().All() {
			for _, m := range sm.Metrics().All() {
				if m.Name() != metricProcessEnergy {
					continue
				}
				for _, p := range m.Sum().DataPoints().All() {
					if !p.Flags().NoRecordedValue() {
						t[programSeries{name, p.StartTimestamp(), kindOfPoint(p)}] = energyOf(p)
					}
				}
			}
		}
	}
}

// result fills the programs of a result whose zones are filled, by descending energy. What no
// program has used is that of the command's descendants. It is empty if no programs can be
// distinguished.
func (t programTotals) result(into *Result) {
	index := map[power.Class]int{}
	rest := make([]units.Energy, len(into.Zones))
	for i := range into.Zones {
		index[zoneKind(&into.Zones[i])], rest[i] = i, into.Zones[i].Used
	}
	byName := map[string][]units.Energy{}
	for series, used := range t {
		zone, ok := index[series.kind]
		if !ok || used == 0 {
			continue
		}
		if byName[series.name] == nil {
			byName[series.name] = make([]units.Energy, len(rest))
		}
		used = min(used, rest[zone])
		byName[series.name][zone] += used
		rest[zone] -= used
	}
	if slices.Max(append(rest, 0)) > 0 {
		byName[filepath.Base(into.Command[0])+" (descendants)"] = rest
	}
	for name, used := range byName {
		into.Programs = append(into.Programs, Program{name, used})
	}
	slices.SortFunc(into.Programs, func(a, b Program) int {
		return cmp.Or(cmp.Compare(into.Added(b.Used), into.Added(a.Used)), cmp.Compare(a.Name, b.Name))
	})
}
