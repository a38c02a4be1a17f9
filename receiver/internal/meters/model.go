// SPDX-License-Identifier: Apache-2.0

package meters

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/energyreceiver/energyreceiver/internal/kernfs"
	"github.com/energyreceiver/energyreceiver/internal/machine"
	"github.com/energyreceiver/energyreceiver/internal/note"
	"github.com/energyreceiver/energyreceiver/internal/oneline"
	"github.com/energyreceiver/energyreceiver/internal/power"
	"github.com/energyreceiver/energyreceiver/internal/power/model"
	"github.com/energyreceiver/energyreceiver/internal/power/model/catalog"
	"github.com/energyreceiver/energyreceiver/internal/power/model/nodeevents"
	"github.com/energyreceiver/energyreceiver/internal/power/model/trained"
	"github.com/energyreceiver/energyreceiver/receiver/internal/config"
)

// modelCurves returns the curves of the zone kinds of the machine. The error names the missing
// curves and the reasons.
func modelCurves(m *config.ModelConfig, what machine.Machine, kinds []power.Kind, e *nodeevents.Events) ([]model.ZoneCurve, error) {
	switch {
	case m.IsStated():
		return statedCurves(m, what, kinds)
	case m.File != "":
		return trainedCurves(m, what, kinds, e)
	}
	return catalog.Curves(what, catalog.Options{Kinds: kinds, WithoutIdle: m.Idle == config.ModelIdleNone, MemoryPower: m.MemoryPower})
}

// statedCurves returns the curve that the configuration states, and the curve of memory.
func statedCurves(m *config.ModelConfig, what machine.Machine, kinds []power.Kind) ([]model.ZoneCurve, error) {
	stated := model.ZoneCurve{Kind: m.ZoneKind()}
	points := make([]model.Point, len(m.Points))
	for i, p := range m.Points {
		points[i] = model.Point{Utilization: p.Utilization, Watts: p.Power}
	}
	var err error
	if len(points) > 0 {
		stated.Curve, err = model.NewCurve(points)
	} else {
		stated.Curve, err = catalog.Between(m.IdlePower, m.MaxPower, catalog.DefaultShape)
	}
	if len(points) == 0 && stated.Kind == power.Package {
		stated.ExpectedError = catalog.BetweenError(what, catalog.DefaultShape)
	}
	if err != nil {
		return nil, err
	}
	return withMemory([]model.ZoneCurve{stated}, what, m.MemoryPower, kinds)
}

// trainedCurves returns the curves of a trained model.
func trainedCurves(m *config.ModelConfig, what machine.Machine, kinds []power.Kind, e *nodeevents.Events) ([]model.ZoneCurve, error) {
	want := func(k power.Kind) bool { return slices.Contains(kinds, k) && (k != power.DRAM || m.MemoryPower == 0) }
	curves, err := trained.Curves(m.File, what, trained.Options{Want: want, NoIdle: m.Idle == config.ModelIdleNone, Readable: e.Readable})
	if len(curves) == 0 {
		return nil, err
	}
	all, memoryErr := withMemory(curves, what, m.MemoryPower, kinds)
	return all, errors.Join(err, memoryErr)
}

// withMemory adds the curve of memory if its power is configured.
func withMemory(curves []model.ZoneCurve, what machine.Machine, wattsPerGiB float64, kinds []power.Kind) ([]model.ZoneCurve, error) {
	if wattsPerGiB == 0 || !slices.Contains(kinds, power.DRAM) {
		return curves, nil
	}
	if what.Memory == 0 {
		return curves, errors.New("no power model of dram: the size of the memory is not available")
	}
	memory, err := catalog.Memory(what.Memory, wattsPerGiB)
	if err != nil {
		return curves, err
	}
	return append(curves, memory), nil
}

func openModel(c *config.Config) (power.Meter, error) {
	kinds := c.ModeledKinds()
	if len(kinds) == 0 {
		return nil, nil
	}
	cfg := c.Model.Get()
	what, err := kernfs.Within(c.RootPath, filepath.Join(c.RootPath, "sys/devices/system"), func() (machine.Machine, error) {
		return machine.Read(c.RootPath, os.Getenv)
	}, nil)
	var curves []model.ZoneCurve
	counted := nodeevents.New(c.RootPath)
	if err == nil || cfg.IsStated() {
		curves, err = modelCurves(cfg, what, kinds, counted)
	}
	var needs []model.Feature
	for _, c := range curves {
		needs = append(needs, c.Needs...)
	}
	counted.Keep(needs)
	switch {
	case len(curves) > 0:
	case cfg.IsStated():
		return nil, err
	default:
		return noModel(oneline.Text(err)), nil
	}
	return &modelMeter{Meter: model.New(counted, curves...), curves: curves, machine: what.String(), incomplete: err}, nil
}

// noModel is the meter of a model without any curve. Its text is the reason, which all reads return
// as an error. The error is a power.ErrNoZones, because a model is not needed if a sensor is read.
type noModel string

func (m noModel) Read(context.Context, power.Sample) ([]power.Reading, error) { return nil, m }
func (noModel) Close() error                                                  { return nil }
func (m noModel) Error() string                                               { return "no power model: " + string(m) }
func (noModel) Is(target error) bool                                          { return target == power.ErrNoZones }

// modelMeter is a model with the origin of its curves.
type modelMeter struct {
	power.Meter
	curves  []model.ZoneCurve
	machine string // description of the machine
	// incomplete is the reason why some zone kinds have no curve, or nil.
	incomplete error
	// awaitsReport reports whether the meter of the hypervisor's report has returned neither a reading
	// nor an error yet. It is nil without such a meter, and after the wait.
	awaitsReport func() bool
	first        time.Time // sample time of the first Read
}

// reportPatience is how long modeling waits for the hypervisor's report. A zone that was modeled only
// before the first report would remain in the metrics, without energy.
const reportPatience = 5 * time.Second

// Read returns no readings while the hypervisor's report is awaited. The model counts nevertheless, as
// it may resume from before a restart.
func (m *modelMeter) Read(ctx context.Context, s power.Sample) ([]power.Reading, error) {
	readings, err := m.Meter.Read(ctx, s)
	if m.first.IsZero() {
		m.first = s.At
	}
	if m.awaitsReport != nil && s.At.Sub(m.first) < reportPatience && m.awaitsReport() {
		return nil, nil
	}
	m.awaitsReport = nil
	return readings, err
}

// log logs the basis of the curves of the zone kinds.
func (m *modelMeter) log(logger *zap.Logger, kinds []power.Kind) {
	for _, c := range m.curves {
		if !slices.Contains(kinds, c.Kind) {
			continue
		}
		expected := "unknown"
		if c.ExpectedError > 0 {
			expected = inPercent(c.ExpectedError)
		}
		most := "unknown"
		if c.Function == nil {
			most = watts(c.Curve.Watts(1))
		}
		kind, basis := string(c.Kind), cmp.Or(c.Basis, "the configuration")
		logger.Info("Power model selected", zap.String("zone", kind), zap.String("basis", basis),
			zap.String("machine", m.machine), zap.String("idle_power", watts(c.IdleWatts())), zap.String("max_power", most),
			zap.String("expected_error", expected),
			note.Note{About: kind, Text: kind + " is modeled from " + basis + "; expected error " + expected}.Field())
	}
}

// inPercent returns a share in percent with at least two digits.
func inPercent(share float64) string {
	if share < 0.0995 {
		return fmt.Sprintf("%.2g %%", 100*share)
	}
	return fmt.Sprintf("%.0f %%", 100*share)
}

func watts(w float64) string { return fmt.Sprintf("%.3g W", w) }

// curve returns the curve of a zone kind, or nil. m may be nil.
func (m *modelMeter) curve(kind power.Kind) *model.ZoneCurve {
	if m == nil {
		return nil
	}
	i := slices.IndexFunc(m.curves, func(c model.ZoneCurve) bool { return c.Kind == kind })
	if i < 0 {
		return nil
	}
	return &m.curves[i]
}
