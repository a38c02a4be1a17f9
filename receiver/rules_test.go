// SPDX-License-Identifier: Apache-2.0

package energyreceiver

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/extension/xextension/storage"
	"go.opentelemetry.io/collector/filter"

	"github.com/energyreceiver/energyreceiver/internal/power"
	"github.com/energyreceiver/energyreceiver/internal/test/hostsim"
	"github.com/energyreceiver/energyreceiver/receiver/internal/config"
)

// sharedNode is a machine of one CPU with the containers A and B of one process each, the process c of the host, and
// etcd, which the presets of Kubernetes exclude.
func sharedNode(t *testing.T, edit func(*config.AttributionConfig), more ...func(*Config)) *testNode {
	n := newTestNode(t, append(more, func(c *Config) {
		c.Zones = []power.Kind{power.Package}
		edit(&c.Attribution)
		c.Metrics.ProcessPowerUncertainty.Enabled = true
	})...)
	n.host.Files = map[string]string{bootIDFile: "first\n"}
	n.host.Processes[10] = &hostsim.Process{Parent: 1, Comm: "a", Exe: "/bin/a", Cgroup: docker(idA)}
	n.host.Processes[20] = &hostsim.Process{Parent: 1, Comm: "b", Exe: "/bin/b", Cgroup: docker(idB)}
	n.host.Processes[30] = &hostsim.Process{Parent: 1, Comm: "c", Exe: "/bin/c"}
	n.host.Processes[40] = &hostsim.Process{Parent: 1, Comm: "etcd", Exe: "/bin/etcd"}
	return n
}

// figures are the values of A, B, c, etcd and all together.
type figures struct{ a, b, c, etcd, node float64 }

func (n *testNode) figures(state string) figures {
	var more []string
	if n.idleRule() != config.IdleNone {
		more = []string{"energy.state=" + state}
	} else if state == "idle" {
		return figures{node: n.sum("system.energy", nil, "energy.state=idle")}
	}
	return figures{
		n.sum("container.energy", attrs{"container.id": idA}, more...), n.sum("container.energy", attrs{"container.id": idB}, more...),
		n.sum("process.energy", attrs{"process.executable.name": "c"}, more...),
		n.sum("process.energy", attrs{"process.executable.name": "etcd"}, more...),
		n.sum("system.energy", nil, "energy.state="+state),
	}
}

func (f figures) less(o figures) figures {
	return figures{f.a - o.a, f.b - o.b, f.c - o.c, f.etcd - o.etcd, f.node - o.node}
}

// String returns the energies of A, B and c, as a list.
func (f figures) String() string { return fmt.Sprintf("%.6g, %.6g, %.6g", f.a, f.b, f.c) }

func requireFigures(t *testing.T, want, got figures, more ...any) {
	t.Helper()
	for _, f := range [][2]float64{{want.a, got.a}, {want.b, got.b}, {want.c, got.c}, {want.etcd, got.etcd}, {want.node, got.node}} {
		require.InDelta(t, f[0], f[1], 2e-3, append([]any{"%v, not %v: %s", got, want}, more...)...)
	}
}

// After the models of each preset are trained: 600 J in 10 s unless stated otherwise, with A, B and c
// busy for 1, 2 and 1 of 10 s.
func TestPresetsFollowTheirFormulas(t *testing.T) {
	for name, c := range map[config.Preset]struct {
		preset       config.Preset // empty if it is the key
		edit         func(*config.AttributionConfig)
		train        func(*testNode)
		etcd         int64
		joules       float64 // energy of the node; 0 means 600
		active, idle figures
	}{
		// P * busy/total, shared by CPU time.
		config.PresetKepler: {active: figures{60, 120, 60, 0, 240}, idle: figures{node: 360}},
		// Energy * CPU time of the process / all CPU time. The rest belongs to no process.
		config.PresetScaphandre: {active: figures{60, 120, 60, 0, 240}, idle: figures{node: 360}},
		// Active plus idle energy is energy * CPU time of the process / busy CPU time: 150 J for A,
		// 300 J for B and 150 J for c.
		"kavanagh_by_use": {
			preset: config.PresetScaphandre,
			edit:   func(a *config.AttributionConfig) { a.Idle = config.IdleUsed },
			active: figures{60, 120, 60, 0, 240}, idle: figures{90, 180, 90, 0, 360},
		},
		// The lowest power, 20 W at half load, is idle, and shared equally by the five processes
		// with init. Power above it is shared by CPU time.
		config.PresetKepler09: {
			train: func(n *testNode) {
				n.run(200*joule, map[int]int64{1: 500})
				n.run(210*joule, map[int]int64{1: 20})
			},
			active: figures{100, 200, 100, 0, 400}, idle: figures{40, 40, 40, 40, 200},
		},
		// At rest 40, 41, ... 49 W: median 44.5 and range 4.5 W, so 44.5 - 1.5*4.5 = 37.75 W are static.
		config.PresetSmartWatts: {
			train: func(n *testNode) {
				for i := range uint64(10) {
					n.run((400+10*i)*joule, map[int]int64{1: 10})
				}
			},
			active: figures{55.625, 111.25, 55.625, 0, 222.5}, idle: figures{node: 377.5},
		},
		// 32.5 W with the control plane alone, and 60u - 45u² + 20u³ W by the utilization u of the rest:
		// 18.08 W at 0.4. A line would have 37.78 W at 0.
		config.PresetKubeWatt: {
			edit: func(c *config.AttributionConfig) {
				c.Tuning.Samples = 2
				c.Exclude.ExecutableName = []filter.Config{{Strict: "etcd"}}
			},
			train: func(n *testNode) {
				for i := range int64(24) {
					ticks := []int64{225, 275, 325, 375, 400, 475, 525, 575, 625, 675, 725, 775}[i%12]
					u := float64(ticks) / 1000
					n.run(uint64((325+10*(60*u-45*u*u+20*u*u*u))*joule), map[int]int64{10: ticks, 40: 50})
				}
			},
			etcd:   50,
			joules: 505.8,
			active: figures{45.2, 90.4, 45.2, 0, 180.8}, idle: figures{node: 325},
		},
		// Idle power, here 30 W, is shared equally by the virtual machines. Power above it is shared by use.
		config.PresetKavanagh: {
			train: func(n *testNode) {
				for range 30 {
					n.run(300*joule, map[int]int64{1: 10})
				}
			},
			active: figures{75, 150, 75, 0, 300}, idle: figures{150, 150, 0, 0, 300},
		},
		// Each of the two virtual machines has half of the node's energy, however much it runs.
		config.PresetKavanaghEqual: {idle: figures{300, 300, 0, 0, 600}},
	} {
		preset := cmp.Or(c.preset, name)
		t.Run(string(name), func(t *testing.T) {
			n := sharedNode(t, func(a *config.AttributionConfig) {
				a.Preset = preset
				if c.edit != nil {
					c.edit(a)
				}
			})
			n.start()
			n.run(300*joule, map[int]int64{1: 900})
			if c.train != nil {
				assert.Equal(t, preset == config.PresetKepler09, n.trained(), "before a moment of rest")
				c.train(n)
				assert.True(t, n.trained())
			} else {
				assert.Empty(t, n.trainedModels(), "there is no model to train")
			}
			active, idle := n.figures("active"), n.figures("idle")
			n.run(uint64(cmp.Or(c.joules, 600)*joule), map[int]int64{10: 100, 20: 200, 30: 100, 40: c.etcd})
			active, idle = n.figures("active").less(active), n.figures("idle").less(idle)
			requireFigures(t, c.active, active, "active")
			requireFigures(t, c.idle, idle, "idle")
			t.Attr(string(name), fmt.Sprintf("active %v; idle %v J", active, idle))
		})
	}
}

func TestTheUtilizationRuleAppliesUntilTheModelIsTrained(t *testing.T) {
	for _, split := range config.StaticModelNames {
		if !split.IsTrained() || split == config.StaticTrained || split == config.StaticMinimum {
			continue // they have an estimate from the first sample on
		}
		n := sharedNode(t, func(c *config.AttributionConfig) { c.StaticPower = allStatic(split) })
		n.start()
		n.run(600*joule, map[int]int64{10: 600})
		assert.False(t, n.trained(), split)
		requireFigures(t, figures{a: 360, node: 360}, n.figures("active"), split)
	}
}

// etcd uses half of the CPU and is excluded, so a fifth of 600 J is active.
func TestWhatIsExcludedIsStatic(t *testing.T) {
	strict := func(s string) []filter.Config { return []filter.Config{{Strict: s}} }
	pattern := func(s ...string) (f []filter.Config) {
		for _, p := range s {
			f = append(f, filter.Config{Regex: p})
		}
		return f
	}
	for name, c := range map[string]struct {
		exclude config.ExcludeConfig
		want    figures
	}{
		"executable": {config.ExcludeConfig{ExecutableName: strict("etcd")}, figures{60, 60, 0, 0, 120}},
		"cgroup":     {config.ExcludeConfig{Cgroup: strict(scope(idB))}, figures{60, 0, 0, 300, 360}},
		"none":       {config.ExcludeConfig{Namespace: strict("none")}, figures{60, 60, 0, 300, 420}},
		"several":    {config.ExcludeConfig{Cgroup: strict(scope(idA)), ExecutableName: strict("etcd")}, figures{0, 60, 0, 0, 60}},

		"a pattern of executables":  {config.ExcludeConfig{ExecutableName: pattern("^et.*d$")}, figures{60, 60, 0, 0, 120}},
		"a pattern of cgroups":      {config.ExcludeConfig{Cgroup: pattern(`/system.slice/docker-` + idB[:12] + `[0-9a-f]*\.scope$`)}, figures{60, 0, 0, 300, 360}},
		"a pattern without a match": {config.ExcludeConfig{ExecutableName: pattern("^etc$"), Cgroup: pattern("/docker$")}, figures{60, 60, 0, 300, 420}},
		"several patterns":          {config.ExcludeConfig{ExecutableName: pattern("^x", "^a$", "tcd")}, figures{0, 60, 0, 0, 60}},
		"a pattern beside a name": {
			config.ExcludeConfig{ExecutableName: append(strict("b"), pattern("^e")...)}, figures{60, 0, 0, 0, 60},
		},
	} {
		n := sharedNode(t, func(a *config.AttributionConfig) { a.Exclude = c.exclude })
		n.start()
		n.run(600*joule, map[int]int64{10: 100, 20: 100, 40: 500})
		requireFigures(t, c.want, n.figures("active"), name)
	}
}

// B requests one CPU, by its weight or because that is unset. Many requests map to the same weight.
func TestRequestsFollowTheFormulaOfTheContainerRuntime(t *testing.T) {
	var requests []string
	for _, c := range []struct {
		idle config.IdleRule
		a, b string
		want float64 // request of A, in CPUs
	}{
		{config.IdleRequestedLinear, "20\n", "39\n", 0.5},
		{config.IdleRequestedLinear, "39\n", "100\n", 1},
		{config.IdleRequested, "59\n", "100\n", 0.5},
		{config.IdleRequested, "39\n", "100\n", 0.3},
	} {
		n := sharedNode(t, func(a *config.AttributionConfig) {
			a.Idle = c.idle
		})
		require.NoError(t, n.host.Render())
		for id, weight := range map[string]string{idA: c.a, idB: c.b} {
			write(t, filepath.Join(n.host.Root(), "sys/fs/cgroup", scope(id), "cpu.weight"), weight)
		}
		n.start()
		n.run(600*joule, map[int]int64{10: 100})
		idle := n.figures("idle")
		assert.InDelta(t, 540, idle.a+idle.b, 1e-5)
		assert.InEpsilon(t, c.want, idle.a/idle.b, 0.03, "%+v", c)
		requests = append(requests, fmt.Sprintf("%.1f", idle.a/idle.b))
	}
	t.Attr("requests", strings.Join(requests, ", "))
}

func write(t *testing.T, path, content string) {
	t.Helper()
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
	require.NoError(t, os.WriteFile(path, []byte(content), 0o600))
}

// memoryStorage is a storage extension with one client.
type memoryStorage struct {
	component.StartFunc
	component.ShutdownFunc
	stored map[string][]byte
}

func (s *memoryStorage) GetClient(_ context.Context, kind component.Kind, _ component.ID, name string) (storage.Client, error) {
	if kind != component.KindReceiver || name == "" {
		return nil, errors.New("not for a receiver")
	}
	return s, nil
}

func (s *memoryStorage) Get(_ context.Context, key string) ([]byte, error) {
	return s.stored[key], nil
}

func (s *memoryStorage) Set(_ context.Context, key string, value []byte) error {
	s.stored[key] = value
	return nil
}

func (s *memoryStorage) Delete(_ context.Context, key string) error {
	delete(s.stored, key)
	return nil
}
func (*memoryStorage) Batch(context.Context, ...*storage.Operation) error { return nil }
func (s *memoryStorage) Close(context.Context) error                      { return nil }

var storageID = component.MustNewID("file_storage")

// atRest selects a static power model that is trained by 10 s at rest.
func atRest(c *config.AttributionConfig) {
	c.StaticPower, c.Tuning.Base = allStatic(config.StaticBase), 10*time.Second
}

func TestTrainingContinuesWhenTheCPUTimeSourceIsReplaced(t *testing.T) {
	n := sharedNode(t, atRest)
	source := new(failingSource)
	n.reads(&source.Procfs, source)
	n.start()
	n.run(200*joule, map[int]int64{1: 10})
	n.replaceSource(source)
	n.run(600*joule, map[int]int64{10: 100})
	assert.True(t, n.trained())
}

// 40 and 44 W are 2 W around the mean of 42 W, so that 48 of 90 W are active. A has a sixth of
// that, B, in a pod, a third, and a virtual machine half. The key is off by 27 % of what a small
// workload has, and procfs by 5.8 ms of CPU time, at 80 J a second.
func TestUncertaintyIsOfTheNodeOfTheKeyAndOfTicks(t *testing.T) {
	n := sharedNode(t, func(c *config.AttributionConfig) {
		c.StaticPower, c.Tuning.Base = allStatic(config.StaticBase), 20*time.Second
	})
	on := &n.cfg.Metrics
	on.ContainerPowerUncertainty.Enabled, on.K8sPodPowerUncertainty.Enabled, on.VMPowerUncertainty.Enabled = true, true, true
	on.SystemPowerUncertainty.Enabled = true
	n.host.Processes[20].Cgroup = "0::/kubepods/burstable/pod" + uidA + "/" + idB
	n.host.Processes[30].Cgroup = `0::/machine.slice/machine-qemu\x2d1\x2da.scope`
	n.start()
	n.run(400*joule, map[int]int64{1: 10})
	assert.Empty(t, n.points("process.power.uncertainty", nil))
	assert.Empty(t, n.points("system.power.uncertainty", nil))
	n.run(440*joule, map[int]int64{1: 10})
	n.run(900*joule, map[int]int64{10: 100, 20: 200, 30: 300})
	assert.InDelta(t, 2, n.one("system.power.uncertainty").value, 1e-6)
	uncertainty := func(share float64) float64 {
		ticks := 0.01 / math.Sqrt(3) * 80 / 10
		return math.Hypot(math.Hypot(2*share, 0.27*48*share*(1-share)), ticks)
	}
	a, b, vm := uncertainty(1.0/6), uncertainty(1.0/3), uncertainty(1.0/2)
	assert.InDelta(t, 1.83, a, 0.01)
	assert.InDelta(t, a, n.one("process.power.uncertainty", pid(10)).value, 1e-6)
	assert.InDelta(t, b, n.one("process.power.uncertainty", pid(20)).value, 1e-6)
	assert.InDelta(t, vm, n.one("process.power.uncertainty", pid(30)).value, 1e-6)
	assert.Zero(t, n.one("process.power.uncertainty", pid(40)).value)
	assert.InDelta(t, a, n.one("container.power.uncertainty", "container.id="+idA).value, 1e-6)
	assert.InDelta(t, b, n.one("container.power.uncertainty", "container.id="+idB).value, 1e-6)
	assert.InDelta(t, b, n.one("k8s.pod.power.uncertainty").value, 1e-6)
	assert.InDelta(t, vm, n.one("vm.power.uncertainty").value, 1e-6)
	t.Attr("uncertainty", fmt.Sprintf("2 W of the node; %.2f, %.2f, %.2f W", a, b, vm))
}
