// SPDX-License-Identifier: Apache-2.0

package measure

import (
	"cmp"
	"context"
	"maps"
	"path/filepath"
	"slices"

	"github.com/energyreceiver/energyreceiver/cmd/energy/internal/snapshot"
	"github.com/energyreceiver/energyreceiver/internal/power"
	"github.com/energyreceiver/energyreceiver/internal/units"
	energyreceiver "github.com/energyreceiver/energyreceiver/receiver"
)

// Program is the energy of the command's processes of one program.
type Program struct {
	// Name is the name of the program, or of the command followed by " (descendants)".
	Name string
	Used []units.Energy // by the index of Result.Zones
}

// programsOf divides the energy of a command among its programs, by descending energy. Energy without
// a program has a row of the command's descendants. The list is empty without zones.
func programsOf(a *snapshot.Account, of *Result) (programs []Program) {
	zones := a.Zones()
	rest := make([]units.Energy, len(of.Zones))
	for i := range of.Zones {
		rest[i] = of.Zones[i].Used
	}
	byName := map[string][]units.Energy{}
	for _, row := range a.Programs().Rows {
		name := row.Identity[snapshot.Executable]
		for z, amount := range row.Amounts {
			i := slices.IndexFunc(of.Zones, func(to Zone) bool { return zoneKind(&to) == zones[z].Class })
			if name == "" || i < 0 || amount.Used == 0 { // the overflow series has no name
				continue
			}
			if byName[name] == nil {
				byName[name] = make([]units.Energy, len(rest))
			}
			used := min(amount.Used, rest[i])
			byName[name][i] += used
			rest[i] -= used
		}
	}
	if slices.Max(append(rest, 0)) > 0 {
		byName[filepath.Base(of.Command[0])+" (descendants)"] = rest
	}
	for name, used := range byName {
		programs = append(programs, Program{name, used})
	}
	slices.SortFunc(programs, func(a, b Program) int {
		return cmp.Or(cmp.Compare(of.Added(b.Used), of.Added(a.Used)), cmp.Compare(a.Name, b.Name))
	})
	return programs
}

// By selects the rows of the table.
type By string

// The rows of the table. Without By, the table has all of the command's programs and phases.
const (
	ByProgram   By = "program"
	ByContainer By = "container"
	ByPhase     By = "phase"
)

// Workload is the energy of one program or container of the machine in one phase.
type Workload struct {
	Name  string // Others, Outside and Idle are the rest
	Phase string
	Used  []units.Energy // by the index of Result.Zones
}

// The rows of a machine's energy that no program or container used.
const (
	Others  = "(others)"  // without a program
	Outside = "(outside)" // of containers, as energy top names it
	Idle    = "(idle)"
)

// wholeMachine divides the energy of the whole machine among its programs or containers. It has a
// receiver of its own, because the receiver of the command shows only the command's processes.
type wholeMachine struct {
	*meter
	by     By
	phases map[string]map[workloadKind]units.Energy
}

type workloadKind struct {
	name string
	kind power.Class
}

// openWholeMachine takes a baseline. static is the static power of measured zones.
func openWholeMachine(ctx context.Context, cfg energyreceiver.Config, static map[power.Class]float64, o *Options) (*wholeMachine, error) {
	cfg.Series.Processes.Max, cfg.Series.Containers.Max = 0, 0
	m, err := openMeter(ctx, o, meterOptions{cfg: &cfg, static: static})
	return &wholeMachine{m, o.By, map[string]map[workloadKind]units.Energy{}}, err
}

// add adds the energy since the last call to a phase. After an error the next call adds it.
func (m *wholeMachine) add(ctx context.Context, phase string) {
	last := m.account.At()
	if m.measure(ctx) == nil && !m.account.At().Equal(last) {
		m.addPeriod(phase)
	}
}

// addPeriod adds the energy of the account's last period to a phase.
func (m *wholeMachine) addPeriod(phase string) {
	of := m.phases[phase]
	if of == nil {
		of = map[workloadKind]units.Energy{}
		m.phases[phase] = of
	}
	table := m.account.Programs()
	if m.by == ByContainer {
		table = m.account.Workloads(snapshot.Container)
	}
	for i, zone := range m.account.Zones() {
		_, idle, _ := m.account.ZoneUsed(i)
		of[workloadKind{Idle, zone.Class}] += units.Energy(idle.Recent)
		others := table.Active[i].Recent
		for _, row := range table.Rows {
			if name := m.nameOf(&row.Identity); name != m.rest() {
				of[workloadKind{name, zone.Class}] += units.Energy(row.Amounts[i].Recent)
				others -= row.Amounts[i].Recent
			}
		}
		of[workloadKind{m.rest(), zone.Class}] += units.Energy(max(others, 0))
	}
}

// rest is the name of active energy without a workload.
func (m *wholeMachine) rest() string {
	if m.by == ByContainer {
		return Outside
	}
	return Others
}

// nameOf returns the name of a workload, or rest.
func (m *wholeMachine) nameOf(of *snapshot.Identity) string {
	if m.by == ByProgram {
		return cmp.Or(of[snapshot.Executable], m.rest())
	}
	name, id := of[snapshot.ContainerName], of[snapshot.ContainerID]
	if pod := of[snapshot.PodName]; pod != "" && name != "" {
		name = pod + "/" + name
	}
	return cmp.Or(name, id[:min(len(id), 12)], m.rest())
}

// result fills the workloads of a result whose phases are filled. In each zone and phase, they add
// up to the energy of the node, which another receiver read from the meters at almost the same
// time.
func (m *wholeMachine) result(into *Result) {
	parts := into.Phases
	if len(parts) == 0 {
		whole := Phase{Name: "none", NodeUsed: make([]units.Energy, len(into.Zones))}
		for i := range into.Zones {
			whole.NodeUsed[i] = into.Zones[i].Node()
		}
		parts = []Phase{whole}
	}
	for i := range parts {
		into.Workloads = append(into.Workloads, m.divide(into, &parts[i])...)
	}
}

func (m *wholeMachine) divide(of *Result, p *Phase) (rows []Workload) {
	used, names := m.phases[p.Name], map[string]bool{}
	for row := range used {
		names[row.name] = true
	}
	delete(names, m.rest())
	for _, name := range append([]string{m.rest()}, slices.Sorted(maps.Keys(names))...) {
		rows = append(rows, Workload{name, p.Name, make([]units.Energy, len(of.Zones))})
	}
	parts, weights := make([]units.Energy, len(rows)), make([]units.Energy, len(rows))
	for z := range of.Zones {
		for i := range rows {
			weights[i] = used[workloadKind{rows[i].Name, zoneKind(&of.Zones[z])}]
		}
		units.Divide(parts, p.NodeUsed[z], weights) // if all weights are 0, the first row has the energy
		for i := range rows {
			rows[i].Used[z] = parts[i]
		}
	}
	rows = slices.DeleteFunc(rows, func(w Workload) bool { return slices.Max(append(w.Used, 0)) == 0 })
	slices.SortStableFunc(rows, func(a, b Workload) int { return cmp.Compare(of.Added(b.Used), of.Added(a.Used)) })
	return rows
}
