// SPDX-License-Identifier: Apache-2.0

package energyreceiver

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/config/configoptional"
	"go.uber.org/zap"

	"github.com/energyreceiver/energyreceiver/internal/power"
	"github.com/energyreceiver/energyreceiver/internal/usage/cpu"
	"github.com/energyreceiver/energyreceiver/receiver/internal/config"
)

func TestSettingsWithoutEffectAreWarnedOfOnce(t *testing.T) {
	of := func(edit func(*config.AttributionConfig)) func(*Config) {
		return func(c *Config) { edit(&c.Attribution) }
	}
	pkg := func(model config.StaticModel) map[power.Kind]config.StaticPowerConfig {
		return map[power.Kind]config.StaticPowerConfig{power.Package: {Model: model}}
	}
	model := configoptional.Some(linear(40, 120))
	const certain = "no zone has the static power model trained, base, resting or regression"
	for name, c := range map[string]struct {
		edit    func(*Config)
		setting string // empty if all have an effect
		reason  string
	}{
		"the defaults":         {func(*Config) {}, "", ""},
		"a model for powercap": {func(c *Config) { c.Meters.Use, c.Model = only(config.MeterPowercap), model }, "", ""},
		"ipmi for powercap":    {func(c *Config) { c.Meters.Use, c.Meters.IPMI.PollInterval = only(config.MeterPowercap), time.Minute }, "meters::ipmi::poll_interval", "meters::use has no ipmi"},
		"sensors for powercap": {func(c *Config) {
			c.Meters.Use, c.Meters.Hwmon.Sensors = only(config.MeterPowercap), map[string]power.Kind{"a/power1": power.Platform}
		}, "meters::hwmon::sensors", "meters::use has no hwmon"},
		"gpu, no library":          {func(c *Config) { c.Meters.GPU.PollInterval = 5 * time.Second }, "meters::gpu::poll_interval", "meters::gpu::extensions is empty"},
		"ipmi":                     {func(c *Config) { c.Meters.IPMI.PollInterval = time.Minute }, "", ""},
		"a model":                  {func(c *Config) { c.Model = model }, "", ""},
		"short windows, procfs":    {func(c *Config) { c.Window = 200 * time.Millisecond }, "window", "/proc counts the CPU time of the node in ticks of 10 ms, so windows of 200ms are attributed as windows of 1s"},
		"windows of a second":      {func(c *Config) { c.Window = time.Second }, "", ""},
		"uncertainty, utilization": {func(c *Config) { c.Metrics.VMPowerUncertainty.Enabled = true }, "metrics::vm.power.uncertainty", certain},
		"uncertainty, minimum": {func(c *Config) {
			c.Metrics.SystemPowerUncertainty.Enabled, c.Attribution.StaticPower = true, allStatic(config.StaticMinimum)
		}, "metrics::system.power.uncertainty", certain},
		"uncertainty, trained": {func(c *Config) {
			c.Metrics.SystemPowerUncertainty.Enabled, c.Attribution.StaticPower = true, pkg(config.StaticTrained)
		}, "", ""},
		"hardware events without a weight": {func(c *Config) { c.Metrics.ContainerCPUCycles.Enabled = true }, "metrics::container.cpu.cycles", "no zone has the weight cycles or power_model"},
		"hardware events": {func(c *Config) {
			c.Metrics.ContainerCPUCycles.Enabled, c.Attribution.Weight = true, allWeight(config.WeightCycles)
		}, "", ""},
		"static power": {of(func(a *config.AttributionConfig) {
			a.StaticPower = fixedPower(map[power.Kind]float64{power.Package: 1})
		}), "", ""},
		"static power of what may stand in": {of(func(a *config.AttributionConfig) {
			a.StaticPower = fixedPower(map[power.Kind]float64{power.PSys: 1})
		}), "", ""},
		"static power, no zone": {of(func(a *config.AttributionConfig) {
			a.StaticPower = fixedPower(map[power.Kind]float64{power.Package: 1, power.Core: 1})
		}), "attribution::static_power::core", "the zone is not among zones"},
		"a weight of no zone": {of(func(a *config.AttributionConfig) {
			a.Weight = map[power.Kind]config.Weight{power.Core: config.WeightCycles}
		}), "attribution::weight::core", "the zone is not among zones"},
		"smt_weight, one thread":   {of(func(a *config.AttributionConfig) { a.SMTWeight = 0.6 }), "attribution::smt_weight", "no core has more than one thread online"},
		"smt_weight, no zone":      {of(func(a *config.AttributionConfig) { a.Weight, a.SMTWeight = allWeight(config.WeightMemory), 0.6 }), "attribution::smt_weight", "no zone of cores has the weight cpu_time or frequency"},
		"scope":                    {of(func(a *config.AttributionConfig) { a.Scope = config.ScopeZone }), "attribution::scope", "CPU topology: the node has one CPU package"},
		"storage":                  {func(c *Config) { c.Storage = storageID.String() }, "", ""},
		"interrupts, not measured": {of(func(a *config.AttributionConfig) { a.Interrupts = config.InterruptsUnattributed }), "attribution::interrupts", "the kernel does not measure the time of interrupts: the irq column of /proc/stat is 0"},
		"interrupts, shared":       {of(func(a *config.AttributionConfig) { a.Interrupts = config.InterruptsShared }), "", ""},
	} {
		n := newTestNode(t, c.edit)
		n.extensions = map[component.ID]component.Component{storageID: &memoryStorage{stored: map[string][]byte{}}}
		n.start()
		n.run(joule, nil)
		logged := n.logs.FilterMessage("Setting has no effect").All()
		if c.setting == "" {
			assert.Empty(t, logged, name)
			continue
		}
		if assert.Len(t, logged, 1, name) {
			assert.Equal(t, zap.WarnLevel, logged[0].Level, name)
			assert.Equal(t, map[string]any{"setting": c.setting, "reason": c.reason}, logged[0].ContextMap(), name)
		}
	}
}

func TestShortWindowsHaveAnEffectWhereTheSourceIsExact(t *testing.T) {
	cfg := simpleConfig()
	cfg.Window, cfg.CPUTime = 20*time.Millisecond, cpu.KindBPF
	for setting := range cfg.WithoutEffect(true) {
		t.Errorf("%s has an effect", setting)
	}
}
