// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/pmetric"

	"github.com/energyreceiver/energyreceiver/internal/power"
	"github.com/energyreceiver/energyreceiver/internal/units"
	zonekind "github.com/energyreceiver/energyreceiver/internal/zone"
)

// point is a data point. Times are zero if they are not reported.
type point struct {
	labels    [numLabels]string
	value     float64
	start, at time.Time
}

func (p *point) class() power.Class {
	return power.Class{Zone: power.Kind(p.labels[attrZone]), Method: power.Method(p.labels[attrMethod])}
}

// energy returns the value in joules as energy, 0 if it is not a valid energy.
func (p *point) energy() units.Energy {
	const most = math.MaxInt64 / units.Joule // a sum of 1,000 such energies does not overflow
	if !(p.value > 0) {
		return 0
	}
	return units.Energy(math.Round(min(p.value, float64(most/1000)) * float64(units.Joule)))
}

// reader builds a snapshot.
type reader struct {
	Snapshot
	rows   map[rowKey]int
	newest []time.Time // newest timestamp by the index of Rows
	meters map[string]int
}

// rowKey distinguishes rows. Several series of a workload differ by their start, which is zero for
// the newest of them.
type rowKey struct {
	kind Kind
	Identity
	start time.Time
}

// read builds a snapshot. points calls its second argument with each data point of a metric that
// has a value.
func read(points func(*metric, func(*point))) *Snapshot {
	r := &reader{rows: map[rowKey]int{}, meters: map[string]int{}}
	r.Busy, r.expected = math.NaN(), map[power.Class]float64{}
	for i := range nodeMetrics {
		points(&nodeMetrics[i], func(p *point) { nodeMetrics[i].read(r, p) })
	}
	r.finishNode()
	for i := range workloadMetrics {
		points(&workloadMetrics[i], func(p *point) { workloadMetrics[i].read(r, p) })
	}
	for i, at := range r.newest {
		r.Rows[i].Ended = at.Before(r.At)
		r.Partial = r.Partial || at.After(r.At)
	}
	return &r.Snapshot
}

// zone returns the zone of a data point, which it adds if it is new.
func (r *reader) zone(p *point) *Zone {
	i := r.zoneIndex(p)
	if i < 0 {
		i = len(r.Zones)
		none := math.NaN()
		r.Zones = append(r.Zones, Zone{Class: p.class(), ActiveWatts: none, IdleWatts: none, Uncertainty: none})
	}
	z := &r.Zones[i]
	z.At = latest(z.At, p.at)
	r.At = latest(r.At, p.at)
	r.Host = cmp.Or(r.Host, p.labels[attrHost])
	return z
}

func (r *reader) zoneIndex(p *point) int {
	class := p.class()
	return slices.IndexFunc(r.Zones, func(z Zone) bool { return z.Class == class })
}

func (r *reader) nodeEnergy(p *point) {
	if i := r.zoneIndex(p); i >= 0 && !r.Zones[i].At.Equal(p.at) {
		r.Partial = true // active and idle energy are from two collections
	}
	z := r.zone(p)
	z.Start = latest(z.Start, p.start)
	if isIdle(p) {
		z.Idle += p.energy()
	} else {
		z.Active += p.energy()
	}
}

func (r *reader) nodePower(p *point) {
	z := r.zone(p)
	if isIdle(p) {
		z.IdleWatts = Plus(z.IdleWatts, p.value)
	} else {
		z.ActiveWatts = Plus(z.ActiveWatts, p.value)
	}
}

func (r *reader) unattributed(p *point) {
	if !isIdle(p) {
		r.zone(p).Unattributed += p.energy()
	}
}

// uncertainty sets the relative uncertainty. The power of the zone has been read before.
func (r *reader) uncertainty(p *point) {
	if z := r.zone(p); z.ActiveWatts > 0 {
		z.Uncertainty = p.value / z.ActiveWatts
	}
}

// expectedError sets the expected error of the model of a zone.
func (r *reader) expectedError(p *point) {
	r.expected[power.Class{Zone: power.Kind(p.labels[attrZone]), Method: power.Modeled}] = p.value
}

func (r *reader) utilization(p *point) {
	r.Busy = p.value
	r.Partial = r.Partial || len(r.Zones) > 0 && !r.At.Equal(p.at)
	r.At = latest(r.At, p.at)
}

func (r *reader) condition(p *point) {
	note := fmt.Sprintf("The receiver has the condition %q: see the log of the collector", p.labels[attrCondition])
	if p.value > 0 && !slices.Contains(r.Notes, note) {
		r.Notes = append(r.Notes, note)
	}
}

// meter returns the meter of a data point, which it adds if it is new.
func (r *reader) meter(p *point) *Meter {
	id, kind := p.labels[attrMeterID], p.labels[attrMeterType]
	if kind == "" {
		kind = "host" // hw.host.* have no hw.type
	}
	i, ok := r.meters[kind+" "+id]
	if !ok {
		i = len(r.Meters)
		r.meters[kind+" "+id] = i
		r.Meters = append(r.Meters, Meter{ID: id, Type: kind, Watts: math.NaN(), Utilization: math.NaN()})
	}
	m := &r.Meters[i]
	m.Name = cmp.Or(m.Name, p.labels[attrMeterName])
	m.Class = cmp.Or(m.Class, p.class())
	m.Part = m.Part || kind == "cpu" && p.labels[attrMeterParent] != ""
	return m
}

func (r *reader) meterEnergy(p *point) {
	m := r.meter(p)
	m.Energy += p.energy()
}

func (r *reader) meterPower(p *point) {
	m := r.meter(p)
	m.Watts = Plus(m.Watts, p.value)
}

func (r *reader) meterUtilization(p *point) { r.meter(p).Utilization = p.value }

// finishNode sorts the zones, meters and notes.
func (r *reader) finishNode() {
	slices.SortFunc(r.Meters, func(a, b Meter) int { return cmp.Or(cmp.Compare(a.ID, b.ID), cmp.Compare(a.Type, b.Type)) })
	sortZones(r.Zones)
	r.SetExpectedErrors(r.expected)
	slices.Sort(r.Notes)
}

// sortZones sorts zones as they are shown, and sets Besides.
func sortZones(zones []Zone) {
	slices.SortFunc(zones, func(a, b Zone) int {
		return cmp.Or(zonekind.Compare(string(a.Zone), string(b.Zone)), cmp.Compare(a.Method, b.Method))
	})
	names := make([]string, len(zones))
	for i := range zones {
		names[i] = string(zones[i].Zone)
	}
	for i := range zones {
		zones[i].Besides = zonekind.Besides(names[i], names)
	}
}

// find returns the index and the key of the row of a data point. The index is -1 if the row does
// not exist. A data point without a start belongs to the newest series of its workload.
func (r *reader) find(kind Kind, p *point) (i int, key rowKey) {
	key = rowKey{kind: kind, Identity: Identity(p.labels[:numAttributes])}
	i, ok := r.rows[key]
	if ok && !p.start.IsZero() && !p.start.Equal(r.Rows[i].Start) {
		key.start = p.start
		i, ok = r.rows[key]
	}
	if !ok {
		i = -1
	}
	return i, key
}

// row returns the row of a data point, which it adds if it is new.
func (r *reader) row(kind Kind, p *point) *Row {
	i, key := r.find(kind, p)
	if i < 0 {
		i = len(r.Rows)
		row := Row{Kind: kind, Identity: key.Identity, Start: p.start, Watts: math.NaN(), GPUWatts: math.NaN(), CPUTime: -1}
		row.Energy = make([]units.Energy, len(r.Zones))
		r.Rows = append(r.Rows, row)
		r.newest = append(r.newest, p.at)
		r.rows[key] = i
		newest := rowKey{kind: kind, Identity: key.Identity}
		if of := r.rows[newest]; r.Rows[of].Start.Before(p.start) {
			key.start = r.Rows[of].Start
			r.rows[key], r.rows[newest] = of, i
		}
	}
	r.newest[i] = latest(r.newest[i], p.at)
	return &r.Rows[i]
}

func (r *reader) workloadEnergy(kind Kind, p *point) {
	row, zone := r.row(kind, p), r.zoneIndex(p)
	if zone >= 0 && !isIdle(p) {
		row.Energy[zone] += p.energy()
	}
}

// workloadPower adds the power of a workload. A power from before the newest collection is left out.
func (r *reader) workloadPower(kind Kind, p *point) {
	row, zone := r.row(kind, p), r.zoneIndex(p)
	if zone < 0 || isIdle(p) || p.at.Before(r.At) {
		return
	}
	if r.Zones[zone].Besides == "" {
		row.Watts = Plus(row.Watts, p.value)
	}
	if r.Zones[zone].Zone == power.GPU {
		row.GPUWatts = Plus(row.GPUWatts, p.value)
	}
}

// workloadTime sets the CPU time of a workload whose energy or power was read.
func (r *reader) workloadTime(kind Kind, p *point) {
	if i, _ := r.find(kind, p); i >= 0 && p.value >= 0 && p.value < math.MaxInt64/1e9 {
		r.Rows[i].CPUTime = time.Duration(p.value * float64(time.Second))
	}
}

func isIdle(p *point) bool { return p.labels[attrState] == "idle" }

// Plus adds figures. NaN is a figure that is not available.
func Plus(a, b float64) float64 {
	switch {
	case math.IsNaN(a):
		return b
	case math.IsNaN(b):
		return a
	}
	return a + b
}

func latest(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// FromMetrics reads the metrics of a receiver.
func FromMetrics(md pmetric.Metrics) *Snapshot {
	found := map[string][]resourceMetric{}
	for _, rm := range md.ResourceMetrics().All() {
		resource := &[numLabels]string{}
		label(resource, rm.Resource().Attributes())
		for _, sm := range rm.ScopeMetrics().All() {
			for _, m := range sm.Metrics().All() {
				found[m.Name()] = append(found[m.Name()], resourceMetric{resource, m})
			}
		}
	}
	return read(func(m *metric, each func(*point)) {
		for _, of := range found[m.name] {
			for _, data := range of.points().All() {
				if data.Flags().NoRecordedValue() {
					continue
				}
				p := point{labels: *of.resource, value: data.DoubleValue(), at: data.Timestamp().AsTime()}
				if data.ValueType() == pmetric.NumberDataPointValueTypeInt {
					p.value = float64(data.IntValue())
				}
				if data.StartTimestamp() != 0 {
					p.start = data.StartTimestamp().AsTime()
				}
				label(&p.labels, data.Attributes())
				each(&p)
			}
		}
	})
}

// resourceMetric is a metric with the attributes of its resource.
type resourceMetric struct {
	resource *[numLabels]string
	pmetric.Metric
}

func (m *resourceMetric) points() pmetric.NumberDataPointSlice {
	switch m.Type() {
	case pmetric.MetricTypeSum:
		return m.Sum().DataPoints()
	case pmetric.MetricTypeGauge:
		return m.Gauge().DataPoints()
	}
	return pmetric.NewNumberDataPointSlice()
}

// label sets the labels of attributes.
func label(labels *[numLabels]string, from pcommon.Map) {
	for name, value := range from.All() {
		if attribute, ok := attributes[name]; ok {
			labels[attribute] = strings.ToValidUTF8(value.AsString(), "?")
		}
	}
}
