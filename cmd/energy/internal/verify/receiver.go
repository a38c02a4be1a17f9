// SPDX-License-Identifier: Apache-2.0

package verify

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"time"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.uber.org/zap"

	"github.com/energyreceiver/energyreceiver/internal/power"
	energyreceiver "github.com/energyreceiver/energyreceiver/receiver"
)

// receiver is the receiver in this process.
type receiver struct {
	embedded *energyreceiver.Embedded
	energy   map[string]attributed // of all series of processes that ever were, by resource and class
}

// attributed is the energy of a series of a process.
type attributed struct {
	pid, class string
	joules     float64
}

// configure enables the metrics that the checks need.
func configure(cfg *energyreceiver.Config) {
	cfg.CollectionInterval, cfg.InitialDelay, cfg.Window, cfg.Storage = collectEvery, 0, 0, ""
	cfg.Series.Processes = energyreceiver.ProcessSeriesConfig{GroupBy: energyreceiver.GroupByPID}
	m := &cfg.Metrics
	m.SystemEnergy.Enabled, m.SystemUnattributedEnergy.Enabled, m.ProcessEnergy.Enabled = true, true, true
	m.HwEnergy.Enabled, m.HwHostEnergy.Enabled, m.HwPower.Enabled = true, true, true
	m.HwGpuUtilization.Enabled, m.SystemPowerUncertainty.Enabled = true, true
}

func openReceiver(ctx context.Context, given *energyreceiver.Config) (*receiver, error) {
	cfg := *given
	configure(&cfg)
	r := &receiver{energy: map[string]attributed{}}
	var err error
	if r.embedded, err = energyreceiver.Embed(&cfg, energyreceiver.EmbeddedOptions{Logger: zap.NewNop()}); err != nil {
		return nil, err
	}
	if err := r.embedded.Start(ctx); err != nil {
		return nil, errors.Join(err, r.close())
	}
	return r, nil
}

func (r *receiver) close() error { return r.embedded.Shutdown(context.Background()) }

// answersWithin is how long the first answer of a meter is waited for.
const answersWithin = 8 * time.Second

// await waits until all meters have answered.
func (r *receiver) await(ctx context.Context) {
	deadline := time.Now().Add(answersWithin)
	for r.embedded.Waits() && time.Now().Before(deadline) && ctx.Err() == nil {
		time.Sleep(readEvery)
		_, _ = r.collect(ctx)
	}
}

func (r *receiver) meters() []power.Status { return r.embedded.Meters() }

func (r *receiver) trained() map[string]bool {
	trained := map[string]bool{}
	for class, is := range r.embedded.Trained() {
		trained[classID(class.Zone, class.Method)] = is
	}
	return trained
}

// joules returns the energy of the process by class.
func (r *receiver) joules(pid int) map[string]float64 {
	found := map[string]float64{}
	for _, s := range r.energy {
		if s.pid == strconv.Itoa(pid) {
			found[s.class] += s.joules
		}
	}
	return found
}

// collect measures.
func (r *receiver) collect(ctx context.Context) (Entry, error) {
	md, err := r.embedded.Collect(ctx)
	if err != nil {
		return Entry{}, err
	}
	e := Entry{Kinds: map[string]Sums{}, GPUs: map[string]GPU{}}
	for _, rm := range md.ResourceMetrics().All() {
		for _, sm := range rm.ScopeMetrics().All() {
			for _, m := range sm.Metrics().All() {
				r.add(&e, rm.Resource().Attributes(), m)
			}
		}
	}
	processes := map[string]float64{}
	for _, s := range r.energy {
		processes[s.class] += s.joules
	}
	for class, k := range e.Kinds {
		k.Processes = processes[class]
		e.Kinds[class] = k
	}
	maps.DeleteFunc(e.Kinds, func(_ string, k Sums) bool { return !k.split })
	return e, nil
}

// add adds the points of a metric to an entry.
func (r *receiver) add(e *Entry, resource pcommon.Map, m pmetric.Metric) {
	points := pmetric.NewNumberDataPointSlice()
	switch m.Type() {
	case pmetric.MetricTypeSum:
		points = m.Sum().DataPoints()
	case pmetric.MetricTypeGauge:
		points = m.Gauge().DataPoints()
	}
	for _, p := range points.All() {
		if p.Flags().NoRecordedValue() {
			continue
		}
		value := p.DoubleValue()
		if p.ValueType() == pmetric.NumberDataPointValueTypeInt {
			value = float64(p.IntValue())
		}
		kind := power.Kind(attribute(p.Attributes(), "energy.zone"))
		class := classID(kind, power.Method(attribute(p.Attributes(), "energy.method")))
		k, id := e.Kinds[class], attribute(p.Attributes(), "hw.id")
		g := e.GPUs[id]
		switch m.Name() {
		case "process.energy":
			key := fmt.Sprint(resource.AsRaw(), p.Attributes().AsRaw())
			r.energy[key] = attributed{pid: attribute(resource, "process.pid"), class: class, joules: value}
			continue
		case "system.energy":
			k.split = true
			if attribute(p.Attributes(), "energy.state") == "idle" {
				k.Idle = value
			} else {
				k.Active = value
			}
		case "system.unattributed.energy":
			k.Unattributed += value
		case "hw.energy", "hw.host.energy":
			if (m.Name() == "hw.host.energy") == (kind == power.Platform) {
				k.Zones += value
			}
		case "system.power.uncertainty":
			k.Uncertainty = value
		case "hw.gpu.utilization":
			g.Utilization = value
			e.GPUs[id] = g
			continue
		case "hw.power":
			if kind == power.GPU {
				g.Watts = value
				e.GPUs[id] = g
			}
			continue
		default:
			continue
		}
		e.Kinds[class] = k
	}
}

func attribute(attributes pcommon.Map, key string) string {
	if v, ok := attributes.Get(key); ok {
		return v.AsString()
	}
	return ""
}
