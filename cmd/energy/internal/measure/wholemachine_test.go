// SPDX-License-Identifier: Apache-2.0

package measure

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"go.opentelemetry.io/collector/pdata/pmetric"

	"github.com/energyreceiver/energyreceiver/internal/power"
	"github.com/energyreceiver/energyreceiver/internal/units"
)

func kindsOf(zone power.Kind, used map[string]units.Energy) map[workloadKind]units.Energy {
	rows := map[workloadKind]units.Energy{}
	for name, e := range used {
		rows[workloadKind{name, power.Class{Zone: zone, Method: power.Measured}}] = e
	}
	return rows
}

// The row (others) of the machine's receiver holds all active energy.
func TestWorkloadsAddUpToTheEnergyOfTheNode(t *testing.T) {
	for what, c := range map[string]struct {
		node units.Energy
		used map[string]units.Energy
		want map[string]units.Energy
	}{
		"both receivers agree":      {100, map[string]units.Energy{Others: 80, Idle: 20, "db": 50, "web": 10}, map[string]units.Energy{"db": 50, Others: 20, Idle: 20, "web": 10}},
		"the other read more":       {50, map[string]units.Energy{Others: 80, Idle: 20, "db": 50, "web": 10}, map[string]units.Energy{"db": 25, Others: 10, Idle: 10, "web": 5}},
		"a remainder":               {10, map[string]units.Energy{Others: 3, "a": 1, "b": 1, "c": 1}, map[string]units.Energy{"a": 3, "b": 3, "c": 4}},
		"the other read nothing":    {7, nil, map[string]units.Energy{Others: 7}},
		"rows exceed active energy": {60, map[string]units.Energy{Others: 10, "db": 30}, map[string]units.Energy{"db": 60}},
	} {
		m := &wholeMachine{phases: map[string]map[workloadKind]units.Energy{"none": kindsOf(power.Package, c.used)}}
		r := &Result{Zones: []Zone{{Name: "package", Source: "measured", Active: c.node}}}
		m.result(r)
		got, sum := map[string]units.Energy{}, units.Energy(0)
		for _, w := range r.Workloads {
			got[w.Name] = w.Used[0]
			sum += w.Used[0]
		}
		assert.Equal(t, c.want, got, what)
		assert.Equal(t, c.node, sum, what)
	}
}

func TestWorkloadsOfAPhaseAddUpToTheEnergyOfTheNodeInIt(t *testing.T) {
	m := &wholeMachine{phases: map[string]map[workloadKind]units.Energy{
		"build": kindsOf(power.Package, map[string]units.Energy{Others: 3, "cc": 3}),
		"test":  kindsOf(power.Package, map[string]units.Energy{Others: 9, "go": 9}),
	}}
	r := &Result{
		Zones:  []Zone{{Name: "package", Source: "measured", Active: 15}},
		Phases: []Phase{{Name: "build", NodeUsed: []units.Energy{5}}, {Name: "test", NodeUsed: []units.Energy{10}}},
	}
	m.result(r)
	assert.Equal(t, []Workload{{"cc", "build", []units.Energy{5}}, {"go", "test", []units.Energy{10}}}, r.Workloads)
}

// machineLedger is a receiver with cumulative energies of a package.
type machineLedger struct {
	slow
	pmetric.Metrics
}

func (l *machineLedger) Collect(context.Context) (pmetric.Metrics, error) { return l.Metrics, nil }

// add adds a series that began with all others.
func (l *machineLedger) add(metric, state string, joules float64, resource map[string]any) {
	rm := l.ResourceMetrics().AppendEmpty()
	_ = rm.Resource().Attributes().FromRaw(resource) // only strings
	m := rm.ScopeMetrics().AppendEmpty().Metrics().AppendEmpty()
	m.SetName(metric)
	p := m.SetEmptySum().DataPoints().AppendEmpty()
	p.SetDoubleValue(joules)
	_ = p.Attributes().FromRaw(map[string]any{attrZone: "package", attrSource: "measured", attrState: state})
}

func TestWorkloadsAreTheSumsOfTheirSeries(t *testing.T) {
	l := &machineLedger{}
	m := &wholeMachine{&receiver{embedded: l}, ByProgram, map[machineSeries]units.Energy{}, map[string]map[workloadKind]units.Energy{}}
	for _, n := range []float64{1, 2, 3} { // cumulative
		l.Metrics = pmetric.NewMetrics()
		l.add(metricSystemEnergy, "active", 100*n, nil)
		l.add(metricSystemEnergy, "idle", 10*n, nil)
		l.add(metricProcessEnergy, "active", 2*n, nil) // the overflow series
		l.add(metricProcessEnergy, "active", 30*n, map[string]any{attrExecutable: "sh"})
		l.add(metricProcessEnergy, "active", 5*n, map[string]any{attrExecutable: "sh", "process.descendants": "true"})
		if n == 1 {
			m.restart(t.Context()) // what was used before is in no phase
			continue
		}
		m.add(t.Context(), "none")
	}
	used := map[string]units.Energy{Others: 200 * units.Joule, Idle: 20 * units.Joule, "sh": 70 * units.Joule}
	assert.Equal(t, map[string]map[workloadKind]units.Energy{"none": kindsOf(power.Package, used)}, m.phases)
}
