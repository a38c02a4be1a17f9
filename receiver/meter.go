// SPDX-License-Identifier: Apache-2.0

package energyreceiver

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"time"

	"go.uber.org/zap"

	"github.com/energyreceiver/energyreceiver/internal/power"
)

// meters holds the meter in use and knows when to take another: with the meter auto, a model that stands
// in for a sensor gives way as soon as the sensor can be read.
type meters struct {
	logger *zap.Logger
	zones  []power.Kind
	// mayModel says that a model may stand in for the sensor, if one is configured.
	mayModel bool
	sensor   *power.Powercap // nil if none is wanted
	model    *power.Model    // nil if none is wanted
	inUse    power.Meter     // nil while there is none
	onlyPSys bool            // of the sensor's zones psys alone can be attributed
	tallies  zoneTallies     // of the sensor's zones
}

func newMeters(cfg *Config, logger *zap.Logger) (*meters, error) {
	m := &meters{logger: logger, zones: cfg.Zones, mayModel: cfg.Meter == MeterAuto, tallies: zoneTallies{}}
	if cfg.Meter != MeterModel {
		m.sensor = power.NewPowercap(cfg.RootPath, func(k power.Kind) bool {
			return k == power.PSys || slices.Contains(cfg.Zones, k)
		})
	}
	if cfg.Meter != MeterPowercap && cfg.Model.HasValue() {
		curve, err := cfg.Model.Get().curve()
		if err != nil {
			return nil, err
		}
		m.model = power.NewModel(curve)
	}
	return m, nil
}

// read reads the meter in use. changed says that it is another than at the read before, whose totals have
// nothing to do with these.
func (m *meters) read(s power.Sample, c *conditions) (readings []power.Reading, changed bool) {
	before := m.inUse
	if m.sensor != nil {
		measured, err := m.sensor.Read(s)
		m.tallies.add(measured)
		m.onlyPSys = m.hasOnlyPSys(measured)
		standIn := m.model != nil && before != power.Meter(m.sensor) && !m.usable(measured)
		m.report(measured, err, standIn, c)
		if !standIn {
			m.use(m.sensor, readable(measured))
			return measured, m.inUse != before
		}
	}
	modeled, err := m.model.Read(s)
	c.check("power model", err)
	m.use(m.model, true)
	return modeled, m.inUse != before
}

// use takes a meter once it has something to say.
func (m *meters) use(meter power.Meter, usable bool) {
	if !usable || m.inUse == meter {
		return
	}
	m.inUse = meter
	if meter == power.Meter(m.model) {
		m.logger.Info("Meter selected: energy is modeled from CPU utilization, not measured", zap.String("meter", string(MeterModel)))
		return
	}
	m.logger.Info("Meter selected: energy is measured by powercap (RAPL)", zap.String("meter", string(MeterPowercap)))
}

// readable says whether any zone can be read.
func readable(readings []power.Reading) bool {
	return slices.ContainsFunc(readings, func(r power.Reading) bool { return r.Err == nil })
}

// usable says whether a zone that is to be attributed can be read.
func (m *meters) usable(readings []power.Reading) bool {
	return slices.ContainsFunc(readings, func(r power.Reading) bool {
		return r.Err == nil && (slices.Contains(m.zones, r.Zone.Kind) || m.onlyPSys)
	})
}

// hasOnlyPSys reports whether psys stands in for package: package is to be attributed, and psys is all that there is. The
// sensor remembers zones that it has seen, so psys does not stand in for a package that is lost.
func (m *meters) hasOnlyPSys(readings []power.Reading) bool {
	return len(readings) > 0 && slices.Contains(m.zones, power.Package) &&
		!slices.ContainsFunc(readings, func(r power.Reading) bool {
			return r.Zone.Kind != power.PSys || slices.Contains(m.zones, power.PSys)
		})
}

// attributed returns the kinds of zones whose energy is attributed.
func (m *meters) attributed() []power.Kind {
	if m.onlyPSys && (m.model == nil || m.inUse != power.Meter(m.model)) {
		return []power.Kind{power.PSys}
	}
	return m.zones
}

// report notes what is wrong with the sensor. That there is none is nothing wrong where the model stands in.
func (m *meters) report(readings []power.Reading, err error, standIn bool, c *conditions) {
	absent := errors.Is(err, fs.ErrNotExist) || errors.Is(err, power.ErrNoZones)
	switch {
	case err == nil:
	case absent && standIn && !errors.Is(err, fs.ErrPermission):
	case absent && m.mayModel && m.model == nil:
		c.check("energy sensor", fmt.Errorf("no energy sensor found and no power model configured; no energy is reported: %w", err))
	default:
		c.check("energy sensor", withGrants(err))
	}
	var failed []string
	var first error
	for _, r := range readings {
		if r.Err != nil {
			failed = append(failed, r.Zone.ID)
			first = cmp.Or(first, r.Err)
		}
	}
	if first != nil {
		c.check("energy zones", withGrants(fmt.Errorf("cannot read %s: %w", strings.Join(failed, ", "), first)))
	}
}

// withGrants says what to grant where a permission is missing: since Linux 5.10 only root may read the
// energy counters (CVE-2020-8694).
func withGrants(err error) error {
	if !errors.Is(err, fs.ErrPermission) {
		return err
	}
	return fmt.Errorf("%w: run the collector as root or with CAP_DAC_READ_SEARCH, or make energy_uj readable for its user", err)
}

// source says where the figures come from, empty while there are none.
func (m *meters) source() power.Source {
	if m.inUse == nil {
		return ""
	}
	return m.inUse.Source()
}

// soonestWrap is how soon a counter of the meter in use can wrap, 0 where none can.
func (m *meters) soonestWrap() time.Duration {
	if m.sensor == nil || m.inUse != power.Meter(m.sensor) {
		return 0
	}
	return m.sensor.SoonestWrap()
}

func (m *meters) close() error {
	if m.sensor == nil {
		return nil
	}
	return m.sensor.Close()
}
