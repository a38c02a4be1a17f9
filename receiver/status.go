// SPDX-License-Identifier: Apache-2.0

package energyreceiver

import (
	"errors"
	"maps"
	"slices"
	"sync"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/component/componentstatus"
	"go.uber.org/zap"
)

// conditions holds what is wrong with the collection, by name. Each change is reported once: in the log, and as a status
// event of the component.
type conditions struct {
	logger *zap.Logger
	host   component.Host

	mu     sync.Mutex // guards what follows
	active map[string]error
	now    map[string]error // of the current collection
}

func newConditions(logger *zap.Logger) *conditions {
	return &conditions{logger: logger, active: map[string]error{}, now: map[string]error{}}
}

// check records that a condition holds in the current collection. A nil error is ignored.
func (c *conditions) check(what string, err error) {
	if err != nil {
		c.mu.Lock()
		c.now[what] = err
		c.mu.Unlock()
	}
}

// raise reports a condition at once. It holds until the next collection ends.
func (c *conditions) raise(what string, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.logger.Warn("Collection degraded", zap.String("condition", what), zap.Error(err))
	c.active[what] = err
	c.report()
}

// settle ends a collection and reports what changed since the one before.
func (c *conditions) settle() {
	c.mu.Lock()
	defer c.mu.Unlock()
	changed := false
	for what, err := range c.now {
		if old, ok := c.active[what]; !ok || old.Error() != err.Error() {
			changed = true
			c.logger.Warn("Collection degraded", zap.String("condition", what), zap.Error(err))
		}
	}
	for what := range c.active {
		if _, ok := c.now[what]; !ok {
			changed = true
			c.logger.Info("Collection recovered", zap.String("condition", what))
		}
	}
	c.active, c.now = c.now, c.active
	clear(c.now)
	if changed {
		c.report()
	}
}

// report sends the active conditions as a status event.
func (c *conditions) report() {
	if c.host == nil {
		return
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
