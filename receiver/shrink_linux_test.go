// SPDX-License-Identifier: Apache-2.0

//go:build amd64 || arm64

package energyreceiver

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/filter"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/pmetric"

	"github.com/energyreceiver/energyreceiver/internal/power/model"
	"github.com/energyreceiver/energyreceiver/internal/test/hostsim"
	"github.com/energyreceiver/energyreceiver/internal/usage/cpu"
	"github.com/energyreceiver/energyreceiver/receiver/internal/config"
	"github.com/energyreceiver/energyreceiver/receiver/internal/machine"
)

// crowdedNode is a machine with lasting workloads, beside which more processes than slackShare allows come and go.
type crowdedNode struct {
	t       *testing.T
	machine *hostsim.Machine
	kernel  *hostsim.Kernel
	s       *energyScraper
	keeps   bool // never gives memory back

	points [][]string
}

func newCrowdedNode(t *testing.T, keeps bool, edit func(*Config)) *crowdedNode {
	curve, err := model.Linear(0, 60)
	require.NoError(t, err)
	b := &crowdedNode{t: t, keeps: keeps}
	b.machine = hostsim.NewMachine(treeDir(t), &hostsim.Socket{CPUs: 64, Idle: 20, DRAMIdle: 3, Curve: curve})
	b.kernel = hostsim.NewKernel(b.machine)
	cfg := simpleConfig()
	cfg.RootPath, cfg.Meters.Use = b.machine.Host.Root(), only(config.MeterPowercap)
	cfg.Series.Processes = byPID(config.ProcessSeriesConfig{})
	edit(cfg)
	require.NoError(t, cfg.Validate())
	m := machine.Local()
	m.Now = b.machine.Host.Now
	m.OpenCPU = openAs(func(o cpu.Options) cpu.Source { return cpu.NewSimulatedBPF(o, b.kernel, b.kernel.Now) })
	b.s = newScraper(t, cfg, m)
	return b
}

func (b *crowdedNode) spawn(cgroup, exe string, args ...string) *hostsim.Task {
	task := b.machine.Init().Spawn()
	require.NotNil(b.t, task)
	task.Exec(exe, append([]string{exe}, args...)...)
	task.Move(cgroup)
	task.Demand, task.Resident = 0.01*float64(1+task.PID%7), uint64(1+task.PID%5)<<20
	return task
}

func (b *crowdedNode) end(tasks ...*hostsim.Task) {
	for _, task := range tasks {
		task.Exit()
		task.Reap(false)
	}
}

// collect advances by ten seconds n times. Each ends with a collection that is acknowledged.
func (b *crowdedNode) collect(times int) {
	b.t.Helper()
	for range times {
		b.machine.Step(10 * time.Second)
		require.NoError(b.t, b.machine.Render())
		if b.keeps && b.s.attributor.Begun() {
			b.s.attributor.Collector.KeepMemory = true
		}
		md, err := b.s.scrape(context.Background())
		require.NoError(b.t, err)
		b.points = append(b.points, pointsOf(md))
		b.s.delivered(delivery{all: true, some: true})
	}
}

// pointsOf returns all points with their resources and metrics, sorted.
func pointsOf(md pmetric.Metrics) (points []string) {
	for _, rm := range md.ResourceMetrics().All() {
		for _, sm := range rm.ScopeMetrics().All() {
			for _, m := range sm.Metrics().All() {
				var dps pmetric.NumberDataPointSlice
				switch m.Type() {
				case pmetric.MetricTypeSum:
					dps = m.Sum().DataPoints()
				default:
					dps = m.Gauge().DataPoints()
				}
				for _, p := range dps.All() {
					points = append(points, fmt.Sprint(m.Name(), labels(rm.Resource().Attributes()), labels(p.Attributes()),
						p.StartTimestamp(), p.Timestamp(), p.DoubleValue(), p.IntValue(), p.Flags()))
				}
			}
		}
	}
	slices.Sort(points)
	return points
}

func labels(m pcommon.Map) string {
	var all []string
	for k, v := range m.All() {
		all = append(all, k+"="+v.AsString())
	}
	slices.Sort(all)
	return "{" + strings.Join(all, " ") + "}"
}

// run makes a burst of processes, and waits a minute and a half after it.
func (b *crowdedNode) run() {
	b.t.Helper()
	id := func(c string) string { return strings.Repeat(c, 64) }
	const pod = "/kubepods.slice/kubepods-pod01234567_89ab_cdef_0123_456789abcdef.slice"
	first, second := "/system.slice/docker-"+id("a")+".scope", pod+"/cri-containerd-"+id("b")+".scope"
	var stay []*hostsim.Task
	workloads := func() {
		stay = append(stay,
			b.spawn("/system.slice/app.service", "/usr/bin/app"), b.spawn(first, "/usr/bin/web"), b.spawn(second, "/usr/bin/db"),
			b.spawn("/machine.slice", "/usr/bin/qemu-system-x86_64", "-name", fmt.Sprint("guest=vm", len(stay)),
				"-uuid", fmt.Sprintf("00000000-0000-0000-0000-%012d", len(stay))),
			b.spawn("/system.slice/excluded.service", "/usr/bin/excluded"))
	}
	workloads()
	require.NoError(b.t, b.machine.Render())
	require.NoError(b.t, b.s.start(context.Background(), simHost{}))
	b.t.Cleanup(func() { require.NoError(b.t, b.s.shutdown(context.Background())) })
	b.collect(2)

	var crowd []*hostsim.Task
	for range 4 {
		for i := range 400 {
			crowd = append(crowd, b.spawn([...]string{"/user.slice", first, second}[i%3], "/usr/bin/make"))
		}
		workloads() // their slots are between those of the crowd
	}
	b.collect(2)
	b.kernel.Late, b.kernel.Loses = 1, 1000 // their rows are kept for a minute
	b.end(crowd...)
	b.collect(1)
	for n := range 9 { // a scan fails before, while and after memory is given back
		b.kernel.Fails = n % 2
		b.collect(1)
	}
	if slots, _ := b.s.attributor.Collector.Held(); b.keeps {
		require.Greater(b.t, slots, 1600)
	} else {
		require.Less(b.t, slots, 100)
	}
	for _, task := range stay[2:] { // those that slept begin to run
		task.Demand = max(task.Demand, 0.02)
	}
	stay[0].Exec("/usr/bin/other")
	stay[5].Move(second)
	stay[6].Move("/system.slice/excluded.service")
	b.end(stay[7], stay[8], stay[11])
	b.collect(1)
	workloads()
	b.collect(2)
	b.kernel.Fails = 3 // procfs takes over
	b.collect(6)
	for _, task := range stay {
		task.Demand = 0.02
	}
	b.collect(2)
}

func TestShrinkingChangesNoResult(t *testing.T) {
	for name, edit := range map[string]func(*Config){
		"default": func(*Config) {},
		"excluded by cgroup": func(c *Config) {
			c.Attribution.Exclude.Cgroup = []filter.Config{{Strict: "/system.slice/excluded.service"}}
		},
		"by memory, idle energy shared": func(c *Config) {
			c.Attribution.Weight = allWeight(config.WeightMemory)
			c.Attribution.Idle = config.IdleRequested
			c.Attribution.Exclude.Cgroup = []filter.Config{{Strict: "/system.slice/excluded.service"}}
		},
		"few series": func(c *Config) {
			c.Series.Processes = byPID(config.ProcessSeriesConfig{MinEnergy: 1, Max: 4})
			c.Series.Containers.Max, c.Series.VMs.Max = 1, 2
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			kept, shrunk := newCrowdedNode(t, true, edit), newCrowdedNode(t, false, edit)
			kept.run()
			shrunk.run()
			for i := range kept.points {
				require.Equal(t, kept.points[i], shrunk.points[i], "collection %d", i)
			}
		})
	}
}
