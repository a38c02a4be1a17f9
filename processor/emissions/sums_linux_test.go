// SPDX-License-Identifier: Apache-2.0

package emissions

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/processor/processortest"
	"go.uber.org/zap"

	"github.com/energyreceiver/energyreceiver/internal/power"
	"github.com/energyreceiver/energyreceiver/internal/power/model"
	"github.com/energyreceiver/energyreceiver/internal/test/hostsim"
	"github.com/energyreceiver/energyreceiver/internal/usage/cpu"
	"github.com/energyreceiver/energyreceiver/processor/emissions/internal/metadata"
	"github.com/energyreceiver/energyreceiver/processor/emissions/internal/signal"
	"github.com/energyreceiver/energyreceiver/processor/emissions/internal/signal/provider"
	energyreceiver "github.com/energyreceiver/energyreceiver/receiver"
)

// changing returns an intensity that changes every five minutes for a day.
func changing(t *testing.T, random *rand.Rand) signal.Signal {
	var periods []signal.Period
	for from := time.Now(); len(periods) < 288; {
		until := from.Add(5 * time.Minute)
		periods = append(periods, signal.Period{From: from, Until: until, Rate: signal.Rate(random.Int64N(600e6))})
		from = until
	}
	line := signal.NewTimeline(0)
	require.NoError(t, line.Put(time.Now(), periods))
	return line
}

// parts returns a collection in parts, as a batch processor or a limit on the size of requests divides it.
func parts(md pmetric.Metrics, random *rand.Rand) []pmetric.Metrics {
	all := []pmetric.Metrics{pmetric.NewMetrics()}
	for _, rm := range md.ResourceMetrics().All() {
		if random.IntN(8) == 0 {
			all = append(all, pmetric.NewMetrics())
		}
		rm.MoveTo(all[len(all)-1].ResourceMetrics().AppendEmpty())
	}
	return all
}

// totals holds the last values of all series that ever existed, in millionths, by their identity.
type totals map[string]int64

func (last totals) observe(md pmetric.Metrics) {
	for _, rm := range md.ResourceMetrics().All() {
		for _, m := range rm.ScopeMetrics().At(0).Metrics().All() {
			if m.Type() != pmetric.MetricTypeSum {
				continue
			}
			for _, p := range m.Sum().DataPoints().All() {
				id := fmt.Sprint(m.Name(), " ", p.Attributes().AsRaw(), rm.Resource().Attributes().AsRaw(), p.StartTimestamp())
				last[id] = int64(math.Round(p.DoubleValue() * 1e6))
			}
		}
	}
}

// sum returns the sum of the series of a metric whose identity contains a zone and a state, and their number.
func (last totals) sum(metric, zone, state string) (sum, n int64) {
	for id, value := range last {
		if strings.HasPrefix(id, metric+" ") && strings.Contains(id, zone) && strings.Contains(id, state) {
			sum += value
			n++
		}
	}
	return sum, n
}

func TestEmissionsOfWorkloadsAddUpToTheNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const interval = 107 * time.Second // so that intensities change within intervals
		random := rand.New(rand.NewPCG(2, 0))
		intensity := changing(t, random)
		time.Sleep(time.Minute)
		curve, err := model.Linear(0, 60)
		require.NoError(t, err)
		life := hostsim.NewLife(hostsim.NewMachine(t.TempDir(), &hostsim.Socket{CPUs: 4, Idle: 20, DRAMIdle: 3, Curve: curve}))
		life.Host.Booted, life.Host.Cached = time.Now().Add(-life.Now()), true
		require.NoError(t, life.Render())

		p, err := newEmissionsProcessor(createDefaultConfig().(*Config), processortest.NewNopSettings(metadata.Type))
		require.NoError(t, err)
		p.cfg.PUE = 1.25
		p.intensity = &source{Signal: intensity, provider: "test", accounting: location, intensityType: provider.Average}
		require.NoError(t, p.start(t.Context(), componenttest.NewNopHost()))
		defer func() { require.NoError(t, p.shutdown(t.Context())) }()
		cfg := energyreceiver.DefaultConfig()
		cfg.RootPath, cfg.Meters.Use, cfg.CPUTime = life.Host.Root(), []string{"powercap"}, cpu.KindProcfs
		cfg.Attribution.Preset = energyreceiver.PresetKepler // whose workloads have all active energy
		cfg.Zones = []power.Kind{power.Package, power.DRAM}
		cfg.Series.Processes.Max, cfg.Series.Processes.MinEnergy, cfg.Series.Containers.Max = 6, 100, 8
		receiver, err := energyreceiver.Embed(cfg, energyreceiver.EmbeddedOptions{Logger: zap.NewNop()})
		require.NoError(t, err)
		require.NoError(t, receiver.Start(t.Context()))
		defer func() { require.NoError(t, receiver.Shutdown(t.Context())) }()

		last := totals{}
		for _, event := range hostsim.NewHistory(1, 1000, hostsim.CommonWeights()) {
			if life.Apply(event); event.Act != hostsim.Advance {
				continue
			}
			life.Step(interval)
			time.Sleep(time.Until(life.Host.Booted.Add(life.Now())))
			require.NoError(t, life.Render())
			md, err := receiver.Collect(t.Context())
			require.NoError(t, err)
			for _, part := range parts(md, random) {
				for range 1 + random.IntN(2) { // some are sent again
					again := pmetric.NewMetrics()
					part.CopyTo(again)
					again, err = p.process(t.Context(), again)
					require.NoError(t, err)
					last.observe(again)
				}
			}
		}
		assert.Zero(t, p.accounts.Missed)
		for _, zone := range []string{"energy.zone:package", "energy.zone:dram"} {
			energy, _ := last.sum("system.energy", zone, "energy.state:active")
			attributed, _ := last.sum("process.energy", zone, "")
			unattributed, _ := last.sum("system.unattributed.energy", zone, "")
			require.Equal(t, energy, attributed+unattributed, "the receiver's own sum")
			emissions, _ := last.sum("system.emissions", zone, "energy.state:active")
			used, n := last.sum("process.emissions", zone, "")
			rest, m := last.sum("system.unattributed.emissions", zone, "")
			t.Logf("%s: node %d µg, %d + %d series %d µg", zone, emissions, n, m, used+rest)
			assert.LessOrEqual(t, used+rest, emissions)
			assert.Greater(t, used+rest, emissions-n-m, "each series is off by less than one µg")
			assert.Greater(t, n, int64(20))
		}
	})
}
