// SPDX-License-Identifier: Apache-2.0

package energyreceiver

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/energyreceiver/energyreceiver/internal/perfevent"
	"github.com/energyreceiver/energyreceiver/internal/power"
	"github.com/energyreceiver/energyreceiver/internal/units"
	"github.com/energyreceiver/energyreceiver/internal/usage/cpu"
	"github.com/energyreceiver/energyreceiver/internal/usage/proc"
	"github.com/energyreceiver/energyreceiver/internal/window"
	"github.com/energyreceiver/energyreceiver/receiver/internal/config"
)

// countingSource is an exact source that counts cache misses in proportion to CPU time.
type countingSource struct {
	exactSource
	perSecond map[int32]uint64 // cache misses, by process
	uncounted error            // nil: events are counted
}

func (s *countingSource) Scan(t *proc.Table, r cpu.Request) error {
	err := s.exactSource.Scan(t, r)
	if t.Counting = (proc.Counting{Valid: s.uncounted == nil}); s.uncounted != nil {
		return err
	}
	for i := range t.Rows {
		p := &t.Rows[i]
		p.Counted = proc.Events{uint64(p.Used), uint64(p.Used), s.perSecond[p.PID] * uint64(p.Used) / uint64(units.Second)}
	}
	return err
}

func (s *countingSource) Traits() cpu.Traits {
	t := s.exactSource.Traits()
	t.Uncounted = s.uncounted
	return t
}

// countingNode is the shared node with a sensor of memory and a source that counts events.
func countingNode(t *testing.T) (*testNode, *countingSource) {
	n := keyedNode(t, func(*config.AttributionConfig) {})
	n.cfg.Zones, n.cfg.Attribution.Preset = []power.Kind{power.Package, power.DRAM}, ""
	dram := *n.host.Zones["intel-rapl:0"]
	dram.Name = "dram"
	n.host.Zones["intel-rapl:0:0"] = &dram
	n.machine.FindHardware = func(string) (*perfevent.Hardware, error) { return &perfevent.Hardware{Cache: "L2 cache"}, nil }
	s := &countingSource{perSecond: map[int32]uint64{10: 3e6, 20: 1e6}}
	n.opens(func(o cpu.Options) cpu.Source {
		s.Procfs = cpu.NewProcfs(o)
		if o.Hardware == nil {
			s.uncounted = errors.New("not requested")
		}
		return s
	})
	return n, s
}

// runMemory lets both containers run for a second, and returns the part of the energy of memory
// that A got.
func (n *testNode) runMemory() (ofA float64) {
	energies := func() (a, b float64) {
		return n.sum("container.energy", attrs{"container.id": idA}, "energy.zone=dram"),
			n.sum("container.energy", attrs{"container.id": idB}, "energy.zone=dram")
	}
	a, b := energies()
	n.host.Zones["intel-rapl:0:0"].Energy += 100 * joule
	n.run(600*joule, map[int]int64{10: 100, 20: 100})
	aNow, bNow := energies()
	return (aNow - a) / (aNow - a + bNow - b)
}

func TestMemoryIsAttributedByTheCacheMissesOfEachProcess(t *testing.T) {
	n, s := countingNode(t)
	n.start()
	n.run(joule, nil)
	n.runMemory() // the first readings
	selected := n.logs.FilterMessage("Attribution weight selected").FilterField(zap.String("weight", string(window.KeyMissesOrMemory))).All()
	require.Len(t, selected, 1)
	assert.Contains(t, selected[0].ContextMap()["source"], "L2 cache misses of each process")
	assert.InDelta(t, 3./4, n.runMemory(), 1e-4)
	s.uncounted = errors.New("too many context switches")
	assert.InDelta(t, 1./3, n.runMemory(), 1e-4, "by memory and CPU time")
	assert.Len(t, n.logs.FilterMessage("Hardware events are not counted in all windows").All(), 1)
	s.uncounted = nil
	assert.InDelta(t, 3./4, n.runMemory(), 1e-4)
	assert.Len(t, n.logs.FilterMessage("Hardware events are counted in all windows").All(), 1)
	assert.Empty(t, n.logged())
}

func TestACPUTimeSourceThatCountsNoEventsLeavesTheDefaultWeightOfMemory(t *testing.T) {
	for name, edit := range map[string]func(*testNode, *countingSource){
		"BPF": func(_ *testNode, s *countingSource) { s.uncounted = errors.New("no permission") },
		"procfs": func(n *testNode, _ *countingSource) {
			n.opens(func(o cpu.Options) cpu.Source { return cpu.NewProcfs(o) })
		},
	} {
		n, s := countingNode(t)
		edit(n, s)
		n.start()
		assert.Equal(t, config.WeightMemoryCPUTime, n.s.node.Rules.Weight(power.DRAM), name)
	}
}

// A collector on the same machine has the counters.
func TestAnEmbeddedReceiverCountsEventsOnlyOnRequest(t *testing.T) {
	for weight, counts := range map[config.Weight]bool{"": false, config.WeightCPUTime: false, config.WeightCacheMisses: true} {
		cfg := DefaultConfig()
		cfg.Zones = []power.Kind{power.DRAM}
		if weight != "" {
			cfg.Attribution.Weight = allWeight(weight)
		}
		e, err := Embed(cfg, EmbeddedOptions{})
		require.NoError(t, err)
		_, err = e.scraper.machine.FindHardware(t.TempDir())
		assert.Equal(t, counts, !errors.Is(err, errCounters), weight)
	}
}
