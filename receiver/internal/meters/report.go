// SPDX-License-Identifier: Apache-2.0

package meters

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"github.com/energyreceiver/energyreceiver/internal/conditions"
	"github.com/energyreceiver/energyreceiver/internal/oneline"
	"github.com/energyreceiver/energyreceiver/internal/power"
)

// report records the problems of the meters.
func (m *Meters) report(c *conditions.Conditions) {
	c.Observe("energy sensor", m.sensorErr())
	c.Observe("GPU module", m.Set.ModuleErr())
	if r := m.Set.Remainder; r != nil && (!m.cfg.PresetOther || !r.IsForeign()) {
		c.Observe("zone other", r.Err())
	}
	failed := m.Set.Failed()
	if len(failed) == 0 {
		return
	}
	ids := make([]string, len(failed))
	for i := range failed {
		ids[i] = failed[i].Zone.ID
	}
	reason := failed[0].Err
	if i := slices.IndexFunc(failed, func(r power.Reading) bool { return errors.Is(r.Err, fs.ErrPermission) }); i > 0 {
		reason = oneline.Join(reason, failed[i].Err)
	}
	c.Observe("energy zones", withGrants(fmt.Errorf("cannot read %s: %w", strings.Join(ids, ", "), reason)))
}

// sensorErr returns the errors of sensors that should be read, or nil.
func (m *Meters) sensorErr() error {
	status := m.Set.Status()
	nothing := !slices.ContainsFunc(status, func(meter power.Status) bool { return isThere(&meter) || meter.IsWaiting() })
	var err error
	for i := range status {
		meter := &status[i]
		isFirst := err == nil || !errors.Is(meter.Err, fs.ErrNotExist) // report only one missing meter
		if isFirst && m.reports(meter, status[:i], nothing) {
			err = oneline.Join(err, meter.Err)
		}
	}
	if err != nil && nothing {
		model := "no power model configured: no energy is reported (set model: auto to estimate energy)"
		if m.cfg.Model.HasValue() {
			model = "no power model available: no energy is reported"
		}
		err = fmt.Errorf("no energy sensor found and %s: %w", model, err)
	}
	return withGrants(err)
}

// reports reports whether the error of a meter is reported. A missing meter is no error if another
// meter reads or may still answer, unless the meter would be used and only a permission is missing.
// nothing reports whether no other meter reads or may still answer.
func (m *Meters) reports(meter *power.Status, preferred []power.Status, nothing bool) bool {
	switch {
	case meter.Replaced || meter.Err == nil:
		return false
	case isMissing(meter):
		return nothing || errors.Is(meter.Err, fs.ErrPermission) && isMissed(meter, preferred)
	}
	return m.reportsFailure(meter)
}

// reportsFailure reports whether the failure of a meter is reported: the meter is in use or may be,
// or the configuration requires it. If zones fail with the same error, the zones report it.
func (m *Meters) reportsFailure(meter *power.Status) bool {
	if slices.ContainsFunc(m.Set.Failed(), func(r power.Reading) bool { return r.Err.Error() == meter.Err.Error() }) {
		return false
	}
	return m.required(meter.Name) || meter.InUse || len(meter.Readings) == 0
}

// isMissed reports whether a meter that cannot be read for lack of a permission would be used,
// because no preferred sensor is read. RAPL, which reads packages, is also missed if only sensors
// of the whole machine are read.
func isMissed(meter *power.Status, preferred []power.Status) bool {
	return !slices.ContainsFunc(preferred, func(p power.Status) bool {
		if meter.Family == "" {
			return isThere(&p) || p.IsWaiting()
		}
		return slices.ContainsFunc(p.Readings, func(r power.Reading) bool { return r.Zone.Kind == power.Package && r.Err == nil })
	})
}

// isMissing reports whether the machine has no sensor for the meter.
func isMissing(meter *power.Status) bool {
	return !meter.InUse && (errors.Is(meter.Err, fs.ErrNotExist) || errors.Is(meter.Err, power.ErrNoZones))
}

// isThere reports whether the machine has a sensor for the meter, even if reading it fails.
func isThere(meter *power.Status) bool {
	return !meter.Replaced && !isMissing(meter) && !meter.IsWaiting()
}

// withGrants adds the permission to grant if one is missing: since Linux 5.10 only root may read
// the energy counters (CVE-2020-8694).
func withGrants(err error) error {
	if !errors.Is(err, fs.ErrPermission) {
		return err
	}
	return fmt.Errorf("%w: run the collector as root, with CAP_DAC_READ_SEARCH or with CAP_PERFMON, or make the energy counters readable for its user", err)
}
