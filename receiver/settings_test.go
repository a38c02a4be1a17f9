// SPDX-License-Identifier: Apache-2.0

package energyreceiver

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/consumer/consumertest"
	"go.opentelemetry.io/collector/pipeline"
	"go.opentelemetry.io/collector/receiver/receivertest"
	"go.uber.org/zap"

	"github.com/energyreceiver/energyreceiver/receiver/internal/config"
	"github.com/energyreceiver/energyreceiver/receiver/internal/metadata"
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

func TestDisablingAnIdentifyingAttributeLogsOneWarning(t *testing.T) {
	noContainers := func(c *Config) {
		m := &c.Metrics
		m.ContainerEnergy.Enabled, m.ContainerPower.Enabled, m.ContainerCPUTime.Enabled = false, false, false
	}
	by := func(group config.GroupBy) func(*Config) {
		return func(c *Config) { c.Series.Processes.GroupBy = group }
	}
	for name, c := range map[string]struct {
		disabled string
		want     []string
		edit     []func(*Config)
	}{
		"none":                  {},
		"pid":                   {disabled: "process.pid", want: []string{"process.pid"}},
		"container":             {disabled: "container.id", want: []string{"container.id"}},
		"container, no metric":  {disabled: "container.id", edit: []func(*Config){noContainers}},
		"names":                 {disabled: "process.executable.path container.runtime.name vm.name"},
		"two":                   {disabled: "process.pid container.id", want: []string{"process.pid", "container.id"}},
		"name by PID":           {disabled: "process.executable.name"},
		"container of programs": {"container.id", []string{"container.id"}, []func(*Config){noContainers, by("")}},
		"name by program": {"process.executable.name process.pid process.owner", []string{"process.executable.name"},
			[]func(*Config){by(config.GroupByProgram)}},
	} {
		t.Run(name, func(t *testing.T) {
			n := newTestNode(t, append(c.edit, func(cfg *Config) {
				for attribute := range strings.FieldsSeq(c.disabled) {
					*enabledBy(&cfg.ResourceAttributes)[attribute] = false
				}
			})...)
			n.start()
			n.run(joule, nil)
			n.run(joule, nil)
			var warned []string
			for _, line := range n.logs.FilterMessageSnippet("Resource attribute disabled").All() {
				warned = append(warned, line.ContextMap()["attribute"].(string))
			}
			assert.Equal(t, c.want, warned)
		})
	}
}

func TestFactoryCreatesAReceiverOfMetricsOnly(t *testing.T) {
	factory := NewFactory()
	set, cfg := receivertest.NewNopSettings(metadata.Type), factory.CreateDefaultConfig()
	r, err := factory.CreateMetrics(t.Context(), set, cfg, consumertest.NewNop())
	require.NoError(t, err)
	assert.NoError(t, r.Shutdown(t.Context()), "without a start")
	_, err = factory.CreateLogs(t.Context(), set, cfg, consumertest.NewNop())
	require.ErrorIs(t, err, pipeline.ErrSignalNotSupported)
	_, err = factory.CreateTraces(t.Context(), set, cfg, consumertest.NewNop())
	assert.ErrorIs(t, err, pipeline.ErrSignalNotSupported)
}
