// SPDX-License-Identifier: Apache-2.0

package emissions

import (
	"errors"
	"maps"
	"slices"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/component/componentstatus"
	"go.uber.org/zap"
)

// conditions holds the reasons for which energy has no emissions, by name. Each change is reported once: in the log, and as a
// status event of the component.
type conditions struct {
	logger *zap.Logger
	host   component.Host
	active map[string]error
}

// set records whether a condition holds.
func (c *conditions) set(what string, err error) {
	switch old := c.active[what]; {
	case err == nil && old == nil, err != nil && old != nil && err.Error() == old.Error():
		return
	case err == nil:
		delete(c.active, what)
		c.logger.Info("Emissions recovered", zap.String("condition", what))
	default:
		c.active[what] = err
		c.logger.Warn("Emissions degraded", zap.String("condition", what), zap.Error(err))
	}
	if len(c.active) == 0 {
		componentstatus.ReportStatus(c.host, componentstatus.NewEvent(componentstatus.StatusOK))
		return
	}
	var errs []error
	for _, what := range slices.Sorted(maps.Keys(c.active)) {
		errs = append(errs, c.active[what])
	}
	componentstatus.ReportStatus(c.host, componentstatus.NewRecoverableErrorEvent(errors.Join(errs...)))
}
