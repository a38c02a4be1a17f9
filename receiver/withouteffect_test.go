// SPDX-License-Identifier: Apache-2.0

package energyreceiver

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"go.uber.org/zap"

	"github.com/energyreceiver/energyreceiver/receiver/internal/config"
)

func TestSettingsWithoutEffectAreWarnedOfOnce(t *testing.T) {
	n := newTestNode(t, func(c *Config) { c.Window, c.Attribution.Scope = 200*time.Millisecond, config.ScopeZone })
	n.start()
	n.run(joule, nil)
	var warned []map[string]any
	for _, line := range n.logs.FilterMessage("Setting has no effect").All() {
		assert.Equal(t, zap.WarnLevel, line.Level)
		warned = append(warned, line.ContextMap())
	}
	assert.Equal(t, []map[string]any{
		{"setting": "window", "reason": "/proc counts the CPU time of the node in ticks of 10 ms, so windows of 200ms are attributed as windows of 1s"},
		{"setting": "attribution::scope", "reason": "CPU topology: the node has one CPU package"},
	}, warned)
}
