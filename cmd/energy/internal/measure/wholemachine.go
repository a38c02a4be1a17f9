// SPDX-License-Identifier: Apache-2.0

package measure

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/pmetric"

	"github.com/energyreceiver/energyreceiver/cmd/energy/internal/notes"
	"github.com/energyreceiver/energyreceiver/internal/power"
	"github.com/energyreceiver/energyreceiver/internal/units"
	energyreceiver "github.com/energyreceiver/energyreceiver/receiver"
)

// By selects the rows of the table.
type By string

// The rows of the table. With none, the table has all of the command's programs and phases.
const (
	ByProgram   By = "program"
	ByContainer By = "container"
	ByPhase     By = "phase"
)

// Workload is the energy of one program or container of the machine in one phase.
type Workload struct {
	Name  string // Others and Idle are the rest
	Phase string
	Used  []units.Energy // by the index of Result.Zones
}

// The rows of a machine's energy that no program or container used.
const (
	Others = "(others)"
	Idle   = "(idle)"
)

// wholeMachine divides the energy of the whole machine among its programs or containers. It has a
// receiver of its own, because that of the command shows only the command's processes.
type wholeMachine struct {
	*receiver
	by     By
	series map[machineSeries]units.Energy // so far
	phases map[string]map[workloadKind]units.Energy
}

type machineSeries struct {
	metric   string
	resource string // all attributes
	row      workloadKind
	start    pcommon.Timestamp
}

type workloadKind struct {
	name string
	kind power.Class
}

// openWholeMachine takes a baseline. static is the known static power, as that of the command's receiver.
func openWholeMachine(ctx context.Context, cfg energyreceiver.Config, static map[power.Class]float64, o *Options) (*wholeMachine, error) {
	cfg.Series.Processes.Max, cfg.Series.Containers.Max = 0, 0
	e, err := energyreceiver.Embed(&cfg, energyreceiver.EmbeddedOptions{
		ID:          component.NewIDWithName(energyreceiver.EmbeddedID.Type(), "machine"),
		Logger:      notes.New().Logger(), // what is wrong is in the notes of the command's receiver
		StaticPower: static, Extensions: o.Extensions,
	})
	if err != nil {
		return nil, err
	}
	m := &wholeMachine{&receiver{embedded: e, ctx: ctx}, o.By, map[machineSeries]units.Energy{}, map[string]map[workloadKind]units.Energy{}}
	if err := m.start(); err != nil {
		return nil, errors.Join(err, m.close())
	}
	return m, nil
}

// restart makes now the baseline.
func (m *wholeMachine) restart(ctx context.Context) {
	m.add(ctx, "")
	clear(m.phases)
}

// add adds what was used since the last call to a phase. After an error the next call does.
func (m *wholeMachine) add(ctx context.Context, phase string) {
	md, err := m.collect(context.WithoutCancel(ctx))
	if err != nil {
		return
	}
	of := m.phases[phase]
	if of == nil {
		of = map[workloadKind]units.Energy{}
		m.phases[phase] = of
	}
	for _, rm := range md.ResourceMetrics().All() {
		name := m.rowOf(rm.Resource().Attributes())
		resource := fmt.Sprint(rm.Resource().Attributes().AsRaw())
		for _, sm := range rm.ScopeMetrics().All() {
			for _, metric := range sm.Metrics().All() {
				m.addMetric(of, metric, name, resource)
			}
		}
	}
}

func (m *wholeMachine) addMetric(of map[workloadKind]units.Energy, metric pmetric.Metric, name, resource string) {
	rows := metricProcessEnergy
	if m.by == ByContainer {
		rows = metricContainerEnergy
	}
	if metric.Name() != metricSystemEnergy && (metric.Name() != rows || name == Others) {
		return
	}
	for _, p := range metric.Sum().DataPoints().All() {
		row := workloadKind{name, kindOfPoint(p)}
		if metric.Name() == metricSystemEnergy {
			row.name = Others // minus all rows, at the end
			if textOf(p.Attributes(), attrState) == "idle" {
				row.name = Idle
			}
		}
		series := machineSeries{metric.Name(), resource, row, p.StartTimestamp()}
		now := energyOf(p)
		used := units.Advance(m.series[series], now)
		m.series[series] = now
		of[row] += used
	}
}

// rowOf returns the name of a resource, that of Others if it has none.
func (m *wholeMachine) rowOf(attributes pcommon.Map) string {
	if m.by == ByProgram {
		return cmp.Or(textOf(attributes, attrExecutable), Others)
	}
	name, id := cmp.Or(textOf(attributes, "container.name"), textOf(attributes, "k8s.container.name")), textOf(attributes, "container.id")
	if pod := textOf(attributes, "k8s.pod.name"); pod != "" && name != "" {
		name = pod + "/" + name
	}
	return cmp.Or(name, id[:min(len(id), 12)], Others)
}

// result fills the workloads of a result whose phases are filled. They add up to the energy of the
// node in each zone and phase, whose meters another receiver has read at almost the same time.
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
	used := m.phases[p.Name]
	names := map[string]bool{}
	for row := range used {
		names[row.name] = true
	}
	names[Others] = true
	for _, name := range slices.Sorted(maps.Keys(names)) {
		rows = append(rows, Workload{name, p.Name, make([]units.Energy, len(of.Zones))})
	}
	weights := make([]units.Energy, len(rows))
	for z := range of.Zones {
		kind := zoneKind(&of.Zones[z])
		others, known := 0, units.Energy(0)
		for i := range rows {
			weights[i] = used[workloadKind{rows[i].Name, kind}]
			switch rows[i].Name {
			case Others:
				others = i
			case Idle:
			default:
				known += weights[i]
			}
		}
		weights[others] = units.Advance(known, weights[others])
		share(p.NodeUsed[z], weights, others, func(i int, e units.Energy) { rows[i].Used[z] = e })
	}
	rows = slices.DeleteFunc(rows, func(w Workload) bool { return slices.Max(append(w.Used, 0)) == 0 })
	slices.SortStableFunc(rows, func(a, b Workload) int { return cmp.Compare(of.Added(b.Used), of.Added(a.Used)) })
	return rows
}

// share divides an energy in proportion to weights. The part at others gets all of it if all
// weights are 0.
func share(e units.Energy, weights []units.Energy, others int, set func(i int, e units.Energy)) {
	var total units.Energy
	for _, w := range weights {
		total += w
	}
	if total == 0 {
		set(others, e)
		return
	}
	division := units.Division{Amount: uint64(e), Total: uint64(total)}
	for i, w := range weights {
		set(i, units.Energy(division.Next(uint64(w))))
	}
}
