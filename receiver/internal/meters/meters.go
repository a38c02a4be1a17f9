// SPDX-License-Identifier: Apache-2.0

package meters

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"go.opentelemetry.io/collector/component"
	"go.uber.org/zap"

	"github.com/energyreceiver/energyreceiver/internal/conditions"
	"github.com/energyreceiver/energyreceiver/internal/drivers"
	"github.com/energyreceiver/energyreceiver/internal/kernfs"
	"github.com/energyreceiver/energyreceiver/internal/oneline"
	"github.com/energyreceiver/energyreceiver/internal/power"
	"github.com/energyreceiver/energyreceiver/internal/power/model"
	"github.com/energyreceiver/energyreceiver/internal/units"
	"github.com/energyreceiver/energyreceiver/internal/usage/gpu"
	"github.com/energyreceiver/energyreceiver/internal/usage/proc"
	"github.com/energyreceiver/energyreceiver/receiver/internal/config"
	"github.com/energyreceiver/energyreceiver/receiver/internal/rules"
)

// Meters reads the meters that the configuration selects, logs which are in use and reports what is
// wrong with them.
type Meters struct {
	cfg    *config.Config
	logger *zap.Logger
	// required reports whether the configuration requires the meter with the name, rather than
	// using it if the machine has it.
	required func(name string) bool
	Set      *power.Set
	// Readings are those of the last Read.
	Readings     []power.Reading
	GPUs         gpus
	whole        []power.Kind // psys or platform, where it stands in for package
	wholeLogged  []power.Kind // the last logged whole
	wholeAndGPUs [2]power.Kind
	Tallies      zoneTallies     // of the sensors' zones
	corrected    map[string]bool // the zones, by ID, whose correction was logged
	unusedLogged bool
	lacksSince   time.Time // sample time at which the zone other was first found to lack something
	lacksLogged  bool
}

// New returns meters that read nothing before the first Read. set is the result of Open. waits bounds
// the waits for files that users block.
func New(cfg *config.Config, logger *zap.Logger, set *power.Set, waits *kernfs.Waits) *Meters {
	m := &Meters{cfg: cfg, logger: logger, required: cfg.Meters.Requires, Set: set, Tallies: zoneTallies{}}
	m.GPUs.open(cfg, set, logger, waits)
	return m
}

// Open opens the meters that the configuration asks for. They read no energy before the first Read.
func Open(ctx context.Context, cfg *config.Config, host component.Host, set component.TelemetrySettings) (*power.Set, error) {
	derivesOther := slices.Contains(cfg.Zones, power.Other)
	env := &drivers.Env{Root: cfg.RootPath, Interval: cfg.CollectionInterval, Host: host, Telemetry: set}
	env.Model = func() (power.Meter, error) { return openModel(cfg) }
	env.Want = func(k power.Kind) bool {
		switch k {
		case power.PSys, power.Platform, power.GPU: // what is only reported, too: hw.host.* and graphics cards
			return true
		case power.Package, power.DRAM:
			return derivesOther || slices.Contains(cfg.Zones, k)
		}
		return slices.Contains(cfg.Zones, k)
	}
	var members []power.Member
	for _, driver := range cfg.Meters.Selected() {
		meter, err := driver.Open(ctx, &cfg.Meters, env)
		if err != nil {
			return nil, fmt.Errorf("open meter %s: %w", driver.Name, err)
		}
		if meter != nil {
			member := driver.Member(meter)
			member.Completes, member.Correction = driver.StandsIn && cfg.Completes(), cfg.Meters.Correction(driver.Name)
			members = append(members, member)
		}
	}
	zones := power.NewSet(members...)
	if derivesOther {
		zones.Remainder = new(power.Remainder)
	}
	return zones, nil
}

// selectedMessage returns the message to log when a meter is selected.
func selectedMessage(meter *power.Status) string {
	name := meter.Name
	if slices.ContainsFunc(meter.Readings, func(r power.Reading) bool { return r.Zone.Method == power.Reported }) {
		name = "vsock"
	}
	return "Meter selected: energy is " + drivers.Lookup(name).Energy
}

// ReadGPUs returns the usage of each GPU since the last call, and observes what it lacks.
func (m *Meters) ReadGPUs(now time.Time, processes *proc.Table, c *conditions.Conditions) []gpu.Usage {
	used, err := m.GPUs.read(now, processes, m.Readings)
	c.Observe("GPU usage", err)
	c.Observe("GPU library", m.GPUs.notes.check(now, m.Readings, used, m.Set))
	return used
}

// Waits reports whether a meter has not answered yet.
func (m *Meters) Waits() bool {
	return slices.ContainsFunc(m.Set.Status(), func(s power.Status) bool { return s.IsWaiting() })
}

// AwaitsAttributed reports whether a meter whose energy would be attributed has not answered yet:
// the configuration requires it, or no other sensor has answered.
func (m *Meters) AwaitsAttributed() bool {
	readings := m.AttributedReadings()
	if slices.ContainsFunc(readings, func(r power.Reading) bool { return r.At.IsZero() && r.Err == nil }) {
		return true
	}
	sensed := slices.ContainsFunc(readings, func(r power.Reading) bool { return r.Zone.Method != power.Modeled })
	return slices.ContainsFunc(m.Set.Status(), func(s power.Status) bool {
		return s.IsWaiting() && (!sensed || m.required(s.Name))
	})
}

// AttributedReadings returns the last readings of the zones whose energy is attributed.
func (m *Meters) AttributedReadings() (readings []power.Reading) {
	attributed := m.Attributed()
	for i := range m.Readings {
		if r := &m.Readings[i]; slices.Contains(attributed, r.Zone.Kind) {
			readings = append(readings, *r)
		}
	}
	return readings
}

// Read reads the meters. changed reports whether a zone kind is read from another meter than
// before.
func (m *Meters) Read(ctx context.Context, s power.Sample, c *conditions.Conditions) (readings []power.Reading, changed bool) {
	readings = m.Set.Read(ctx, s)
	m.Readings = readings
	for _, meter := range m.Set.Status() {
		if len(meter.Took) > 0 {
			changed = true
			m.logger.Info(selectedMessage(&meter), zap.String("meter", meter.Name), zap.Any("zones", meter.Took),
				zap.Strings("names", namesOf(&meter)))
			if model, ok := meter.Meter.(*modelMeter); ok {
				model.log(m.logger, meter.Took)
			}
		}
		m.logCorrections(&meter)
		if !meter.StandsIn {
			m.Tallies.Add(meter.Readings)
		}
	}
	if changed {
		m.logIncomplete()
	}
	m.logResumptions()
	m.logUnused()
	m.logLacks(s.At)
	m.report(c)
	m.updateAttributed(readings)
	return readings, changed
}

// logCorrections logs the correction of each of a meter's zones once.
func (m *Meters) logCorrections(meter *power.Status) {
	for i := range meter.Readings {
		r := &meter.Readings[i]
		c := r.Correction
		if c.IsZero() || m.corrected[r.Zone.ID] {
			continue
		}
		if m.corrected == nil {
			m.corrected = map[string]bool{}
		}
		m.corrected[r.Zone.ID] = true
		m.logger.Info("Meter corrected", zap.String("meter", meter.Name), zap.String("zone", r.Zone.ID), zap.Duration("lag", c.Lag),
			zap.Float64("factor", c.Scale()), zap.Float64("offset", float64(c.Offset)/1e6))
	}
}

// logResumptions logs which zones lack energy of the time in which the receiver was down.
func (m *Meters) logResumptions() {
	resumptions := m.Set.Resumptions()
	for i := range resumptions {
		reason := resumptions[i].Err
		if reason == nil || slices.ContainsFunc(resumptions[:i], func(r power.Resumption) bool { return errors.Is(r.Err, reason) }) {
			continue // logged with the first affected zone
		}
		var zones []string
		for _, r := range resumptions[i:] {
			if errors.Is(r.Err, reason) {
				zones = append(zones, r.Zone.ID)
				m.Tallies.miss(&r)
			}
		}
		m.logger.Warn("Energy during downtime is incomplete", zap.Strings("zones", zones),
			zap.Duration("elapsed", resumptions[i].Elapsed), zap.Error(reason))
	}
}

// namesOf returns the names of the zones of the kinds that a meter was given.
func namesOf(meter *power.Status) (names []string) {
	for i := range meter.Readings {
		if zone := meter.Readings[i].Zone; slices.Contains(meter.Took, zone.Kind) {
			names = append(names, zone.Name)
		}
	}
	return names
}

// ModelErrors calls yield with each zone kind that is modeled, and the error to be expected of its
// power, if that is known.
func (m *Meters) ModelErrors(yield func(power.Kind, float64)) {
	for _, status := range m.Set.Status() {
		model, ok := status.Meter.(*modelMeter)
		if !ok {
			continue
		}
		for i := range m.Readings {
			zone := m.Readings[i].Zone
			if expected := model.expectedError(zone.Kind); expected > 0 && zone.Method == power.Modeled {
				yield(zone.Kind, expected)
			}
		}
	}
}

// logIncomplete logs once of which zone kinds the model has no curve. It is a warning unless a
// sensor is in use.
func (m *Meters) logIncomplete() {
	status := m.Set.Status()
	sensor := slices.ContainsFunc(status, func(meter power.Status) bool { return meter.InUse && !meter.StandsIn })
	for i := range status {
		model, ok := status[i].Meter.(*modelMeter)
		if !ok || model.incomplete == nil {
			continue
		}
		level := zap.WarnLevel
		if sensor {
			level = zap.InfoLevel
		}
		m.logger.Log(level, "Power model incomplete", zap.String("error", oneline.Text(model.incomplete)))
		model.incomplete = nil
	}
}

// logUnused logs once what meters found and do not use.
func (m *Meters) logUnused() {
	if m.unusedLogged {
		return
	}
	m.unusedLogged = true
	for _, status := range m.Set.Status() {
		if meter, ok := status.Meter.(interface{ Unused() []string }); ok && len(meter.Unused()) > 0 {
			m.logger.Info("Sensors of unknown meaning not used. They can be named in meters::hwmon::sensors", zap.String("meter", status.Name), zap.Strings("sensors", meter.Unused()))
		}
	}
}

// logLacks logs once why there is no zone other, if that is so a minute after the first read. By
// then most meters have answered.
func (m *Meters) logLacks(at time.Time) {
	r := m.Set.Remainder
	switch {
	case r == nil || r.Lacks() == "" || m.lacksLogged:
	case m.lacksSince.IsZero():
		m.lacksSince = at
	case at.Sub(m.lacksSince) >= time.Minute:
		m.lacksLogged = true
		level := zap.WarnLevel
		if m.cfg.PresetOther {
			level = zap.InfoLevel
		}
		m.logger.Log(level, "Zone other not reported: no meter has read "+r.Lacks())
	}
}

// updateAttributed notes which zone kinds are attributed, and logs a change.
func (m *Meters) updateAttributed(readings []power.Reading) {
	m.whole = m.standIn(readings)
	if m.whole != nil {
		m.wholeAndGPUs = [2]power.Kind{m.whole[0], power.GPU}
	}
	if slices.Equal(m.whole, m.wholeLogged) || m.whole != nil && m.cfg.PrefersPSys() && !hasCounted(m.whole[0], readings) {
		return // a psys that stands still is given up when package counts
	}
	m.wholeLogged = m.whole
	if m.whole == nil {
		m.logger.Info("Energy of the configured zones is attributed", zap.Any("zones", m.cfg.Zones))
		return
	}
	kind := m.whole[0]
	reason := "the machine has no other zone"
	if kind == power.PSys && m.cfg.PrefersPSys() {
		reason = "the preset prefers it to package and dram"
	}
	m.logger.Info("Energy of " + string(kind) + " is attributed: " + reason)
}

// standIn returns the zone kind that stands in for package, nil if none does: package is to be
// attributed, and there is no zone of a configured kind but GPUs, which have users of their own. A
// meter remembers zones that it has seen, so nothing stands in for a package that is lost.
func (m *Meters) standIn(readings []power.Reading) []power.Kind {
	if !slices.Contains(m.cfg.Zones, power.Package) {
		return nil
	}
	if m.cfg.PrefersPSys() && hasPSys(readings) {
		return rules.WholeMachine[1:]
	}
	var read, listed [2]bool // by the index in wholeMachine
	for i := range readings {
		r := &readings[i]
		if r.Zone.Kind != power.GPU && slices.Contains(m.cfg.Zones, r.Zone.Kind) {
			return nil
		}
		if k := slices.Index(rules.WholeMachine, r.Zone.Kind); k >= 0 {
			listed[k], read[k] = true, read[k] || !r.At.IsZero()
		}
	}
	for _, there := range [...][2]bool{read, listed} {
		if k := slices.Index(there[:], true); k >= 0 {
			return rules.WholeMachine[k : k+1]
		}
	}
	return nil
}

// hasCounted reports whether zones of a kind have counted energy.
func hasCounted(k power.Kind, readings []power.Reading) bool {
	return slices.ContainsFunc(readings, func(r power.Reading) bool { return r.Zone.Kind == k && r.Total > 0 })
}

// hasPSys reports whether psys is read and is not modeled. On servers without a sensor for it, psys
// stands still while package counts.
func hasPSys(readings []power.Reading) bool {
	var psys, packages units.Energy
	isRead := false
	for i := range readings {
		switch r := &readings[i]; {
		case r.Zone.Kind == power.Package:
			packages += r.Total
		case r.Zone.Kind == power.PSys && r.Zone.Method != power.Modeled:
			psys += r.Total
			isRead = isRead || !r.At.IsZero()
		}
	}
	return isRead && (psys > 0 || packages == 0)
}

// Attributed returns the zone kinds whose energy is attributed.
func (m *Meters) Attributed() []power.Kind {
	switch {
	case m.whole == nil:
		return m.cfg.Zones
	case slices.Contains(m.cfg.Zones, power.GPU):
		return m.wholeAndGPUs[:]
	default:
		return m.whole
	}
}

// Behind returns how long before now the zone reported last that is furthest behind, of those that
// are attributed and could be read.
func (m *Meters) Behind(now time.Time) (longest time.Duration) {
	attributed := m.Attributed()
	for i := range m.Readings {
		if r := &m.Readings[i]; r.Err == nil && !r.At.IsZero() && slices.Contains(attributed, r.Zone.Kind) {
			longest = max(longest, now.Sub(r.At))
		}
	}
	return longest
}

// SoonestWrap returns how soon a counter in use can wrap, or 0 if none can.
func (m *Meters) SoonestWrap() time.Duration { return m.Set.SoonestWrap() }

// CanRest reports whether windows may be longer while the machine is at rest. Each attributed zone
// must be modeled, by a power model that depends on CPU utilization alone and is lowest at rest.
func (m *Meters) CanRest() bool {
	for _, r := range m.AttributedReadings() {
		if r.Err != nil || r.Zone.Method != power.Modeled {
			return false
		}
	}
	return !slices.ContainsFunc(m.Set.Status(), func(s power.Status) bool {
		m, ok := s.Meter.(*modelMeter)
		return ok && slices.ContainsFunc(m.curves, func(c model.ZoneCurve) bool { return !c.IsIdleLowest() })
	})
}

// Close closes the meters and the sources of GPU usage.
func (m *Meters) Close() error { return errors.Join(m.GPUs.close(), m.Set.Close()) }
