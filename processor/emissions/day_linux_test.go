// SPDX-License-Identifier: Apache-2.0

package emissions

import (
	"context"
	"fmt"
	"math"
	"math/big"
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
	"github.com/energyreceiver/energyreceiver/internal/test/hostsim"
	"github.com/energyreceiver/energyreceiver/internal/usage/cpu"
	"github.com/energyreceiver/energyreceiver/processor/emissions/internal/metadata"
	"github.com/energyreceiver/energyreceiver/processor/emissions/internal/signal"
	"github.com/energyreceiver/energyreceiver/processor/emissions/internal/signal/provider"
	energyreceiver "github.com/energyreceiver/energyreceiver/receiver"
)

// steps is a signal that changes every five minutes.
type steps struct {
	from  time.Time
	rates []signal.Rate
}

const stepLength = 5 * time.Minute

// Mean implements signal.Signal, by a sum of each nanosecond.
func (s *steps) Mean(from, until time.Time) (signal.Mean, bool) {
	if from.Before(s.from) || !until.Before(s.from.Add(time.Duration(len(s.rates))*stepLength)) || !from.Before(until) {
		return signal.Mean{}, false
	}
	sum := new(big.Int)
	for at := from; at.Before(until); {
		i := at.Sub(s.from) / stepLength
		end := s.from.Add((i + 1) * stepLength)
		if end.After(until) {
			end = until
		}
		sum.Add(sum, new(big.Int).Mul(big.NewInt(int64(s.rates[i])), big.NewInt(int64(end.Sub(at)))))
		at = end
	}
	return signal.Mean{Rate: signal.Rate(sum.Div(sum, big.NewInt(int64(until.Sub(from)))).Int64())}, true
}

// dayIntensity returns a carbon intensity that is lowest at noon.
func dayIntensity(from time.Time, random *rand.Rand) *steps {
	intensity := &steps{from: from}
	for i := range 26 * int(time.Hour/stepLength) {
		sun := max(0, -math.Cos(2*math.Pi*float64(i)*stepLength.Hours()/24))
		intensity.rates = append(intensity.rates, signal.Rate((480-400*sun+60*random.Float64())*1e6))
	}
	return intensity
}

// churn is a machine on which processes and containers begin and end all the time.
type churn struct {
	host   *hostsim.Host
	random *rand.Rand
	next   int
}

func newChurn(t *testing.T, random *rand.Rand) *churn {
	c := &churn{host: hostsim.New(t.TempDir()), random: random, next: 100}
	c.host.Zones["intel-rapl:0"] = &hostsim.Zone{Name: "package-0", Max: 262_143_328_850}
	c.host.Zones["intel-rapl:0:0"] = &hostsim.Zone{Name: "dram", Max: 65_712_999_613}
	c.host.CPUs, c.host.Cached = 4, true
	return c
}

// pass lets time pass in which processes run. load is how busy the machine is, at most 1.
func (c *churn) pass(d time.Duration, load float64) {
	h := c.host
	for pid := range h.Processes {
		if pid > 1 && c.random.IntN(12) == 0 {
			delete(h.Processes, pid)
		}
	}
	for range c.random.IntN(4) {
		c.next++
		p := &hostsim.Process{Parent: 1, Comm: "app", Exe: "/bin/app", Start: int64(h.Uptime/hostsim.Tick) + c.random.Int64N(int64(d/hostsim.Tick))}
		if c.random.IntN(2) == 0 {
			p.Cgroup = fmt.Sprintf("0::/system.slice/docker-%064x.scope", c.random.IntN(30))
		}
		h.Processes[c.next] = p
	}
	used := map[int]int64{}
	room := int64(load * 4 * float64(d/hostsim.Tick))
	for pid, p := range h.Processes {
		if c.random.IntN(3) == 0 || room < 2 {
			continue
		}
		lived := min(int64((h.Uptime+d)/hostsim.Tick)-p.Start, room)
		if lived > 1 {
			used[pid] = c.random.Int64N(lived)
			room -= used[pid]
		}
	}
	h.Run(d, used)
	if c.random.IntN(20) == 0 { // the meter cannot be read, and makes up for it later
		h.Zones["intel-rapl:0"].Content = "error"
	} else {
		h.Zones["intel-rapl:0"].Content = ""
	}
	h.Zones["intel-rapl:0"].Energy += uint64((30 + 90*load + c.random.Float64()) * d.Seconds() * 1e6)
	h.Zones["intel-rapl:0:0"].Energy += uint64((3 + 4*load + c.random.Float64()) * d.Seconds() * 1e6)
}

// parts returns a collection in parts, as a batch processor or a bound on the size of requests divides it.
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

// ended adds up the last values of all series that ever existed, by a part of their identity.
type ended struct {
	last map[string]int64 // millionths, by series and start time
}

// observe notes the values of the metrics in a batch.
func (e *ended) observe(md pmetric.Metrics, scale float64) {
	for _, rm := range md.ResourceMetrics().All() {
		for _, sm := range rm.ScopeMetrics().All() {
			for _, m := range sm.Metrics().All() {
				if m.Type() != pmetric.MetricTypeSum {
					continue
				}
				for _, p := range m.Sum().DataPoints().All() {
					id := fmt.Sprint(m.Name(), " ", p.Attributes().AsRaw(), rm.Resource().Attributes().AsRaw(), p.StartTimestamp())
					e.last[id] = int64(math.Round(p.DoubleValue() * scale))
				}
			}
		}
	}
}

// sum returns the sum of the series of a metric whose identity contains all of the parts, and how many there are.
func (e *ended) sum(metric string, parts ...string) (sum int64, n int64) {
series:
	for id, value := range e.last {
		if !strings.HasPrefix(id, metric+" ") {
			continue
		}
		for _, part := range parts {
			if !strings.Contains(id, part) {
				continue series
			}
		}
		sum += value
		n++
	}
	return sum, n
}

func TestWorkloadsAddUpToTheNodeOverADay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { simulateDay(t, rand.New(rand.NewPCG(2, 0))) })
}

func simulateDay(t *testing.T, random *rand.Rand) {
	const interval = 107 * time.Second // so that rates change within intervals
	ctx := context.Background()
	intensity := dayIntensity(time.Now(), random)
	time.Sleep(time.Minute)
	machine := newChurn(t, random)
	machine.host.Booted = time.Now().Add(-machine.host.Uptime)
	require.NoError(t, machine.host.Render())

	set := processortest.NewNopSettings(metadata.Type)
	p, err := newEmissionsProcessor(createDefaultConfig().(*Config), set)
	require.NoError(t, err)
	p.cfg.PUE = 1.25
	p.intensity = &source{Signal: intensity, provider: "test", accounting: location, intensityType: provider.Average}
	require.NoError(t, p.start(ctx, componenttest.NewNopHost()))
	defer func() { require.NoError(t, p.shutdown(ctx)) }()

	cfg := energyreceiver.DefaultConfig()
	cfg.RootPath, cfg.Meters.Use, cfg.CPUTime = machine.host.Root(), []string{"powercap"}, cpu.KindProcfs
	cfg.Attribution.Preset = energyreceiver.PresetKepler // whose workloads have all active energy
	cfg.Zones = []power.Kind{power.Package, power.DRAM}
	cfg.Series.Processes.Max, cfg.Series.Processes.MinEnergy, cfg.Series.Containers.Max = 6, 100, 8
	require.NoError(t, cfg.Validate())
	receiver, err := energyreceiver.Embed(cfg, energyreceiver.EmbeddedOptions{Logger: zap.NewNop()})
	require.NoError(t, err)
	require.NoError(t, receiver.Start(ctx))
	defer func() { require.NoError(t, receiver.Shutdown(ctx)) }()

	began := time.Now()
	totals := &ended{last: map[string]int64{}}
	for elapsed := time.Duration(0); elapsed < 24*time.Hour; elapsed += interval {
		time.Sleep(interval)
		load := 0.1 + 0.8*max(0, math.Sin(2*math.Pi*elapsed.Hours()/24)) // in the morning
		machine.pass(interval, load)
		require.NoError(t, machine.host.Render())
		md, err := receiver.Collect(ctx)
		require.NoError(t, err)
		for _, part := range parts(md, random) {
			for range 1 + random.IntN(2) { // some come again
				again := pmetric.NewMetrics()
				part.CopyTo(again)
				again, err = p.process(ctx, again)
				require.NoError(t, err)
				totals.observe(again, 1e6)
			}
		}
	}
	assert.Zero(t, p.accounts.Missed)
	mean, _ := intensity.Mean(began, time.Now())
	for _, zone := range []string{"energy.zone:package", "energy.zone:dram"} {
		active := []string{zone, "energy.state:active"}
		energy, _ := totals.sum("system.energy", active...)
		attributed, _ := totals.sum("process.energy", zone)
		unattributed, _ := totals.sum("system.unattributed.energy", zone)
		require.Equal(t, energy, attributed+unattributed, "the receiver's own sum")
		emissions, _ := totals.sum("system.emissions", active...)
		used, n := totals.sum("process.emissions", zone)
		rest, m := totals.sum("system.unattributed.emissions", zone)
		t.Logf("%s: node %d µg, %d + %d series %d µg", zone, emissions, n, m, used+rest)
		assert.LessOrEqual(t, used+rest, emissions)
		assert.Greater(t, used+rest, emissions-n-m, "each series is off by less than one µg")
		assert.Greater(t, n, int64(100))
		naive := float64(energy) * float64(mean.Rate) / 3.6e12 * p.cfg.PUE
		t.Logf("%s: energy times the mean intensity is off by %+.1f %%", zone, 100*(naive/float64(emissions)-1))
		assert.Greater(t, math.Abs(naive/float64(emissions)-1), 0.02)
	}
}
