// SPDX-License-Identifier: Apache-2.0

package energyprofile

import (
	"context"
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/consumer/consumertest"
	"go.opentelemetry.io/collector/pdata/pprofile"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.opentelemetry.io/otel/sdk/metric/metricdata/metricdatatest"

	"github.com/energyreceiver/energyreceiver/feed"
	"github.com/energyreceiver/energyreceiver/internal/identity"
	"github.com/energyreceiver/energyreceiver/internal/profiles"
	"github.com/energyreceiver/energyreceiver/processor/energyprofile/internal/metadatatest"
)

var boot = time.Unix(1_000_000, 0)

func at(ms int) time.Time { return boot.Add(time.Hour + time.Duration(ms)*time.Millisecond) }

func ns(ms int) uint64 { return uint64(at(ms).UnixNano()) }

// fixture is a started processor with the profiles that it sends.
type fixture struct {
	testing.TB
	*energyProfile
	sink   *consumertest.ProfilesSink
	meters *componenttest.Telemetry
}

func start(t testing.TB, cfg *Config) *fixture {
	t.Helper()
	f := &fixture{TB: t, sink: new(consumertest.ProfilesSink), meters: componenttest.NewTelemetry()}
	t.Cleanup(func() { require.NoError(t, f.meters.Shutdown(context.Background())) })
	cfg.Receiver = component.NewIDWithName(component.MustNewType("energy"), fmt.Sprintf("%p", f))
	var err error
	f.energyProfile, err = newProcessor(cfg, metadatatest.NewSettings(f.meters), f.sink)
	require.NoError(t, err)
	require.NoError(t, f.Start(context.Background(), nil))
	return f
}

// publish hands out a window as the receiver does.
func (f *fixture) publish(w *feed.Window) {
	f.feed.Begin()
	f.feed.Publish(w)
}

func (f *fixture) consume(b *samples) { f.consumeAs(context.Background(), b) }

func (f *fixture) consumeAs(ctx context.Context, b *samples) {
	f.Helper()
	require.NoError(f, f.ConsumeProfiles(ctx, b.Profiles))
}

// end shuts the processor down, and returns the energy that was sent.
func (f *fixture) end() sums {
	f.Helper()
	require.NoError(f, f.Shutdown(context.Background()))
	return sumsOf(f, f.sink)
}

// checkDrops compares the counts of dropped samples.
func (f *fixture) checkDrops(want map[string]int64) {
	f.Helper()
	var points []metricdata.DataPoint[int64]
	for reason, n := range want {
		points = append(points, metricdata.DataPoint[int64]{
			Value: n, Attributes: attribute.NewSet(f.telemetry.id, attribute.String("drop.reason", reason)),
		})
	}
	metadatatest.AssertEqualProcessorEnergyprofileDroppedSamples(f.TB.(*testing.T), f.meters, points, metricdatatest.IgnoreTimestamp())
}

// windowOf returns a window in which process 1 used all CPU time and energy.
func windowOf(from, until int, energy uint64) *feed.Window {
	return &feed.Window{
		Start: at(from), End: at(until), Attributed: at(until), Boot: boot,
		Kinds: []feed.Kind{{Zone: "package", Method: "modeled"}}, Active: []uint64{energy}, Idle: []uint64{0}, Unattributed: []uint64{0},
		Processes: []feed.Process{{
			PID: 1, Start: time.Minute, Executable: "a", Path: "/bin/a", ContainerID: "c",
			CPU: time.Duration(until-from) * time.Millisecond, Energy: []uint64{energy},
		}},
	}
}

// samples are CPU profiles as the eBPF profiler sends them. Each call of add makes another stack.
type samples struct {
	pprofile.Profiles
	stacks int32
}

func newSamples() *samples {
	return &samples{Profiles: newFrames(time.Time{}, time.Time{}, "").profiles}
}

// sampled has one sample of a process.
func sampled(pid int32, times ...uint64) *samples {
	s := newSamples()
	s.add(pid, times...)
	return s
}

// add adds a sample of a process, and returns its stack.
func (s *samples) add(pid int32, times ...uint64) int32 {
	s.Dictionary().StackTable().AppendEmpty()
	s.stacks++
	rp := s.ResourceProfiles().AppendEmpty()
	if pid > 0 {
		rp.Resource().Attributes().PutInt("process.pid", int64(pid))
	}
	of := rp.ScopeProfiles().AppendEmpty().Profiles().AppendEmpty()
	of.SampleType().SetTypeStrindex(text(s.Dictionary(), "samples"))
	of.PeriodType().SetTypeStrindex(text(s.Dictionary(), "cpu"))
	next := of.Samples().AppendEmpty()
	next.SetStackIndex(s.stacks)
	next.TimestampsUnixNano().FromRaw(times)
	return s.stacks
}

// count adds a sample that has a count instead of times, and returns its stack.
func (s *samples) count(pid int32, n int64) int32 {
	stack := s.add(pid)
	s.last().Values().FromRaw([]int64{n})
	return stack
}

// on sets the CPU of the sample that was added last.
func (s *samples) on(cpu int64) {
	a := s.Dictionary().AttributeTable().AppendEmpty()
	a.SetKeyStrindex(text(s.Dictionary(), "cpu.logical_number"))
	a.Value().SetInt(cpu)
	s.last().AttributeIndices().Append(int32(s.Dictionary().AttributeTable().Len() - 1))
}

// resource returns the resource that was added last, profile its profile and last its sample.
func (s *samples) resource() pprofile.ResourceProfiles {
	return s.ResourceProfiles().At(s.ResourceProfiles().Len() - 1)
}
func (s *samples) profile() pprofile.Profile {
	return s.resource().ScopeProfiles().At(0).Profiles().At(0)
}
func (s *samples) last() pprofile.Sample { return s.profile().Samples().At(0) }

// isOffCPU makes the profile that was added last one of time off the CPU.
func (s *samples) isOffCPU() {
	s.profile().SampleType().SetTypeStrindex(text(s.Dictionary(), "off_cpu"))
}

// sums is the energy of what was sent, in µJ.
type sums struct {
	all       uint64
	byProcess map[string]uint64
	byStack   map[int32]uint64  // of batches
	byFrame   map[string]uint64 // [idle] and the like
}

func processName(k key) string {
	return fmt.Sprint(k.pid, " ", identity.CreatedAt(boot.Add(k.start)))
}

func sumsOf(t testing.TB, sink *consumertest.ProfilesSink) sums {
	got := sums{byProcess: map[string]uint64{}, byStack: map[int32]uint64{}, byFrame: map[string]uint64{}}
	for i, pd := range sink.AllProfiles() {
		d, before := profiles.DictionaryOf(pd), got.all
		for _, rp := range pd.ResourceProfiles().All() {
			name := ""
			if pid, ok := rp.Resource().Attributes().Get("process.pid"); ok {
				created, _ := rp.Resource().Attributes().Get("process.creation.time")
				name = fmt.Sprint(pid.Int(), " ", created.Str())
			}
			of := rp.ScopeProfiles().At(0).Profiles().At(0)
			require.Equal(t, "energy microjoules", d.Text(of.SampleType().TypeStrindex())+" "+d.Text(of.SampleType().UnitStrindex()))
			for _, s := range of.Samples().All() {
				require.Equal(t, 1, s.Values().Len())
				require.Zero(t, s.TimestampsUnixNano().Len())
				value := uint64(s.Values().At(0))
				got.all += value
				got.byProcess[name] += value
				if frame := frameOf(d, s); frame != "" {
					got.byFrame[frame] += value
				} else {
					got.byStack[s.StackIndex()] += value
				}
			}
		}
		energy, ok := feed.EnergyOf(sink.Contexts()[i])
		require.True(t, ok)
		require.Equal(t, got.all-before, energy, "the energy of the batch according to its context")
	}
	return got
}

// frameOf returns the name of the only frame of a sample, none for a sample of a test's batch.
func frameOf(d profiles.Dictionary, s pprofile.Sample) (name string) {
	for location := range d.Stack(s) {
		name = d.Text(d.Function(location.Lines().At(0).FunctionIndex()).NameStrindex())
	}
	return name
}

// heap returns the bytes of all objects that are in use.
func heap() int {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc)
}
