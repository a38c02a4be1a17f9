// SPDX-License-Identifier: Apache-2.0

package training

import (
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/filter"
	"go.uber.org/zap"

	"github.com/energyreceiver/energyreceiver/internal/attribution"
	"github.com/energyreceiver/energyreceiver/internal/attribution/static"
	"github.com/energyreceiver/energyreceiver/internal/claims"
	"github.com/energyreceiver/energyreceiver/internal/power"
	"github.com/energyreceiver/energyreceiver/internal/units"
	"github.com/energyreceiver/energyreceiver/receiver/internal/config"
)

// trainingMachine is the part of the machine's identity that static power depends on, apart from the model.
type trainingMachine struct {
	source           power.Source
	zones            []power.Zone
	cpuinfo, version string
}

func (m *trainingMachine) domains() []units.Domain {
	return []units.Domain{units.NodeCPUs, "package-0", "package-1"}
}

// training returns the training of models on the machine, and the rules with the models, which may have been restored.
func (m *trainingMachine) training(t *testing.T, trained Models) (*Training, *attribution.Rules) {
	cfg := simpleConfig()
	cfg.RootPath, cfg.Attribution.StaticPower = t.TempDir(), allStatic(config.StaticMinimum)
	write(t, filepath.Join(cfg.RootPath, "proc/cpuinfo"), m.cpuinfo)
	write(t, filepath.Join(cfg.RootPath, "proc/version"), m.version)
	var readings []power.Reading
	for i := range m.zones {
		m.zones[i].Source = m.source
		readings = append(readings, power.Reading{Zone: &m.zones[i]})
	}
	l, rules := &Training{cfg: cfg, logger: zap.NewNop(), Trained: trained}, cfg.Attribution.Rules(cfg.LedgerKinds(), cfg.Zones)
	l.Restore(Zones{&rules, cfg.LedgerKinds(), m.domains()}, readings)
	return l, &rules
}

func TestLearnedModelsAreStoredByDomain(t *testing.T) {
	m := &trainingMachine{source: power.Measured, zones: []power.Zone{{ID: "intel-rapl:0", Name: "package-0"}}}
	l, rules := m.training(t, Models{})
	for domain := range m.domains() {
		watts := units.Energy(10 * (domain + 1))
		rules.Models[0].Active(attribution.Portion{
			Domain: domain, Energy: watts * units.Joule, Total: units.Second, Elapsed: time.Second, Zones: 1, Of: 1, OfAll: 3,
		})
	}
	l.Note(Zones{rules, l.cfg.LedgerKinds(), m.domains()})
	assert.ElementsMatch(t, []string{"package", "package-0 package", "package-1 package"}, slices.Collect(maps.Keys(l.Trained.Zones)))
	_, rules = m.training(t, restored(t, l.Trained))
	for domain := range m.domains() {
		model := rules.Models[0].(*static.Model)
		assert.InDelta(t, float64(10*(domain+1)), model.StaticPower(domain), 0)
	}
}

// What a meter averages, or a goroutine polls, is not of the time of a tenth of a second.
func TestOnlyCurvesOfPromptZonesLearnFromShortWindows(t *testing.T) {
	prompt := power.Zone{Kind: power.Package, Source: power.Measured, Prompt: true}
	late := prompt
	late.Prompt = false
	memory := late
	memory.Kind = power.DRAM
	for name, c := range map[string]struct {
		split config.StaticModel
		zones []power.Zone
		short bool
	}{
		"a prompt zone":              {config.StaticTrained, []power.Zone{prompt}, true},
		"late zones of another kind": {config.StaticTrained, []power.Zone{prompt, memory}, true},
		"a late zone among them":     {config.StaticTrained, []power.Zone{prompt, late}, false},
		"late zones":                 {config.StaticTrained, []power.Zone{late}, false},
		"another model":              {config.StaticResting, []power.Zone{prompt}, false},
	} {
		cfg := simpleConfig()
		cfg.RootPath, cfg.Attribution.StaticPower = t.TempDir(), allStatic(c.split)
		var readings []power.Reading
		for i := range c.zones {
			readings = append(readings, power.Reading{Zone: &c.zones[i]})
		}
		kinds := cfg.LedgerKinds()
		rules := cfg.Attribution.Rules(kinds, cfg.Zones)
		l := &Training{cfg: cfg, logger: zap.NewNop()}
		l.Restore(Zones{&rules, kinds, []units.Domain{units.NodeCPUs}}, readings)
		i := slices.Index(kinds, claims.Kind{Zone: power.Package, Source: power.Measured})
		model := rules.Models[i].(*static.Model)
		model.Active(attribution.Portion{
			Energy: units.Joule, Total: units.Second, Elapsed: 100 * time.Millisecond, Zones: 1, Of: 1, OfAll: 1,
		})
		state, _ := model.State(0)
		learned := 0.0
		for _, number := range state.Estimator {
			learned += number
		}
		assert.Equal(t, c.short, learned > 0, name)
	}
}

func TestALearnedModelIsDroppedWhenTheMachineChanges(t *testing.T) {
	const first = "processor\t: 0\nvendor_id\t: GenuineIntel\ncpu family\t: 6\nmodel\t\t: 85\nmodel name\t: A CPU\n" +
		"stepping\t: 7\nmicrocode\t: 0x1\ncpu MHz\t\t: 1200.000\n\n"
	const second = "processor\t: 1\nmodel name\t: A CPU\n\n"
	const arm = "processor\t: 0\nBogoMIPS\t: 50.00\nCPU implementer\t: 0x41\nCPU architecture: 8\nCPU variant\t: 0x3\n" +
		"CPU part\t: 0xd0c\nCPU revision\t: 1\n\n"
	instead := func(before, now string) func(*trainingMachine) {
		return func(m *trainingMachine) {
			require.Contains(t, m.cpuinfo, before)
			m.cpuinfo = strings.Replace(m.cpuinfo, before, now, 1)
		}
	}
	for name, c := range map[string]struct {
		on   string // /proc/cpuinfo
		edit func(*trainingMachine)
		kept bool
	}{
		"nothing":                {first + second, func(*trainingMachine) {}, true},
		"the clock rate":         {first + second, instead("1200.000", "3700.000"), true},
		"the order of the zones": {first + second, func(m *trainingMachine) { slices.Reverse(m.zones) }, true},

		"a zone's name":   {first + second, func(m *trainingMachine) { m.zones[0].Name = "core" }, false},
		"a zone's number": {first + second, func(m *trainingMachine) { m.zones[0].ID = "intel-rapl:2" }, false},
		"one zone more": {first + second, func(m *trainingMachine) {
			m.zones = append(m.zones, power.Zone{ID: "intel-rapl:0:0", Name: "dram"})
		}, true},
		"one zone less":     {first + second, func(m *trainingMachine) { m.zones = m.zones[:1] }, false},
		"the source":        {first + second, func(m *trainingMachine) { m.source = power.Modeled }, false},
		"a hypervisor":      {first + second, func(m *trainingMachine) { m.source = power.Reported }, false},
		"the kernel":        {first + second, func(m *trainingMachine) { m.version = "Linux version 6.13\n" }, false},
		"the vendor":        {first + second, instead("GenuineIntel", "AuthenticAMD"), false},
		"the family":        {first + second, instead("family\t: 6", "family\t: 25"), false},
		"the model":         {first + second, instead("85", "86"), false},
		"the model's name":  {first + second, instead("A CPU", "Another CPU"), false},
		"the stepping":      {first + second, instead("stepping\t: 7", "stepping\t: 8"), false},
		"the microcode":     {first + second, instead("0x1", "0x2"), false},
		"one CPU less":      {first + second, instead(second, ""), false},
		"Arm, nothing":      {arm, func(*trainingMachine) {}, true},
		"Arm, implementer":  {arm, instead("0x41", "0x42"), false},
		"Arm, architecture": {arm, instead("architecture: 8", "architecture: 9"), false},
		"Arm, variant":      {arm, instead("0x3", "0x4"), false},
		"Arm, part":         {arm, instead("0xd0c", "0xd40"), false},
		"Arm, revision":     {arm, instead("revision\t: 1", "revision\t: 2"), false},
	} {
		m := &trainingMachine{
			source: power.Measured, cpuinfo: c.on, version: "Linux version 6.12\n",
			zones: []power.Zone{{ID: "intel-rapl:0", Name: "package-0"}, {ID: "intel-rapl:1", Name: "package-1"}},
		}
		l, rules := m.training(t, Models{})
		model := rules.Models[0].(*static.Model)
		model.Active(attribution.Portion{Energy: 30 * units.Joule, Total: units.Second, Elapsed: time.Second, Zones: 2, Of: 2, OfAll: 2})
		require.True(t, model.Trained(0))
		l.Note(Zones{rules, l.cfg.LedgerKinds(), m.domains()})
		c.edit(m)
		l, rules = m.training(t, l.Trained)
		model = rules.Models[0].(*static.Model)
		assert.Equal(t, c.kept, model.Trained(0), name)
		if c.kept {
			assert.InDelta(t, 30, model.StaticPower(0), 0, name)
			continue
		}
		assert.Empty(t, l.Trained.Zones, "%s: nor is it kept for later", name)
	}
}

func TestALearnedModelIsDroppedWhenASettingItDependsOnChanges(t *testing.T) {
	of := func(split config.StaticModel, edit func(*config.AttributionConfig)) string {
		cfg := simpleConfig()
		cfg.Attribution.StaticPower = allStatic(split)
		edit(&cfg.Attribution)
		return (&Training{cfg: cfg}).rule(power.Package)
	}
	same := func(*config.AttributionConfig) {}
	exclude := func(c *config.AttributionConfig) { c.Exclude.ExecutableName = []filter.Config{{Strict: "etcd"}} }
	for _, split := range trainedModelNames() {
		assert.NotEqual(t, of(split, same), of(split, exclude), split)
		assert.NotEqual(t, of(split, exclude), of(split, func(c *config.AttributionConfig) {
			c.Exclude.ExecutableName = []filter.Config{{Regex: "etcd"}}
		}), split)
		assert.NotEqual(t, of(split, exclude), of(split, func(c *config.AttributionConfig) {
			c.Exclude.Cgroup = []filter.Config{{Strict: "etcd"}}
		}), split)
	}
	excluding := map[string]bool{of(config.StaticTrained, same): true}
	for _, list := range []func(*config.ExcludeConfig) *[]filter.Config{
		func(c *config.ExcludeConfig) *[]filter.Config { return &c.Cgroup },
		func(c *config.ExcludeConfig) *[]filter.Config { return &c.Namespace },
		func(c *config.ExcludeConfig) *[]filter.Config { return &c.ExecutableName },
	} {
		excluding[of(config.StaticTrained, func(c *config.AttributionConfig) { *list(&c.Exclude) = []filter.Config{{Strict: "x"}} })] = true
		excluding[of(config.StaticTrained, func(c *config.AttributionConfig) { *list(&c.Exclude) = []filter.Config{{Strict: "y"}} })] = true
		excluding[of(config.StaticTrained, func(c *config.AttributionConfig) { *list(&c.Exclude) = []filter.Config{{Regex: "x"}} })] = true
	}
	assert.Len(t, excluding, 1+3*3)
}

// A static power that was trained with another factor is not that of the corrected zone.
func TestAnotherCorrectionIsOtherHardware(t *testing.T) {
	readings := []power.Reading{{Zone: &power.Zone{ID: "ipmi0", Name: "BMC", Source: power.Measured}}}
	before := hardwareOf(t.TempDir(), readings)
	readings[0].Correction = power.Correction{Factor: power.Unscaled, Lag: time.Second}
	assert.True(t, sameHardware(before, hardwareOf(t.TempDir(), readings)), "a lag changes no power")
	for _, c := range []power.Correction{{Factor: 1_190_000}, {Offset: -3}} {
		readings[0].Correction = c
		assert.False(t, sameHardware(before, hardwareOf(t.TempDir(), readings)), c)
	}
}
