// SPDX-License-Identifier: Apache-2.0

package training

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/config/configoptional"
	"go.opentelemetry.io/collector/filter"
	"go.uber.org/zap"

	"github.com/energyreceiver/energyreceiver/internal/attribution"
	"github.com/energyreceiver/energyreceiver/internal/attribution/static"
	"github.com/energyreceiver/energyreceiver/internal/pack"
	"github.com/energyreceiver/energyreceiver/internal/power"
	"github.com/energyreceiver/energyreceiver/internal/power/model/ridge"
	"github.com/energyreceiver/energyreceiver/internal/units"
	"github.com/energyreceiver/energyreceiver/internal/window"
	"github.com/energyreceiver/energyreceiver/receiver/internal/config"
	"github.com/energyreceiver/energyreceiver/receiver/internal/rules"
)

// trainingMachine is the part of the machine's identity that static power depends on, apart from the model.
type trainingMachine struct {
	source           power.Method
	zones            []power.Zone
	cpuinfo, version string
	weights          map[window.Key]*ridge.Model
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
		m.zones[i].Method = m.source
		readings = append(readings, power.Reading{Zone: &m.zones[i]})
	}
	l, rules := &Training{cfg: cfg, logger: zap.NewNop(), Trained: trained}, engineRules(cfg)
	l.Restore(Zones{&rules, kindsOf(cfg), m.domains(), m.weights}, readings)
	return l, &rules
}

func TestTrainedModelsAreStoredByDomain(t *testing.T) {
	m := &trainingMachine{source: power.Measured, zones: []power.Zone{{ID: "intel-rapl:0", Name: "package-0"}}}
	l, rules := m.training(t, Models{})
	for domain := range m.domains() {
		watts := units.Energy(10 * (domain + 1))
		rules.Models[0].Active(attribution.Portion{
			Domain: domain, Energy: watts * units.Joule, Total: units.Second, Elapsed: time.Second, Zones: 1, Of: 1, OfAll: 3,
		})
	}
	l.Note(Zones{rules, kindsOf(l.cfg), m.domains(), m.weights})
	assert.ElementsMatch(t, []string{"package", "package-0 package", "package-1 package"}, slices.Collect(maps.Keys(l.Trained.Zones)))
	_, rules = m.training(t, restored(t, l.Trained))
	for domain := range m.domains() {
		model := rules.Models[0].(*static.Model)
		assert.InDelta(t, float64(10*(domain+1)), model.StaticPower(domain), 0)
	}
}

// What a meter averages, or a goroutine polls, is not of the time of a tenth of a second.
// The same hardware is also required of the static models.
func TestThePowerModelOfAWeightIsStoredWithTheStaticModels(t *testing.T) {
	m := &trainingMachine{source: power.Measured, zones: []power.Zone{{ID: "intel-rapl:0", Name: "package-0"}}, cpuinfo: "processor : 0\nmicrocode : 1\n"}
	m.weights = map[window.Key]*ridge.Model{window.KeyPowerModel: {}}
	l, rules := m.training(t, Models{})
	m.weights[window.KeyPowerModel].Observe(ridge.Sample{Seconds: 1, Base: 2, Instructions: 3, Misses: 4, Watts: 5})
	before := m.weights[window.KeyPowerModel].State()
	l.Note(Zones{rules, kindsOf(l.cfg), m.domains(), m.weights})
	assert.Len(t, l.Trained.Zones, 1, "no static power is known")
	l.cfg.Attribution.StaticPower = allStatic(config.StaticTotal)
	*m.weights[window.KeyPowerModel] = ridge.Model{}
	l.Restore(Zones{rules, kindsOf(l.cfg), m.domains(), m.weights}, []power.Reading{{Zone: &m.zones[0]}})
	assert.Equal(t, before, m.weights[window.KeyPowerModel].State(), "no static model is trained")
	rules.Models[0].Active(attribution.Portion{Energy: units.Joule, Total: units.Second, Elapsed: time.Second, Zones: 1, Of: 1, OfAll: 1})
	l.Note(Zones{rules, kindsOf(l.cfg), m.domains(), m.weights})
	for microcode, want := range map[string][]float64{"1": before, "2": (&ridge.Model{}).State()} {
		m.cpuinfo, m.weights = "processor : 0\nmicrocode : "+microcode+"\n", map[window.Key]*ridge.Model{window.KeyPowerModel: {}}
		m.training(t, restored(t, l.Trained))
		assert.Equal(t, want, m.weights[window.KeyPowerModel].State(), "microcode %s", microcode)
	}
	model := m.weights[window.KeyPowerModel]
	require.True(t, model.Restore(before))
	write(t, filepath.Join(l.cfg.RootPath, "proc/version"), "another kernel")
	l.Restore(Zones{rules, kindsOf(l.cfg), m.domains(), m.weights}, []power.Reading{{Zone: &m.zones[0]}})
	assert.Equal(t, (&ridge.Model{}).State(), model.State(), "the hardware changed while the receiver ran")
}

func TestOnlyCurvesOfPromptZonesAreTrainedWithShortWindows(t *testing.T) {
	prompt := power.Zone{Kind: power.Package, Method: power.Measured, Prompt: true}
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
		kinds := kindsOf(cfg)
		rules := engineRules(cfg)
		l := &Training{cfg: cfg, logger: zap.NewNop()}
		l.Restore(Zones{&rules, kinds, []units.Domain{units.NodeCPUs}, nil}, readings)
		i := slices.Index(kinds, power.Class{Zone: power.Package, Method: power.Measured})
		model := rules.Models[i].(*static.Model)
		model.Active(attribution.Portion{
			Energy: units.Joule, Total: units.Second, Elapsed: 100 * time.Millisecond, Zones: 1, Of: 1, OfAll: 1,
		})
		state, _ := model.State(0)
		trained := 0.0
		for _, number := range state.Estimator {
			trained += number
		}
		assert.Equal(t, c.short, trained > 0, name)
	}
}

func TestATrainedModelIsDroppedWhenTheMachineChanges(t *testing.T) {
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
		l.Note(Zones{rules, kindsOf(l.cfg), m.domains(), m.weights})
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

func TestATrainedModelIsDroppedWhenASettingItDependsOnChanges(t *testing.T) {
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
	excluding[of(config.StaticTrained, func(c *config.AttributionConfig) { c.Preset = config.PresetKubeWatt })] = true
	assert.Len(t, excluding, 1+3*3+1)
}

// A static power that was trained with another factor is not that of the corrected zone.
func TestAnotherCorrectionIsOtherHardware(t *testing.T) {
	readings := []power.Reading{{Zone: &power.Zone{ID: "ipmi0", Name: "BMC", Method: power.Measured}}}
	before := hardwareOf(t.TempDir(), readings)
	readings[0].Correction = power.Correction{Factor: power.Unscaled, Lag: time.Second}
	assert.True(t, sameHardware(before, hardwareOf(t.TempDir(), readings)), "a lag changes no power")
	for _, c := range []power.Correction{{Factor: 1_190_000}, {Offset: -3}} {
		readings[0].Correction = c
		assert.False(t, sameHardware(before, hardwareOf(t.TempDir(), readings)), c)
	}
}

// gpuTraining is the training on a machine with a package and GPUs.
type gpuTraining struct {
	*Training
	rules    attribution.Rules
	domains  []units.Domain
	readings []power.Reading
}

func newGPUTraining(kept Models) *gpuTraining {
	cfg := simpleConfig()
	cfg.RootPath, cfg.Attribution.StaticPower = "/nonexistent", allStatic(config.StaticMinimum)
	l := &gpuTraining{
		Training: &Training{cfg: cfg, logger: zap.NewNop(), Trained: kept},
		rules:    engineRules(cfg), domains: []units.Domain{units.NodeCPUs},
	}
	l.readings = []power.Reading{{Zone: &power.Zone{ID: "intel-rapl:0", Kind: power.Package, Method: power.Measured, Domain: units.NodeCPUs}}}
	l.Restore(l.zones(), l.readings)
	return l
}

// zones returns the zones with their models.
func (l *gpuTraining) zones() Zones {
	return Zones{&l.rules, kindsOf(l.cfg), l.domains, nil}
}

// plug adds a GPU, and returns its index.
func (l *gpuTraining) plug(address, id string) int {
	l.domains = append(l.domains, units.GPU(address))
	l.readings = append(l.readings, power.Reading{Zone: &power.Zone{ID: id, Kind: power.GPU, Method: power.Measured, Domain: units.GPU(address)}})
	l.RestoreGPUs(l.zones(), l.readings)
	return len(l.domains) - 1
}

// model returns the static power model of a zone kind.
func (l *gpuTraining) model(kind power.Kind) *static.Model {
	for i, k := range kindsOf(l.cfg) {
		if k.Zone == kind && k.Method == power.Measured {
			return l.rules.Models[i].(*static.Model)
		}
	}
	panic("no such kind")
}

// train trains a model with the static power of a domain.
func (l *gpuTraining) train(kind power.Kind, domain int, watts units.Energy) {
	l.model(kind).Active(attribution.Portion{
		Domain: domain, Energy: watts * units.Joule, Total: units.Second, Elapsed: time.Second, Zones: 1, Of: 1, OfAll: 1,
	})
}

// restart stores the trained models, and returns the training of the next start.
func (l *gpuTraining) restart(t *testing.T) *gpuTraining {
	l.Note(l.zones())
	return newGPUTraining(restored(t, l.Trained))
}

func TestEachGPUKeepsItsTrainedModelWheneverItAppears(t *testing.T) {
	l := newGPUTraining(Models{})
	first, second := l.plug("0000:03:00.0", "GPU-1"), l.plug("0000:04:00.0", "GPU-2")
	l.train(power.Package, 0, 30)
	l.train(power.GPU, first, 40)
	l.train(power.GPU, second, 50)

	l = l.restart(t)
	assert.InDelta(t, 30, l.model(power.Package).StaticPower(0), 0, "without GPUs so far")
	second, first = l.plug("0000:04:00.0", "GPU-2"), l.plug("0000:03:00.0", "GPU-1")
	assert.InDelta(t, 40, l.model(power.GPU).StaticPower(first), 0, "with another index")
	assert.InDelta(t, 50, l.model(power.GPU).StaticPower(second), 0)

	l = l.restart(t).restart(t)
	assert.InDelta(t, 40, l.model(power.GPU).StaticPower(l.plug("0000:03:00.0", "GPU-1")), 0, "after a start without it")
}

func TestTheModelOfAnotherGPUInTheSamePlaceIsTrainedAgainAndThatOfTheCPUIsNot(t *testing.T) {
	l := newGPUTraining(Models{})
	l.train(power.Package, 0, 30)
	l.train(power.GPU, l.plug("0000:03:00.0", "GPU-1"), 40)
	l = l.restart(t)
	other := l.plug("0000:03:00.0", "GPU-9")
	assert.False(t, l.model(power.GPU).Trained(other))
	assert.InDelta(t, 30, l.model(power.Package).StaticPower(0), 0)
}

func TestTheTrainedModelOfAGPUWithoutAnyOtherZoneIsKept(t *testing.T) {
	l := newGPUTraining(Models{})
	l.Trained.Hardware = nil
	l.train(power.GPU, l.plug("0000:03:00.0", "GPU-1"), 40)
	l = l.restart(t)
	assert.InDelta(t, 40, l.model(power.GPU).StaticPower(l.plug("0000:03:00.0", "GPU-1")), 0)
}

func TestAStateSaysWhetherAStaticPowerIsProvisional(t *testing.T) {
	for _, provisional := range []bool{false, true} {
		zone := trainedZone{Rule: "trained", State: static.State{Zones: 1, Static: 142, InUse: true, Provisional: provisional, Estimator: []float64{1}}}
		before := Models{Hardware: []string{"a"}, Zones: map[string]trainedZone{"package": zone}}
		after := restored(t, before)
		assert.Equal(t, before.Zones["package"].State, after.Zones["package"].State)
	}
}

// Versions before State.Provisional wrote InUse alone.
func TestAnEarlierStateHasNoProvisionalStaticPower(t *testing.T) {
	for _, inUse := range []bool{false, true} {
		want := trainedZone{Rule: "trained", State: static.State{Zones: 1, Static: 142, InUse: inUse, Estimator: []float64{1, 2}}}
		w := pack.NewWriter(nil)
		pack.String(w, &want.Rule)
		pack.Slice(w, &want.Hardware, pack.String)
		pack.Int(w, &want.Zones)
		w.Bools(&want.InUse)
		w.Float(&want.Static)
		pack.Slice(w, &want.Estimator, (*pack.Packer).Float)
		var got trainedZone
		r := pack.NewReader(w.Bytes())
		packTrained(r, &got)
		require.NoError(t, r.End())
		assert.Equal(t, want.State, got.State)
	}
}

// curveOfPackages returns a model that restore prepared for zones of packages, and restore for other zones.
func curveOfPackages(t *testing.T) (model *static.Model, restore func(...power.Zone)) {
	cfg := simpleConfig()
	cfg.RootPath, cfg.Attribution.StaticPower = t.TempDir(), allStatic(config.StaticTrained)
	kinds, domains := kindsOf(cfg), []units.Domain{units.NodeCPUs}
	rules := engineRules(cfg)
	l := &Training{cfg: cfg, logger: zap.NewNop()}
	i := slices.Index(kinds, power.Class{Zone: power.Package, Method: power.Measured})
	return rules.Models[i].(*static.Model), func(zones ...power.Zone) {
		var readings []power.Reading
		for i := range zones {
			readings = append(readings, power.Reading{Zone: &zones[i]})
		}
		l.Note(Zones{&rules, kinds, domains, nil})
		l.Restore(Zones{&rules, kinds, domains, nil}, readings)
	}
}

func TestASensorThatReplacesACounterHasSamplesOfASecond(t *testing.T) {
	model, restore := curveOfPackages(t)
	observe := func() (weight float64) {
		model.Active(attribution.Portion{
			Energy: 10 * units.Joule, Total: units.Second, Elapsed: 100 * time.Millisecond, Zones: 1, Of: 1, OfAll: 1,
		})
		state, _ := model.State(0)
		for i := 0; i < len(state.Estimator); i += 6 {
			weight += state.Estimator[i]
		}
		return weight
	}
	counter := power.Zone{ID: "intel-rapl:0", Kind: power.Package, Method: power.Measured, Prompt: true}
	restore(counter)
	assert.InDelta(t, 0.1, observe(), 1e-9)
	restore(power.Zone{ID: "hwmon:0", Kind: power.Package, Method: power.Measured})
	assert.Zero(t, model.StaticPower(0), "the counter's estimate")
	for range 9 {
		assert.Zero(t, observe())
	}
	assert.InDelta(t, 1, observe(), 1e-9)
	restore(counter)
	assert.InDelta(t, 0.1, observe(), 1e-9)
}

// simpleConfig returns a configuration without a power model, with the rules of Kepler.
func simpleConfig() *config.Config {
	cfg := config.Default()
	cfg.Attribution.Preset, cfg.Model = config.PresetKepler, configoptional.None[config.ModelConfig]()
	return cfg
}

// allStatic returns the setting attribution::static_power with one model for all zones.
func allStatic(model config.StaticModel) map[power.Kind]config.StaticPowerConfig {
	return map[power.Kind]config.StaticPowerConfig{config.AllZones: {Model: model}}
}

func write(t *testing.T, path, content string) {
	t.Helper()
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
	require.NoError(t, os.WriteFile(path, []byte(content), 0o600))
}

// restored returns models after they were packed and unpacked.
func restored(t *testing.T, models Models) (again Models) {
	t.Helper()
	w := pack.NewWriter(nil)
	models.Pack(w)
	r := pack.NewReader(w.Bytes())
	again.Pack(r)
	require.NoError(t, r.End())
	return again
}

// trainedModelNames returns the static power models that are trained.
func trainedModelNames() (names []config.StaticModel) {
	for _, name := range config.StaticModelNames {
		cfg := config.AttributionConfig{StaticPower: allStatic(name)}
		if cfg.Trains([]power.Kind{power.Package}) {
			names = append(names, name)
		}
	}
	return names
}

// kindsOf returns the kinds of the ledger.
func kindsOf(cfg *config.Config) []power.Class {
	r, _ := rules.Resolve(cfg, rules.Machine{})
	return r.Kinds
}

// engineRules returns the rules of the engine.
func engineRules(cfg *config.Config) attribution.Rules {
	r, _ := rules.Resolve(cfg, rules.Machine{})
	return r.Attribution()
}
