// SPDX-License-Identifier: Apache-2.0

package energyprofile

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/consumer/consumertest"
	"go.opentelemetry.io/collector/pdata/pprofile"
	"go.opentelemetry.io/collector/processor/processortest"

	"github.com/energyreceiver/energyreceiver/feed"
	"github.com/energyreceiver/energyreceiver/internal/identity"
	"github.com/energyreceiver/energyreceiver/internal/profiles"
	"github.com/energyreceiver/energyreceiver/processor/energyprofile/internal/metadata"
)

// samples are CPU profiles as the eBPF profiler sends them. Each call of add makes another stack.
type samples struct {
	pprofile.Profiles
	stacks int32
}

func newSamples() *samples {
	return &samples{Profiles: newFrames(time.Time{}, time.Time{}, "").profiles}
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

// on sets the CPU of the sample that was added last.
func (s *samples) on(cpu int64) {
	a := s.Dictionary().AttributeTable().AppendEmpty()
	a.SetKeyStrindex(text(s.Dictionary(), "cpu.logical_number"))
	a.Value().SetInt(cpu)
	s.last().AttributeIndices().Append(int32(s.Dictionary().AttributeTable().Len() - 1))
}

// last returns the sample that was added last.
func (s *samples) last() pprofile.Sample {
	return s.ResourceProfiles().At(s.ResourceProfiles().Len() - 1).ScopeProfiles().At(0).Profiles().At(0).Samples().At(0)
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

func sumsOf(t *testing.T, sink *consumertest.ProfilesSink) sums {
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
			require.Equal(t, "energy", d.Text(of.SampleType().TypeStrindex()))
			require.Equal(t, "microjoules", d.Text(of.SampleType().UnitStrindex()))
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
func frameOf(d profiles.Dictionary, s pprofile.Sample) string {
	locations := d.StackTable().At(int(s.StackIndex())).LocationIndices()
	if locations.Len() == 0 {
		return ""
	}
	line := d.LocationTable().At(int(locations.At(0))).Lines().At(0)
	return d.Text(d.FunctionTable().At(int(line.FunctionIndex())).NameStrindex())
}

func at(ms int) time.Time { return boot.Add(time.Hour + time.Duration(ms)*time.Millisecond) }

func ns(ms int) uint64 { return uint64(at(ms).UnixNano()) }

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

// finish consumes a batch and shuts the processor down.
func finish(t *testing.T, p *energyProfile, batch pprofile.Profiles) {
	t.Helper()
	require.NoError(t, p.ConsumeProfiles(context.Background(), batch))
	require.NoError(t, p.Shutdown(context.Background()))
}

func TestASampleHasThePriceOfItsWindow(t *testing.T) {
	sink := new(consumertest.ProfilesSink)
	p, f := start(t, &Config{}, sink)
	b := newSamples()
	var times [2][]uint64
	for i := range 10 { // stack 2 runs in odd windows, where a CPU second costs twice as much
		publish(f, windowOf(100*i, 100*i+100, uint64(300_000*(1+i%2))))
		times[i%2] = append(times[i%2], ns(100*i+25), ns(100*i+75))
	}
	cheap, dear := b.add(1, times[0]...), b.add(1, times[1]...)
	finish(t, p, b.Profiles)
	assert.Equal(t, map[int32]uint64{cheap: 1_500_000, dear: 3_000_000}, sumsOf(t, sink).byStack)
}

func TestASampleHasThePriceOfItsPackage(t *testing.T) {
	sink := new(consumertest.ProfilesSink)
	p, f := start(t, &Config{}, sink)
	w := windowOf(0, 1000, 9_000_000) // 3 J of no package, 4 J in 500 ms on the first, 2 J in 500 ms on the second
	w.Packages = []int32{0, 1, 0, 1}
	for _, energy := range []uint64{4_000_000, 2_000_000} {
		w.Processes[0].Packages = append(w.Processes[0].Packages, feed.Part{CPU: 500 * time.Millisecond, Energy: []uint64{energy}})
	}
	publish(f, w)
	b := newSamples()
	var stacks []int32
	for cpu := range int64(5) { // the receiver does not know the last
		stacks = append(stacks, b.add(1, ns(100), ns(200)))
		b.on(cpu)
	}
	finish(t, p, b.Profiles)
	got := sumsOf(t, sink)
	dear, cheap, unknown := got.byStack[stacks[0]], got.byStack[stacks[1]], got.byStack[stacks[4]]
	assert.EqualValues(t, 9_000_000, got.all)
	assert.InDelta(t, 9_000_000*11./45, dear, 1) // 3 + 8, 3 + 4 and 9 J per second of CPU time
	assert.InDelta(t, 9_000_000*7./45, cheap, 1)
	assert.InDelta(t, 9_000_000*9./45, unknown, 1)
	assert.InDelta(t, dear, got.byStack[stacks[2]], 1)
	assert.InDelta(t, cheap, got.byStack[stacks[3]], 1)
}

func TestEqualSamplesOnAPackageOfHalfThePriceHaveHalfTheEnergy(t *testing.T) {
	sink := new(consumertest.ProfilesSink)
	p, f := start(t, &Config{}, sink)
	w := windowOf(0, 1000, 3_000_000)
	w.Packages = []int32{0, 1}
	w.Processes[0].Packages = []feed.Part{
		{CPU: 500 * time.Millisecond, Energy: []uint64{2_000_000}}, {CPU: 500 * time.Millisecond, Energy: []uint64{1_000_000}},
	}
	publish(f, w)
	b := newSamples()
	dear := b.add(1, ns(100), ns(200))
	b.on(0)
	cheap := b.add(1, ns(300), ns(400))
	b.on(1)
	finish(t, p, b.Profiles)
	assert.Equal(t, map[int32]uint64{dear: 2_000_000, cheap: 1_000_000}, sumsOf(t, sink).byStack)
}

// The samples of f and g are taken at 20 Hz, at random times of windows in which only f, or only g, ran. A CPU second
// costs twice as much while g runs.
func TestEnergyFollowsThePriceThoughCountsAreEqual(t *testing.T) {
	r := rand.New(rand.NewPCG(36, 36))
	sink := new(consumertest.ProfilesSink)
	p, f := start(t, &Config{}, sink)
	const seconds, hz = 100, 20
	var times [2][]uint64
	for i := range 10 * seconds {
		publish(f, windowOf(100*i, 100*i+100, uint64(300_000*(1+i%2))))
	}
	for range seconds * hz {
		ms := r.IntN(1000 * seconds)
		times[ms/100%2] = append(times[ms/100%2], ns(ms)+1)
	}
	b := newSamples()
	cheap, dear := b.add(1, times[0]...), b.add(1, times[1]...)
	finish(t, p, b.Profiles)
	got := sumsOf(t, sink)
	n, share := float64(seconds*hz), float64(got.byStack[dear])/float64(got.all)
	// A share s of samples is a share 2s/(1+s) of energy, whose derivative is 8/9 at one half.
	assert.InDelta(t, 2./3, share, 3*8./9*math.Sqrt(0.25/n))
	assert.InDelta(t, 0.5, float64(len(times[1]))/n, 3*math.Sqrt(0.25/n))
	assert.EqualValues(t, 450_000*10*seconds, got.byStack[cheap]+got.byStack[dear])
}

func TestEnergyOfASlowMeterIsOfTheTimeThatItCovers(t *testing.T) {
	sink := new(consumertest.ProfilesSink)
	p, f := start(t, &Config{}, sink)
	for i := range 20 { // the meter reports every second: 1 J, then 3 J
		w := windowOf(100*i, 100*i+100, 0)
		w.Attributed = at(100 * (i + 1) / 1000 * 1000)
		if reported := (i+1)%10 == 0; reported {
			w.Active[0] = uint64(1_000_000 + 2_000_000*(i/10))
			w.Processes[0].Energy[0] = w.Active[0]
		}
		publish(f, w)
	}
	b := newSamples()
	first, second := b.add(1, ns(50), ns(450)), b.add(1, ns(1050), ns(1650))
	finish(t, p, b.Profiles)
	got := sumsOf(t, sink).byStack
	assert.InDelta(t, 1_000_000, got[first], 1)
	assert.InDelta(t, 3_000_000, got[second], 1)
}

func TestALateSampleSharesTheEnergyOfItsPeriod(t *testing.T) {
	sink := new(consumertest.ProfilesSink)
	p, f := start(t, &Config{}, sink)
	publish(f, windowOf(0, 1000, 1_000_000))
	b := newSamples()
	b.add(1, ns(500))
	require.NoError(t, p.ConsumeProfiles(context.Background(), b.Profiles))
	publish(f, windowOf(1000, 2000, 5_000_000))
	late := newSamples()
	stack := late.add(1, ns(900), ns(1500))
	finish(t, p, late.Profiles)
	assert.Equal(t, map[int32]uint64{stack: 500_000 + 500_000 + 5_000_000}, sumsOf(t, sink).byStack, "both have stack 1")
}

func TestEnergyWithoutSamplesIsAFrame(t *testing.T) {
	sink := new(consumertest.ProfilesSink)
	cfg := createDefaultConfig().(*Config)
	cfg.Idle, cfg.Unattributed, cfg.Wait = true, true, 0
	p, f := start(t, cfg, sink)
	w := windowOf(0, 1000, 1_000_000)
	w.Kinds = append(w.Kinds, feed.Kind{Zone: "gpu", Method: "measured"}, feed.Kind{Zone: "core", Method: "measured"})
	w.Idle, w.Active, w.Unattributed = []uint64{30, 4, 99}, []uint64{1_000_900, 500, 99}, []uint64{200, 100, 99}
	w.Processes[0].Energy = []uint64{1_000_000, 400, 99}
	publish(f, w)
	finish(t, p, newSamples().Profiles)
	got := sumsOf(t, sink)
	assert.Equal(t, map[string]uint64{
		frameNotSampled: 1_000_000 + 700, frameGPU: 400, frameIdle: 34, frameUnattributed: 300,
	}, got.byFrame, "700 µJ are of short-lived processes; core is in package")
	assert.EqualValues(t, 1_000_400, got.byProcess[processName(key{1, time.Minute})])
	attributes := sink.AllProfiles()[0].ResourceProfiles().At(0).Resource().Attributes().AsRaw()
	assert.Equal(t, map[string]any{
		"process.pid": int64(1), "process.creation.time": "1970-01-12T13:47:40.00Z", "process.executable.name": "a",
		"process.executable.path": "/bin/a", "container.id": "c", "service.name": "a",
	}, attributes)
}

func TestSamplesOfUnknownProcessesShareTheEnergyOfShortLivedOnes(t *testing.T) {
	sink := new(consumertest.ProfilesSink)
	p, f := start(t, &Config{}, sink)
	w := windowOf(0, 1000, 1_000_000)
	w.Active[0] += 600
	publish(f, w)
	b := newSamples()
	known, twice, once := b.add(1, ns(10)), b.add(2, ns(20), ns(30)), b.add(0, ns(40))
	finish(t, p, b.Profiles)
	got := sumsOf(t, sink)
	assert.Equal(t, map[int32]uint64{known: 1_000_000, twice: 400, once: 200}, got.byStack)
	assert.EqualValues(t, 600, got.byProcess[""], "a resource without process.pid")
}

func TestAReusedPIDIsTheProcessThatExistedAtTheTimeOfTheSample(t *testing.T) {
	sink := new(consumertest.ProfilesSink)
	p, f := start(t, &Config{}, sink)
	publish(f, windowOf(0, 1000, 1_000_000))
	w := windowOf(1000, 2000, 2_000_000)
	w.Processes[0].Start = at(1200).Sub(boot)
	publish(f, w)
	b := newSamples()
	old, young := b.add(1, ns(500)), b.add(1, ns(1500))
	finish(t, p, b.Profiles)
	assert.Equal(t, map[int32]uint64{old: 1_000_000, young: 2_000_000}, sumsOf(t, sink).byStack)
}

func TestKernelThreadsOfAKindAreOneService(t *testing.T) {
	sink := new(consumertest.ProfilesSink)
	p, f := start(t, &Config{ServiceName: true}, sink)
	w := windowOf(0, 1000, 7)
	w.Active[0] = 2 * 7
	w.Processes[0].Executable, w.Processes[0].Path = "kworker/7:1H", ""
	w.Processes = append(w.Processes, w.Processes[0])
	w.Processes[1].PID, w.Processes[1].Executable = 2, "kworker/u256:0"
	publish(f, w)
	b := newSamples()
	b.add(1, ns(500)) // process 2 has no sample
	finish(t, p, b.Profiles)
	names := 0
	for _, pd := range sink.AllProfiles() {
		for _, rp := range pd.ResourceProfiles().All() {
			name, _ := rp.Resource().Attributes().Get("service.name")
			assert.Equal(t, "kworker", name.Str())
			names++
		}
	}
	assert.Equal(t, 2, names)
	assert.EqualValues(t, 2*7, sumsOf(t, sink).all)
}

func TestOtherProfilesPassUnchanged(t *testing.T) {
	sink := new(consumertest.ProfilesSink)
	p, f := start(t, &Config{}, sink)
	publish(f, windowOf(0, 1000, 1_000_000))
	b := newSamples()
	b.add(1, ns(500))
	b.add(1, ns(600))
	offCPU := b.ResourceProfiles().At(1).ScopeProfiles().At(0).Profiles().At(0)
	offCPU.SampleType().SetTypeStrindex(text(b.Dictionary(), "off_cpu"))
	require.NoError(t, p.ConsumeProfiles(context.Background(), b.Profiles))
	require.Len(t, sink.AllProfiles(), 1, "at once")
	of := sink.AllProfiles()[0].ResourceProfiles()
	require.Equal(t, 1, of.Len())
	s := of.At(0).ScopeProfiles().At(0).Profiles().At(0).Samples().At(0)
	assert.Equal(t, []uint64{ns(600)}, s.TimestampsUnixNano().AsRaw())
	assert.Zero(t, s.Values().Len())
	assert.Less(t, int(s.StackIndex()), sink.AllProfiles()[0].Dictionary().StackTable().Len())
	sink.Reset()
	require.NoError(t, p.Shutdown(context.Background()))
	assert.Equal(t, map[int32]uint64{1: 1_000_000}, sumsOf(t, sink).byStack)
}

func TestBadSamplesAreDroppedAndCountedAndTheSumsHold(t *testing.T) {
	sink := new(consumertest.ProfilesSink)
	p, f := start(t, &Config{}, sink)
	check := countDrops(t, p)
	p.now = func() time.Time { return at(1000) }
	publish(f, windowOf(0, 1000, 1<<40))
	cpus := int64(runtime.NumCPU())
	b := newSamples()
	good := b.add(1, ns(500))
	b.add(1, ns(1000+61_000), math.MaxUint64) // in the future
	b.add(1)
	counted := b.ResourceProfiles().At(2).ScopeProfiles().At(0).Profiles().At(0)
	counted.SetTime(0)
	counted.Samples().At(0).Values().FromRaw([]int64{-5})
	broken := b.ResourceProfiles().AppendEmpty().ScopeProfiles().AppendEmpty().Profiles().AppendEmpty()
	broken.SampleType().SetTypeStrindex(1 << 30)
	broken.PeriodType().SetTypeStrindex(-1)
	broken.Samples().AppendEmpty().SetStackIndex(1 << 30)
	for _, breakIt := range []func(pprofile.Sample){
		func(s pprofile.Sample) { s.SetStackIndex(1 << 30) },
		func(s pprofile.Sample) { s.SetStackIndex(-1) },
		func(s pprofile.Sample) { s.SetLinkIndex(1 << 30) },
		func(s pprofile.Sample) { s.AttributeIndices().FromRaw([]int32{-1}) },
	} {
		b.add(1, ns(500))
		breakIt(b.last())
	}
	b.add(2, make([]uint64, 1<<20)...) // more than a process can have in the time since the start
	require.NoError(t, p.ConsumeProfiles(context.Background(), b.Profiles))
	sink.Reset() // of the profile with unknown types
	require.NoError(t, p.Shutdown(context.Background()))
	got := sumsOf(t, sink)
	assert.Equal(t, uint64(1<<40), got.all)
	assert.Equal(t, uint64(1<<40), got.byStack[good])
	check(map[string]int64{
		dropFuture: 2, dropValue: 1, dropMalformed: 4, dropLimit: 1<<20 - int64(maxLate/minPeriod)*cpus,
	})
}

func TestAProcessHasNoMoreSamplesThanItsCPUTimeAllows(t *testing.T) {
	drop := dropped{}
	b := newSamples()
	b.add(1, ns(1), ns(2), ns(3))
	b.add(1, ns(4))
	b.add(2, ns(1))
	b.add(3)
	b.last().Values().FromRaw([]int64{math.MaxInt32})
	for _, rp := range b.ResourceProfiles().All() {
		rp.ScopeProfiles().At(0).Profiles().At(0).SetPeriod(int64(50 * time.Millisecond))
	}
	held, err := newBatch(b.Profiles, &indexer{
		now: at(1000).UnixNano(), cpuTime: 160 * time.Millisecond, byPID: map[int32]uint64{1: 1}, drop: drop,
	})
	require.NoError(t, err)
	assert.Equal(t, 3, held.times)
	assert.Len(t, held.resources, 2, "of the processes 1 and 2")
	assert.Len(t, held.resources[0].samples[0].times, 2)
	assert.Equal(t, dropped{dropLimit: 2 + math.MaxInt32}, drop)
}

func TestAProfileWithValuesInsteadOfTimesIsDividedByCount(t *testing.T) {
	sink := new(consumertest.ProfilesSink)
	p, f := start(t, &Config{}, sink)
	publish(f, windowOf(0, 1000, 1_000_000))
	b := newSamples()
	three, one := b.add(1), b.add(1)
	for i, n := range []int64{3, 1} {
		of := b.ResourceProfiles().At(i).ScopeProfiles().At(0).Profiles().At(0)
		of.SetTime(0)
		of.Samples().At(0).Values().FromRaw([]int64{n})
	}
	finish(t, p, b.Profiles)
	assert.Equal(t, map[int32]uint64{three: 750_000, one: 250_000}, sumsOf(t, sink).byStack)
}

func TestWithoutAReceiverSamplesAreDroppedAndTheReasonIsReported(t *testing.T) {
	sink := new(consumertest.ProfilesSink)
	p, _ := start(t, &Config{}, sink)
	b := newSamples()
	b.add(1, ns(1))
	finish(t, p, b.Profiles)
	assert.Empty(t, sink.AllProfiles())
	assert.ErrorContains(t, p.conditions.Err("receiver"), "is not an energy receiver in a pipeline of this collector")
}

func TestWindowsWithoutProfilesKeepTheirEnergyAndNoMemory(t *testing.T) {
	sink := new(consumertest.ProfilesSink)
	p, f := start(t, &Config{}, sink)
	for i := range 3 * maxWindows {
		publish(f, windowOf(1000*i, 1000*i+1000, 7))
	}
	assert.Len(t, p.intake.windows.pending, maxWindows)
	require.NoError(t, p.Shutdown(context.Background()))
	assert.EqualValues(t, 3*maxWindows*7, sumsOf(t, sink).byFrame[frameNotSampled])
}

func TestAZoneOfTheWholeMachineStandsInForPackages(t *testing.T) {
	sink := new(consumertest.ProfilesSink)
	p, f := start(t, &Config{}, sink)
	w := windowOf(0, 1000, 5000)
	w.Kinds = []feed.Kind{{Zone: "package", Method: "measured"}, {Zone: "platform", Method: "measured"}}
	w.Active, w.Idle, w.Unattributed = []uint64{0, 5000}, []uint64{0, 3}, []uint64{0, 0}
	w.Processes[0].Energy = []uint64{0, 5000}
	publish(f, w)
	b := newSamples()
	stack := b.add(1, ns(500))
	finish(t, p, b.Profiles)
	assert.Equal(t, map[int32]uint64{stack: 5000}, sumsOf(t, sink).byStack)
}

func TestShutdownSendsAllEnergyUntilThen(t *testing.T) {
	sink := new(consumertest.ProfilesSink)
	p, f := start(t, &Config{}, sink)
	publish(f, windowOf(0, 1000, 7))
	f.Serve(func(context.Context) { publish(f, windowOf(1000, 1500, 3)) })
	require.NoError(t, p.Shutdown(context.Background()))
	assert.EqualValues(t, 10, sumsOf(t, sink).all)
}

func TestAMeterThatStopsReportingDoesNotHoldProfilesForEver(t *testing.T) {
	sink := new(consumertest.ProfilesSink)
	p, f := start(t, &Config{}, sink)
	now := time.Now()
	p.now = func() time.Time { now = now.Add(5 * time.Second); return now }
	const batches = 24
	for i := range batches {
		w := windowOf(1000*i, 1000*i+1000, 7)
		w.Attributed = at(0)
		publish(f, w)
		b := newSamples()
		b.add(1, ns(1000*i+500))
		require.NoError(t, p.ConsumeProfiles(context.Background(), b.Profiles))
	}
	assert.NotEmpty(t, sink.AllProfiles())
	assert.LessOrEqual(t, len(p.held), batches/2)
	require.NoError(t, p.Shutdown(context.Background()))
	assert.EqualValues(t, batches*7, sumsOf(t, sink).all)
}

func TestAProfilerThatLeavesProcessesOutIsReported(t *testing.T) {
	for _, leavesOut := range []bool{false, true} {
		sink := new(consumertest.ProfilesSink)
		p, f := start(t, createDefaultConfig().(*Config), sink)
		for i := range 60 {
			publish(f, windowOf(5000*i, 5000*i+5000, 7))
			b := newSamples()
			b.add(1+int32(i%2), ns(5000*i+2500)) // at times it samples another process
			if leavesOut {
				b.ResourceProfiles().At(0).Resource().Attributes().PutInt("process.pid", 2)
			}
			require.NoError(t, p.ConsumeProfiles(context.Background(), b.Profiles))
		}
		assert.Equal(t, leavesOut, p.conditions.Err("samples") != nil, p.conditions.Err("samples"))
		require.NoError(t, p.Shutdown(context.Background()))
	}
}

func TestAnErrorOfTheNextConsumerIsReturned(t *testing.T) {
	refused := errors.New("refused")
	p, err := newProcessor(createDefaultConfig().(*Config), processortest.NewNopSettings(metadata.Type), consumertest.NewErr(refused))
	require.NoError(t, err)
	b := newSamples()
	b.add(1, ns(1))
	of := b.ResourceProfiles().At(0).ScopeProfiles().At(0).Profiles().At(0)
	of.SampleType().SetTypeStrindex(0)
	assert.ErrorIs(t, p.ConsumeProfiles(context.Background(), b.Profiles), refused)
}

func TestANegativeWaitIsRefused(t *testing.T) {
	assert.ErrorContains(t, (&Config{Wait: -1}).Validate(), "wait")
}
