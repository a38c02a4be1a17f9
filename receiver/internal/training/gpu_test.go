// SPDX-License-Identifier: Apache-2.0

package training

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"go.uber.org/zap"

	"github.com/energyreceiver/energyreceiver/internal/attribution"
	"github.com/energyreceiver/energyreceiver/internal/attribution/static"
	"github.com/energyreceiver/energyreceiver/internal/power"
	"github.com/energyreceiver/energyreceiver/internal/units"
	"github.com/energyreceiver/energyreceiver/receiver/internal/config"
)

// gpuLearner is a receiver's learning on a machine with a package and GPUs.
type gpuLearner struct {
	*Training
	rules    attribution.Rules
	domains  []units.Domain
	readings []power.Reading
}

func newGPULearner(kept Models) *gpuLearner {
	cfg := simpleConfig()
	cfg.RootPath, cfg.Attribution.StaticPower = "/nonexistent", allStatic(config.StaticMinimum)
	l := &gpuLearner{
		Training: &Training{cfg: cfg, logger: zap.NewNop(), Trained: kept},
		rules:    cfg.Attribution.Rules(cfg.LedgerKinds(), cfg.Zones), domains: []units.Domain{units.NodeCPUs},
	}
	l.readings = []power.Reading{{Zone: &power.Zone{ID: "intel-rapl:0", Kind: power.Package, Source: power.Measured, Domain: units.NodeCPUs}}}
	l.Restore(l.zones(), l.readings)
	return l
}

// zones returns the zones with their models.
func (l *gpuLearner) zones() Zones {
	return Zones{&l.rules, l.cfg.LedgerKinds(), l.domains}
}

// plug adds a GPU, and returns its index.
func (l *gpuLearner) plug(address, id string) int {
	l.domains = append(l.domains, units.GPU(address))
	l.readings = append(l.readings, power.Reading{Zone: &power.Zone{ID: id, Kind: power.GPU, Source: power.Measured, Domain: units.GPU(address)}})
	l.RestoreGPUs(l.zones(), l.readings)
	return len(l.domains) - 1
}

// model returns the static power model of a zone kind.
func (l *gpuLearner) model(kind power.Kind) *static.Model {
	for i, k := range l.cfg.LedgerKinds() {
		if k.Zone == kind && k.Source == power.Measured {
			return l.rules.Models[i].(*static.Model)
		}
	}
	panic("no such kind")
}

// learn has a model learn the static power of a domain.
func (l *gpuLearner) learn(kind power.Kind, domain int, watts units.Energy) {
	l.model(kind).Active(attribution.Portion{
		Domain: domain, Energy: watts * units.Joule, Total: units.Second, Elapsed: time.Second, Zones: 1, Of: 1, OfAll: 1,
	})
}

// restart stores what was learned, and returns the training of the next start.
func (l *gpuLearner) restart(t *testing.T) *gpuLearner {
	l.Note(l.zones())
	return newGPULearner(restored(t, l.Trained))
}

func TestEachGPUKeepsWhatWasLearnedOfItWheneverItAppears(t *testing.T) {
	l := newGPULearner(Models{})
	first, second := l.plug("0000:03:00.0", "GPU-1"), l.plug("0000:04:00.0", "GPU-2")
	l.learn(power.Package, 0, 30)
	l.learn(power.GPU, first, 40)
	l.learn(power.GPU, second, 50)

	l = l.restart(t)
	assert.InDelta(t, 30, l.model(power.Package).StaticPower(0), 0, "without GPUs so far")
	second, first = l.plug("0000:04:00.0", "GPU-2"), l.plug("0000:03:00.0", "GPU-1")
	assert.InDelta(t, 40, l.model(power.GPU).StaticPower(first), 0, "with another index")
	assert.InDelta(t, 50, l.model(power.GPU).StaticPower(second), 0)

	l = l.restart(t).restart(t)
	assert.InDelta(t, 40, l.model(power.GPU).StaticPower(l.plug("0000:03:00.0", "GPU-1")), 0, "after a start without it")
}

func TestAnotherGPUInTheSamePlaceIsLearnedAgainAndTheCPUIsNot(t *testing.T) {
	l := newGPULearner(Models{})
	l.learn(power.Package, 0, 30)
	l.learn(power.GPU, l.plug("0000:03:00.0", "GPU-1"), 40)
	l = l.restart(t)
	other := l.plug("0000:03:00.0", "GPU-9")
	assert.False(t, l.model(power.GPU).Trained(other))
	assert.InDelta(t, 30, l.model(power.Package).StaticPower(0), 0)
}

func TestWhatWasLearnedOfAGPUWithoutAnyOtherZoneIsKept(t *testing.T) {
	l := newGPULearner(Models{})
	l.Trained.Hardware = nil
	l.learn(power.GPU, l.plug("0000:03:00.0", "GPU-1"), 40)
	l = l.restart(t)
	assert.InDelta(t, 40, l.model(power.GPU).StaticPower(l.plug("0000:03:00.0", "GPU-1")), 0)
}
