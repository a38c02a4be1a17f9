// SPDX-License-Identifier: Apache-2.0

// Package conditions reports degraded states of a component. Each change is a status event, and is
// logged at most once a minute for each condition.
package conditions

import (
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/component/componentstatus"
	"go.uber.org/zap"

	"github.com/energyreceiver/energyreceiver/internal/note"
)

// Conditions holds the errors of a component, by the name of a condition. Its methods may be called
// concurrently.
type Conditions struct {
	// Host receives status events, if it is not nil.
	Host component.Host

	logger *zap.Logger
	what   string // names the component in the log

	mu       sync.Mutex // guards the fields below
	active   map[string]error
	observed map[string]error // in the current round
	logged   map[string]entry // the last log message about a condition
}

// entry is a log message about a condition.
type entry struct {
	text  string // the error, empty if the condition did not hold
	at    time.Time
	waits bool // logAgain will be called
}

// quiet is the minimum time between two messages that the same condition holds. Otherwise a condition
// that changes in every round, as on an overloaded machine, would fill the log.
const quiet = time.Minute

// New returns conditions that are logged as "WHAT degraded" and "WHAT recovered".
func New(what string, logger *zap.Logger) *Conditions {
	return &Conditions{what: what, logger: logger, active: map[string]error{}, observed: map[string]error{}, logged: map[string]entry{}}
}

// Set reports at once that a condition holds, or that it no longer does if err is nil.
func (c *Conditions) Set(name string, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.set(name, err) {
		c.report()
	}
	last := c.logged[name]
	if err == nil || last.text == err.Error() || last.waits {
		return
	}
	last.waits = true
	c.logged[name] = last
	time.AfterFunc(quiet, func() { c.logAgain(name) })
}

// logAgain logs a condition that still holds, unless it has been logged.
func (c *Conditions) logAgain(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	last := c.logged[name]
	last.waits = false
	c.logged[name] = last
	if err := c.active[name]; err != nil {
		c.log(name, err)
	}
}

// Observe notes that a condition holds in the current round. A nil error is ignored.
func (c *Conditions) Observe(name string, err error) {
	if err == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.observed[name] = err
}

// Err returns the error of a condition that holds, or nil.
func (c *Conditions) Err(name string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.active[name]
}

// Active returns the names of the conditions that hold, sorted.
func (c *Conditions) Active() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Sorted(maps.Keys(c.active))
}

// Settle ends a round: it sets the conditions that were observed in the round, and clears all
// others.
func (c *Conditions) Settle() {
	c.mu.Lock()
	defer c.mu.Unlock()
	changed := false
	for name, err := range c.observed {
		changed = c.set(name, err) || changed
	}
	for name := range c.active {
		if c.observed[name] == nil {
			changed = c.set(name, nil) || changed
		}
	}
	clear(c.observed)
	if changed {
		c.report()
	}
}

// set changes a condition and logs the change. It reports whether the condition changed.
func (c *Conditions) set(name string, err error) bool {
	old := c.active[name]
	if err == nil {
		delete(c.active, name)
	} else {
		c.active[name] = err
	}
	c.log(name, err)
	return (err == nil) != (old == nil) || err != nil && err.Error() != old.Error()
}

// log logs a change of a condition. A condition that holds again within quiet is logged after this
// time, if it still holds then.
func (c *Conditions) log(name string, err error) {
	last := c.logged[name]
	switch {
	case err == nil && last.text != "":
		c.logger.Info(c.what+" recovered", zap.String("condition", name), note.Note{About: name}.Field())
		c.logged[name] = entry{at: last.at, waits: last.waits}
	case err != nil && err.Error() != last.text && time.Since(last.at) >= quiet:
		c.logger.Warn(c.what+" degraded", zap.String("condition", name), zap.Error(err), note.About(name, name+": "+err.Error(), err).Field())
		c.logged[name] = entry{err.Error(), time.Now(), last.waits}
	}
}

// report sends all active conditions as a status event.
func (c *Conditions) report() {
	switch {
	case c.Host == nil:
	case len(c.active) == 0:
		componentstatus.ReportStatus(c.Host, componentstatus.NewEvent(componentstatus.StatusOK))
	default:
		var errs []error
		for _, name := range slices.Sorted(maps.Keys(c.active)) {
			errs = append(errs, c.active[name])
		}
		componentstatus.ReportStatus(c.Host, componentstatus.NewRecoverableErrorEvent(errors.Join(errs...)))
	}
}
