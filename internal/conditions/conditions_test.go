// SPDX-License-Identifier: Apache-2.0

package conditions

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/component/componentstatus"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
)

// statusHost is a host that keeps status events.
type statusHost struct{ events []componentstatus.Status }

func (*statusHost) GetExtensions() map[component.ID]component.Component { return nil }
func (h *statusHost) Report(e *componentstatus.Event)                   { h.events = append(h.events, e.Status()) }

func newConditions() (*Conditions, *statusHost, *observer.ObservedLogs) {
	core, logs := observer.New(zap.InfoLevel)
	c, host := New("Collection", zap.New(core)), new(statusHost)
	c.Host = host
	return c, host, logs
}

func TestAConditionThatComesAndGoesIsLoggedOnceAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, host, logs := newConditions()
		observe := func(texts ...string) {
			for _, text := range texts {
				if text != "" {
					c.Observe("storage", errors.New(text))
				}
				c.Settle()
				time.Sleep(10 * time.Second)
			}
		}
		observe("a", "b", "", "a", "b", "", "a", "b", "")
		assert.Equal(t, 2, logs.FilterMessage("Collection degraded").Len())
		assert.Equal(t, 2, logs.FilterMessage("Collection recovered").Len())
		assert.Len(t, host.events, 9, "each change is a status event")
		logs.TakeAll()
		observe("c", "d", "d", "d", "d", "d", "d")
		last := logs.TakeAll()
		if assert.Len(t, last, 1, "the last change is logged once the minute is over") {
			assert.Equal(t, "d", last[0].ContextMap()["error"])
		}
		for range 3 {
			c.Set("collection", errors.New("it hangs"))
			c.Set("collection", nil)
		}
		c.Set("collection", errors.New("it hangs"))
		logs.TakeAll()
		time.Sleep(time.Minute)
		synctest.Wait()
		assert.Equal(t, 1, logs.Len())
	})
}

func TestAnUnchangedConditionIsOneStatusEvent(t *testing.T) {
	c, host, logs := newConditions()
	for _, text := range []string{"a", "a", "b"} {
		c.Observe("storage", errors.New(text))
		c.Settle()
	}
	c.Settle()
	c.Settle()
	assert.Equal(t, []componentstatus.Status{componentstatus.StatusRecoverableError,
		componentstatus.StatusRecoverableError, componentstatus.StatusOK}, host.events)
	assert.Equal(t, 2, logs.Len())
}
