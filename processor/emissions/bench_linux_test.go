// SPDX-License-Identifier: Apache-2.0

package emissions

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/processor/processortest"
	"go.uber.org/zap"

	"github.com/energyreceiver/energyreceiver/internal/power"
	"github.com/energyreceiver/energyreceiver/internal/test/allocs"
	"github.com/energyreceiver/energyreceiver/internal/test/hostsim"
	"github.com/energyreceiver/energyreceiver/internal/usage/cpu"
	"github.com/energyreceiver/energyreceiver/processor/emissions/internal/account"
	"github.com/energyreceiver/energyreceiver/processor/emissions/internal/metadata"
	energyreceiver "github.com/energyreceiver/energyreceiver/receiver"
)

// collections makes collections of the receiver on a machine with some processes.
type collections struct {
	first pmetric.Metrics
	n     int
}

func newCollections(t testing.TB, processes int) *collections {
	host := hostsim.New(t.TempDir())
	host.Booted = time.Now().Add(-host.Uptime)
	host.CPUs = 64
	host.Zones["intel-rapl:0"] = &hostsim.Zone{Name: "package-0", Max: 262_143_328_850}
	used := map[int]int64{}
	for pid := 100; pid < 100+processes; pid++ {
		host.Processes[pid] = &hostsim.Process{
			Parent: 1, Comm: "app", Exe: "/usr/bin/app", Start: int64(pid), Cgroup: fmt.Sprintf("0::/system.slice/docker-%064x.scope", pid/10),
		}
		used[pid] = 10
	}
	require.NoError(t, host.Render())
	cfg := energyreceiver.DefaultConfig()
	cfg.RootPath, cfg.Meters.Use, cfg.CPUTime = host.Root(), []string{"powercap"}, cpu.KindProcfs
	cfg.Zones = []power.Kind{power.Package}
	cfg.Series.Processes = energyreceiver.ProcessSeriesConfig{GroupBy: energyreceiver.GroupByPID}
	cfg.Metrics.ContainerEnergy.Enabled, cfg.Metrics.ContainerPower.Enabled = false, false
	receiver, err := energyreceiver.Embed(cfg, energyreceiver.EmbeddedOptions{Logger: zap.NewNop()})
	require.NoError(t, err)
	ctx := context.Background()
	require.NoError(t, receiver.Start(ctx))
	host.Run(10*time.Second, used)
	host.Zones["intel-rapl:0"].Energy += 1_000_000_000
	require.NoError(t, host.Render())
	md, err := receiver.Collect(ctx)
	require.NoError(t, err)
	require.NoError(t, receiver.Shutdown(ctx))
	require.Greater(t, md.ResourceMetrics().Len(), processes)
	return &collections{first: md}
}

// next returns the next collection: ten seconds later, with as much energy for each again.
func (c *collections) next() pmetric.Metrics {
	md := pmetric.NewMetrics()
	c.first.CopyTo(md)
	for _, rm := range md.ResourceMetrics().All() {
		for _, m := range rm.ScopeMetrics().At(0).Metrics().All() {
			if m.Type() != pmetric.MetricTypeSum {
				continue
			}
			for _, p := range m.Sum().DataPoints().All() {
				p.SetTimestamp(p.Timestamp() + pcommon.Timestamp(c.n)*pcommon.Timestamp(10*time.Second))
				p.SetDoubleValue(p.DoubleValue() * float64(1+c.n))
			}
		}
	}
	c.n++
	return md
}

func startedProcessor(t testing.TB, edit ...func(*Config)) *emissionsProcessor {
	cfg := createDefaultConfig().(*Config)
	for _, f := range edit {
		f(cfg)
	}
	require.NoError(t, cfg.Validate())
	p, err := newEmissionsProcessor(cfg, processortest.NewNopSettings(metadata.Type))
	require.NoError(t, err)
	require.NoError(t, p.start(context.Background(), componenttest.NewNopHost()))
	t.Cleanup(func() { require.NoError(t, p.shutdown(context.Background())) })
	return p
}

// appendOnly appends the points that the processor appends, and does nothing else: what pdata itself costs.
func (p *emissionsProcessor) appendOnly(md pmetric.Metrics, s *account.Series) {
	for _, rm := range md.ResourceMetrics().All() {
		metrics := rm.ScopeMetrics().At(0).Metrics()
		n := metrics.Len()
		metrics.EnsureCapacity(n + 1)
		for i := range n {
			if m := metrics.At(i); isEnergy(m) {
				out := newEmissions(metrics, "process.emissions", m.Sum().DataPoints().Len())
				total, start, _ := s.Total()
				for _, point := range m.Sum().DataPoints().All() {
					write(out, point, p.labels, total, start)
				}
			}
		}
	}
}

// someSeries returns a series that has emissions.
func someSeries(p *emissionsProcessor) *account.Series {
	s, _ := p.accounts.Observe(&account.Point{Series: 1, Origin: 1, Start: uint64(time.Now().UnixNano()), At: uint64(time.Now().Add(time.Hour).UnixNano())})
	return s
}

// BenchmarkBatch measures a collection with 2,000 processes. floor is the cost of appending the
// same points with pdata alone.
func BenchmarkBatch(b *testing.B) {
	collections := newCollections(b, 2000)
	run := func(name string, batch func(p *emissionsProcessor, s *account.Series, md pmetric.Metrics)) {
		b.Run(name, func(b *testing.B) {
			p := startedProcessor(b, withIntensity)
			s := someSeries(p)
			batch(p, s, collections.next())
			best := time.Hour
			b.ReportAllocs()
			for b.Loop() {
				b.StopTimer()
				md := collections.next()
				b.StartTimer()
				began := time.Now()
				batch(p, s, md)
				best = min(best, time.Since(began))
			}
			b.ReportMetric(float64(best.Microseconds()), "best-µs/op")
		})
	}
	run("processor", func(p *emissionsProcessor, _ *account.Series, md pmetric.Metrics) {
		_, err := p.process(context.Background(), md)
		require.NoError(b, err)
	})
	run("floor", func(p *emissionsProcessor, s *account.Series, md pmetric.Metrics) { p.appendOnly(md, s) })
}

func TestABatchAllocatesWhatItAppends(t *testing.T) {
	collections := newCollections(t, 200)
	p := startedProcessor(t, withIntensity)
	s := someSeries(p)
	step := func(batch func(md pmetric.Metrics)) uint64 {
		const steps = 5
		var made []pmetric.Metrics
		for range 4 * steps {
			made = append(made, collections.next())
		}
		i := 0
		return allocs.Count(steps, func() { batch(made[i]); i++ }) / steps
	}
	process := func(md pmetric.Metrics) { _, _ = p.process(context.Background(), md) }
	process(collections.next())
	floor := step(func(md pmetric.Metrics) { p.appendOnly(md, s) })
	assert.LessOrEqual(t, step(process), floor+60, "the gauges and little else")
	assert.Greater(t, floor, uint64(200*11))
}
