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

// Meters reads the configured meters, logs the selected meters and reports errors.
type Meters struct {
	cfg    *config.Config
	logger *zap.Logger
	// required reports whether the configuration requires a meter. Other meters are used only if
	// the machine has them.
	required func(name string) bool
	Set      *power.Set
	// Readings are the readings of the last Read.
	Readings    []power.Reading
	GPUs        gpus
	Tallies     zoneTallies // of the sensors' zones
	model       *modelMeter // nil if there is no power model
	attributed  []power.Kind
	whole       power.Kind      // psys or platform if it replaces package, or empty
	wholeLogged power.Kind      // value of whole that was logged last
	logged      map[string]bool // messages, and IDs of corrected zones, that were logged
	lacksSince  time.Time       // sample time when the zone other first lacked a part
}

// New returns meters that do not access the machine before the first Read. set is the result of
// Open. waits limits the time spent waiting for files that users block.
func New(cfg *config.Config, logger *zap.Logger, set *power.Set, waits *kernfs.Waits) *Meters {
	m := &Meters{
		cfg: cfg, logger: logger, required: cfg.Meters.Requires, Set: set, Tallies: zoneTallies{}, attributed: cfg.Zones,
		logged: map[string]bool{},
	}
	for _, meter := range set.Status() {
		if model, ok := meter.Meter.(*modelMeter); ok {
			m.model = model
			if cfg.Meters.AreReported() {
				model.awaitsReport = m.awaitsReport
			}
		}
	}
	m.GPUs.open(cfg, set, logger, waits)
	return m
}

// Open opens the configured meters. They read no energy before the first Read.
func Open(ctx context.Context, cfg *config.Config, host component.Host, set component.TelemetrySettings) (*power.Set, error) {
	derivesOther := slices.Contains(cfg.Zones, power.Other)
	env := &drivers.Env{Root: cfg.RootPath, Interval: cfg.CollectionInterval, Host: host, Telemetry: set}
	env.Model = func() (power.Meter, error) { return openModel(cfg) }
	env.Want = func(k power.Kind) bool {
		switch k {
		case power.PSys, power.Platform, power.GPU: // includes zones that are only reported: hw.host.* and graphics cards
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

// ReadGPUs returns the usage of each GPU since the last call, and observes missing parts.
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

// awaitsReport reports whether the meter of the hypervisor's report has not answered yet.
func (m *Meters) awaitsReport() bool {
	return slices.ContainsFunc(m.Set.Status(), func(s power.Status) bool {
		return s.IsWaiting() && (s.Name == "powercap" || s.Name == "vsock")
	})
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
	for i := range m.Readings {
		if r := &m.Readings[i]; slices.Contains(m.attributed, r.Zone.Kind) {
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
			if meter.StandsIn && m.model != nil {
				m.model.log(m.logger, meter.Took)
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

// once reports whether a message is to be logged, and records that it was logged.
func (m *Meters) once(message string) bool {
	logged := m.logged[message]
	m.logged[message] = true
	return !logged
}

// logCorrections logs the correction of each of a meter's zones once.
func (m *Meters) logCorrections(meter *power.Status) {
	for i := range meter.Readings {
		zone, c := meter.Readings[i].Zone, meter.Readings[i].Correction
		if !c.IsZero() && m.once(zone.ID) {
			m.logger.Info("Meter corrected", zap.String("meter", meter.Name), zap.String("zone", zone.ID), zap.Duration("lag", c.Lag),
				zap.Float64("factor", c.Scale()), zap.Float64("offset", float64(c.Offset)/1e6))
		}
	}
}

// logResumptions logs which zones lack energy of the time while the receiver was down.
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
// power, if available.
func (m *Meters) ModelErrors(yield func(power.Kind, float64)) {
	for i := range m.Readings {
		zone := m.Readings[i].Zone
		if c := m.model.curve(zone.Kind); c != nil && c.ExpectedError > 0 && zone.Method == power.Modeled {
			yield(zone.Kind, c.ExpectedError)
		}
	}
}

// IdlePower returns the power in watts that the model gives a zone kind while no CPU is busy.
func (m *Meters) IdlePower(kind power.Kind) (watts float64, ok bool) {
	if c := m.model.curve(kind); c != nil {
		return c.IdleWatts(), true
	}
	return 0, false
}

// logIncomplete logs once the zone kinds without a curve. It is a warning unless a
// sensor is in use.
func (m *Meters) logIncomplete() {
	const message = "Power model incomplete"
	if m.model == nil || m.model.incomplete == nil || !m.once(message) {
		return
	}
	level := zap.WarnLevel
	if slices.ContainsFunc(m.Set.Status(), func(meter power.Status) bool { return meter.InUse && !meter.StandsIn }) {
		level = zap.InfoLevel
	}
	m.logger.Log(level, message, zap.String("error", oneline.Text(m.model.incomplete)))
}

// logUnused logs once what meters found and do not use.
func (m *Meters) logUnused() {
	const message = "Sensors without a known zone are not used: name them in meters::hwmon::sensors"
	if !m.once(message) {
		return
	}
	for _, status := range m.Set.Status() {
		if meter, ok := status.Meter.(interface{ Unused() []string }); ok && len(meter.Unused()) > 0 {
			m.logger.Info(message, zap.String("meter", status.Name), zap.Strings("sensors", meter.Unused()))
		}
	}
}

// logLacks logs once why there is no zone other, if that is so a minute after the first read. By
// then most meters have answered.
func (m *Meters) logLacks(at time.Time) {
	const message = "Zone other not reported: no meter has read "
	r := m.Set.Remainder
	switch {
	case r == nil || r.Lacks() == "":
	case m.lacksSince.IsZero():
		m.lacksSince = at
	case at.Sub(m.lacksSince) >= time.Minute && m.once(message):
		level := zap.WarnLevel
		if m.cfg.PresetOther {
			level = zap.InfoLevel
		}
		m.logger.Log(level, message+r.Lacks())
	}
}

// updateAttributed notes which zone kinds are attributed, and logs a change.
func (m *Meters) updateAttributed(readings []power.Reading) {
	if whole := m.standIn(readings); whole != m.whole {
		m.whole, m.attributed = whole, m.cfg.Zones
		switch {
		case whole == "":
		case slices.Contains(m.cfg.Zones, power.GPU):
			m.attributed = []power.Kind{whole, power.GPU}
		default:
			m.attributed = []power.Kind{whole}
		}
	}
	if m.whole == m.wholeLogged || m.whole != "" && m.cfg.PrefersPSys() && !hasCounted(m.whole, readings) {
		return // psys is dropped if its counter does not change while package counts
	}
	m.wholeLogged = m.whole
	if m.whole == "" {
		m.logger.Info("Energy of the configured zones is attributed", zap.Any("zones", m.cfg.Zones))
		return
	}
	reason := "the machine has no other zone"
	if m.whole == power.PSys && m.cfg.PrefersPSys() {
		reason = "the preset prefers it to package and dram"
	}
	m.logger.Info("Energy of " + string(m.whole) + " is attributed: " + reason)
}

// standIn returns the zone kind that replaces package, or "". A zone kind replaces package if
// package is to be attributed and no zone of a configured kind exists, except GPUs, which have
// users of their own. Meters keep zones that they have found, so a package that becomes unreadable
// is not replaced.
func (m *Meters) standIn(readings []power.Reading) power.Kind {
	if !slices.Contains(m.cfg.Zones, power.Package) {
		return ""
	}
	if m.cfg.PrefersPSys() && hasPSys(readings) {
		return power.PSys
	}
	var read, listed [2]bool // indexed as WholeMachine
	for i := range readings {
		r := &readings[i]
		if r.Zone.Kind != power.GPU && slices.Contains(m.cfg.Zones, r.Zone.Kind) {
			return ""
		}
		if k := slices.Index(rules.WholeMachine, r.Zone.Kind); k >= 0 {
			listed[k], read[k] = true, read[k] || !r.At.IsZero()
		}
	}
	for _, there := range [...][2]bool{read, listed} {
		if k := slices.Index(there[:], true); k >= 0 {
			return rules.WholeMachine[k]
		}
	}
	return ""
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
func (m *Meters) Attributed() []power.Kind { return m.attributed }

// Behind returns how long before now the zone reported last that is furthest behind, of those that
// are attributed and could be read.
func (m *Meters) Behind(now time.Time) (longest time.Duration) {
	for i := range m.Readings {
		if r := &m.Readings[i]; r.Err == nil && !r.At.IsZero() && slices.Contains(m.attributed, r.Zone.Kind) {
			longest = max(longest, now.Sub(r.At))
		}
	}
	return longest
}

// SoonestWrap returns how soon a counter in use can wrap, or 0 if no counter can.
func (m *Meters) SoonestWrap() time.Duration { return m.Set.SoonestWrap() }

// CanRest reports whether windows may be longer while the machine is at rest. Each attributed zone
// must be modeled, by a power model that depends on CPU utilization alone and is lowest at rest.
func (m *Meters) CanRest() bool {
	for _, r := range m.AttributedReadings() {
		if r.Err != nil || r.Zone.Method != power.Modeled {
			return false
		}
	}
	return m.model == nil || !slices.ContainsFunc(m.model.curves, func(c model.ZoneCurve) bool { return !c.IsIdleLowest() })
}

// Close closes the meters and the sources of GPU usage.
func (m *Meters) Close() error { return errors.Join(m.GPUs.close(), m.Set.Close()) }
