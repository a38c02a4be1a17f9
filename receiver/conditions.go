package receiver

import (
	"errors"
	"io/fs"
	"maps"
	"slices"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/component/componentstatus"
	"go.uber.org/zap"
)

// conditions is what is wrong at the moment. Only a change is told: one line in the log, one status event.
type conditions struct {
	logger *zap.Logger
	host   component.Host
	active map[string]error
	now    map[string]error // of the pass under way
}

func newConditions(logger *zap.Logger) *conditions {
	return &conditions{logger: logger, active: map[string]error{}, now: map[string]error{}}
}

// check notes that something is wrong in this pass; a nil error is nothing wrong.
func (c *conditions) check(what string, err error) {
	if err != nil {
		c.now[what] = err
	}
}

// settle ends a pass and tells what changed since the one before.
func (c *conditions) settle() {
	changed := false
	for what, err := range c.now {
		if old, ok := c.active[what]; !ok || old.Error() != err.Error() {
			changed = true
			fields := []zap.Field{zap.String("what", what), zap.Error(err)}
			if h := hint(err); h != "" {
				fields = append(fields, zap.String("hint", h))
			}
			c.logger.Warn("Degraded", fields...)
		}
	}
	for what := range c.active {
		if _, ok := c.now[what]; !ok {
			changed = true
			c.logger.Info("Recovered", zap.String("what", what))
		}
	}
	c.active, c.now = c.now, c.active
	clear(c.now)
	if !changed || c.host == nil {
		return
	}
	if len(c.active) == 0 {
		componentstatus.ReportStatus(c.host, componentstatus.NewEvent(componentstatus.StatusOK))
		return
	}
	var errs []error
	for _, what := range slices.Sorted(maps.Keys(c.active)) {
		errs = append(errs, withHint(c.active[what]))
	}
	componentstatus.ReportStatus(c.host, componentstatus.NewRecoverableErrorEvent(errors.Join(errs...)))
}

// grants says what lets the receiver read the energy counters, which only root may since Linux 5.10
// (CVE-2020-8694).
const grants = "run the collector as root or with CAP_DAC_READ_SEARCH, or make energy_uj readable for its user"

func hint(err error) string {
	if errors.Is(err, fs.ErrPermission) {
		return grants
	}
	return ""
}

func withHint(err error) error {
	if h := hint(err); h != "" {
		return hinted{err, h}
	}
	return err
}

type hinted struct {
	error
	hint string
}

func (h hinted) Error() string { return h.error.Error() + ": " + h.hint }
func (h hinted) Unwrap() error { return h.error }
