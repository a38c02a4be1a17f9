// SPDX-License-Identifier: Apache-2.0

package energyreceiver

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/config/configoptional"
	"go.uber.org/zap"

	"github.com/energyreceiver/energyreceiver/internal/claims"
	"github.com/energyreceiver/energyreceiver/internal/power"
	"github.com/energyreceiver/energyreceiver/internal/usage/cpu"
	"github.com/energyreceiver/energyreceiver/internal/workload"
)

func TestSettingsWithoutEffectAreWarnedOfOnce(t *testing.T) {
	of := func(edit func(*AttributionConfig)) func(*Config) {
		return func(c *Config) { edit(&c.Attribution) }
	}
	pkg := func(rule SplitRule) map[power.Kind]SplitRule { return map[power.Kind]SplitRule{power.Package: rule} }
	watts := map[power.Kind]float64{power.Package: 40}
	model := configoptional.Some(ModelConfig{IdlePower: 40, MaxPower: 120, Shape: "linear"})
	for name, c := range map[string]struct {
		edit    func(*Config)
		setting string // empty if all have an effect
		reason  string
	}{
		"the defaults":         {func(*Config) {}, "", ""},
		"a model for powercap": {func(c *Config) { c.Meter, c.Model = MeterPowercap, model }, "model", "meter is powercap, which is never modeled"},
		"ipmi for powercap":    {func(c *Config) { c.Meter, c.IPMI.Interval = MeterPowercap, time.Minute }, "ipmi::interval", "meter is powercap, which asks no BMC"},
		"sensors for powercap": {func(c *Config) {
			c.Meter, c.Hwmon.Sensors = MeterPowercap, []HwmonSensor{{Chip: "a", Sensor: "power1", Zone: power.Platform}}
		}, "hwmon", "meter is powercap, which reads no hwmon"},
		"gpu, no library":          {func(c *Config) { c.GPU.Interval = 5 * time.Second }, "gpu::interval", "gpu::extensions names no library to be asked"},
		"ipmi":                     {func(c *Config) { c.IPMI.Interval = time.Minute }, "", ""},
		"a model":                  {func(c *Config) { c.Model = model }, "", ""},
		"short windows, procfs":    {func(c *Config) { c.SamplingInterval = 200 * time.Millisecond }, "sampling_interval", "procfs counts CPU time in ticks of 10 ms, so windows of 200ms are attributed as windows of 1s"},
		"windows of a second":      {func(c *Config) { c.SamplingInterval = time.Second }, "", ""},
		"uncertainty, utilization": {func(c *Config) { c.Metrics.VMPowerUncertainty.Enabled = true }, "metrics::vm.power.uncertainty", "no zone has the split learned, base, resting or regression"},
		"uncertainty, minimum":     {func(c *Config) { c.Metrics.SystemPowerUncertainty.Enabled, c.Attribution.Split = true, SplitMinimum }, "metrics::system.power.uncertainty", "no zone has the split learned, base, resting or regression"},
		"uncertainty, learned": {func(c *Config) {
			c.Metrics.SystemPowerUncertainty.Enabled, c.Attribution.Splits = true, pkg(SplitLearned)
		}, "", ""},
		"static power, default": {of(func(a *AttributionConfig) { a.StaticPower = watts }), "attribution::static_power::package", "the split of the zone is utilization, not fixed"},
		"static power, fixed": {of(func(a *AttributionConfig) {
			a.Splits, a.StaticPower = map[power.Kind]SplitRule{power.Package: SplitFixed, power.DRAM: SplitMinimum}, watts
		}), "", ""},
		"static power, one zone": {of(func(a *AttributionConfig) { a.Splits, a.StaticPower = pkg(SplitFixed), watts }), "", ""},
		"static power, no zone": {of(func(a *AttributionConfig) {
			a.Splits, a.StaticPower = pkg(SplitFixed), map[power.Kind]float64{power.Package: 1, power.Core: 1}
		}), "attribution::static_power::core", "the zone is not among zones"},
		"a split of no zone": {of(func(a *AttributionConfig) {
			a.Splits = map[power.Kind]SplitRule{power.Package: SplitMinimum, power.Core: SplitLearned}
		}), "attribution::splits::core", "the zone is not among zones"},
		"a key of no zone":         {of(func(a *AttributionConfig) { a.Keys = map[power.Kind]claims.Key{power.Core: claims.KeyCycles} }), "attribution::keys::core", "the zone is not among zones"},
		"idle_among, none":         {of(func(a *AttributionConfig) { a.IdleAmong = AmongContainers }), "attribution::idle_among", "attribution::idle is none, not equal"},
		"idle_among, equal":        {of(func(a *AttributionConfig) { a.Idle, a.IdleAmong = IdleEqual, AmongContainers }), "", ""},
		"cpu_weight, none":         {of(func(a *AttributionConfig) { a.CPUWeight = WeightLinear }), "attribution::cpu_weight", "attribution::idle is none, not requested"},
		"cpu_weight, requested":    {of(func(a *AttributionConfig) { a.Idle, a.CPUWeight = IdleRequested, WeightLinear }), "", ""},
		"memory_size, CPU time":    {of(func(a *AttributionConfig) { a.MemorySize = MemoryCgroup }), "attribution::memory_size", "no zone has the key memory or memory_cpu_time"},
		"memory_size, memory":      {of(func(a *AttributionConfig) { a.Key, a.MemorySize = claims.KeyMemory, MemoryCgroup }), "", ""},
		"frequency_exponent":       {of(func(a *AttributionConfig) { a.FrequencyExponent = 2 }), "attribution::frequency_exponent", "no zone has the key frequency"},
		"frequency_exponent, used": {of(func(a *AttributionConfig) { a.Key, a.FrequencyExponent = claims.KeyFrequency, 2 }), "", ""},
		"smt_weight, one thread":   {of(func(a *AttributionConfig) { a.SMTWeight = 0.6 }), "attribution::smt_weight", "no core has more than one thread online"},
		"smt_weight, no zone":      {of(func(a *AttributionConfig) { a.Key, a.SMTWeight = claims.KeyMemory, 0.6 }), "attribution::smt_weight", "no zone of cores has the key cpu_time or frequency"},
		"rest_utilization":         {of(func(a *AttributionConfig) { a.RestUtilization = 0.1 }), "attribution::rest_utilization", "no zone has the split minimum, resting or base"},
		"rest_utilization, used":   {of(func(a *AttributionConfig) { a.Split, a.RestUtilization = SplitResting, 0.1 }), "", ""},
		"base_time":                {of(func(a *AttributionConfig) { a.Split, a.BaseTime = SplitMinimum, time.Hour }), "attribution::base_time", "no zone has the split base"},
		"base_time, used":          {of(func(a *AttributionConfig) { a.Preset, a.BaseTime = PresetKavanagh, time.Hour }), "", ""},
		"regression_degree":        {of(func(a *AttributionConfig) { a.RegressionDegree = 3 }), "attribution::regression_degree", "no zone has the split regression"},
		"regression_samples":       {of(func(a *AttributionConfig) { a.RegressionSamples = 3 }), "attribution::regression_samples", "no zone has the split regression"},
		"regression_samples, used": {of(func(a *AttributionConfig) { a.Splits, a.RegressionSamples = pkg(SplitRegression), 3 }), "", ""},
		"scope":                    {of(func(a *AttributionConfig) { a.Scope = ScopeZone }), "attribution::scope", "CPU topology: the node has one CPU package"},
		"storage":                  {func(c *Config) { c.Storage = storageID.String() }, "", ""},
		"names of Docker, not read": {func(c *Config) {
			c.Names = NamesConfig{From: []workload.NameSource{workload.NamesKubelet}, Directories: map[workload.NameSource]string{workload.NamesDocker: "/data"}}
		}, "names::directories::docker", "names::from has no docker"},
		"names of Docker": {func(c *Config) {
			c.Names.Directories = map[workload.NameSource]string{workload.NamesDocker: "/data"}
		}, "", ""},
		"names of the kubelet, not read": {func(c *Config) {
			c.Names = NamesConfig{Directories: map[workload.NameSource]string{workload.NamesKubelet: "/data"}}
		}, "", ""},
		"interrupts, not measured": {of(func(a *AttributionConfig) { a.Interrupts = InterruptsUnattributed }), "attribution::interrupts", "the kernel does not measure the time of interrupts: the irq column of /proc/stat is 0"},
		"interrupts, shared":       {of(func(a *AttributionConfig) { a.Interrupts = InterruptsShared }), "", ""},
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
	cfg := createDefaultConfig().(*Config)
	cfg.SamplingInterval, cfg.CPUTime = 20*time.Millisecond, cpu.KindBPF
	for setting := range cfg.withoutEffect(true, nil, nil) {
		t.Errorf("%s has an effect", setting)
	}
}
