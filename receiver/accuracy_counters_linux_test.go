// SPDX-License-Identifier: Apache-2.0

//go:build accuracy && (amd64 || arm64)

package energyreceiver

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/energyreceiver/energyreceiver/internal/cgroup"
	"github.com/energyreceiver/energyreceiver/internal/claims"
	"github.com/energyreceiver/energyreceiver/internal/test/hostsim"
	"github.com/energyreceiver/energyreceiver/internal/usage/cpu"
	"github.com/energyreceiver/energyreceiver/internal/usage/weigh"
	"github.com/energyreceiver/energyreceiver/receiver/internal/config"
)

// labEvents counts the hardware events of a simulated machine: 3e9 cycles per second at the nominal clock rate, 1.5
// instructions per cycle times the task's intensity, and 5e6 cache misses per joule that the task causes in memory.
type labEvents struct {
	used    map[*hostsim.Task]time.Duration
	cgroups map[string]map[weigh.Event]float64 // of tasks directly in the cgroup
}

func (e *labEvents) observe(m *hostsim.Machine) {
	if e == nil {
		return
	}
	for _, t := range m.Tasks {
		ran := (t.Used - e.used[t]).Seconds()
		if e.used[t] = t.Used; ran == 0 {
			continue
		}
		counts := e.cgroups[t.Cgroup]
		if counts == nil {
			counts = map[weigh.Event]float64{}
			e.cgroups[t.Cgroup] = counts
		}
		cycles := 3e9 * ran * m.Sockets[t.Socket].Clock()
		counts[weigh.Cycles] += cycles
		counts[weigh.Instructions] += 1.5 * t.Intensity * cycles
		counts[weigh.CacheMisses] += 5e6 * t.Memory * ran
	}
}

func (e *labEvents) counted(event weigh.Event, of string) uint64 {
	sum := 0.0
	for path, counts := range e.cgroups {
		if strings.HasPrefix(path+"/", of+"/") {
			sum += counts[event]
		}
	}
	return uint64(sum)
}

// countEvents has the receiver count the events of the machine, before it is started.
func (l *lab) countEvents() {
	l.events = &labEvents{used: map[*hostsim.Task]time.Duration{}, cgroups: map[string]map[weigh.Event]float64{}}
	events := weigh.SimulatedEvents(l.events.counted)
	options := l.s.cfg.KeyOptions(l.s.node.Cgroups)
	options.Open = func(_ claims.Key, o *claims.KeyOptions) (w claims.Weigher, rejected, err error) {
		w, err = weigh.NewModel(events, o.Cgroups)
		return w, nil, err
	}
	l.s.node.Keys = claims.NewKeys(options)
	l.s.node.Probes.CountsEvents = func(*cgroup.Tree, ...weigh.Event) error { return nil }
}

// countedNode is memoryAndCompute with containers whose load varies, and one more of the usual intensity.
func countedNode(frequency func(float64) float64) func(*lab) func(time.Duration) {
	return func(l *lab) func(time.Duration) {
		s := straight(4, 20, 100)
		s.DRAMIdle, s.Frequency = 3, frequency
		l.on(s)
		compute := l.container("compute", 0, 0).weighs(1.3, 0.5)
		memory := l.container("memory", 0, 0).weighs(0.7, 6)
		web := l.container("web", 0, 0).weighs(1, 2)
		return func(at time.Duration) {
			second := int(at / time.Second)
			compute.tasks[0].Demand = 0.3 + 0.2*float64(second%7)
			memory.tasks[0].Demand = 0.3 + 0.2*float64(second/2%5)
			web.tasks[0].Demand = 0.1 + 0.1*float64(second/3%4)
		}
	}
}

// All have the true static power. At each clock rate, the simulated power is linear in the simulated events.
func TestTheModelOfSmartWattsFindsWhatInstructionsAndCacheMissesCost(t *testing.T) {
	for name, c := range map[string]struct {
		frequency     func(float64) float64
		counted       bool
		least, most   float64 // misplaced energy of the package
		leastM, mostM float64 // of memory
	}{
		"not counted": {nil, false, 0.1, 0.13, 0.35, 0.45},
		"counted":     {nil, true, 0, 0.02, 0, 0.03},
		"not counted, clock rate follows the load":  {schedutil, false, 0.1, 0.13, 0.35, 0.45},
		"counted, clock rate that follows the load": {schedutil, true, 0, 0.05, 0, 0.1},
	} {
		a := measure(t, labScenario{name: "counted", build: countedNode(c.frequency)}, labSetting{
			source: cpu.KindBPF, counts: c.counted, configure: func(c *Config) {
				c.Attribution.Preset, c.Attribution.StaticPower = config.PresetSmartWatts, allStatic(config.StaticFixed)
			},
		}, 5*time.Minute)
		t.Logf("%s: misplaced %.1f %% of the package's energy and %.1f %% of memory's", name, 100*a.misplacedPackage, 100*a.misplacedDRAM)
		assert.InDelta(t, a.node.sum(), a.parts.sum(), 1e-6, name)
		assert.GreaterOrEqual(t, a.misplacedPackage, c.least, name)
		assert.LessOrEqual(t, a.misplacedPackage, c.most, name)
		assert.GreaterOrEqual(t, a.misplacedDRAM, c.leastM, name)
		assert.LessOrEqual(t, a.misplacedDRAM, c.mostM, name)
	}
}
