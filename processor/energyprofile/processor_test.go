// SPDX-License-Identifier: Apache-2.0

package energyprofile

import (
	"context"
	"errors"
	"math"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/consumer/consumererror"
	"go.opentelemetry.io/collector/consumer/consumertest"
	"go.opentelemetry.io/collector/consumer/xconsumer"
	"go.opentelemetry.io/collector/pdata/pprofile"

	"github.com/energyreceiver/energyreceiver/feed"
)

func TestASampleHasThePriceOfItsWindow(t *testing.T) {
	f := start(t, &Config{})
	var times [2][]uint64
	for i := range 10 { // stack 2 runs in odd windows, where a CPU second costs twice as much
		f.publish(windowOf(100*i, 100*i+100, uint64(300_000*(1+i%2))))
		times[i%2] = append(times[i%2], ns(100*i+25), ns(100*i+75))
	}
	b := newSamples()
	cheap, dear := b.add(1, times[0]...), b.add(1, times[1]...)
	f.consume(b)
	assert.Equal(t, map[int32]uint64{cheap: 1_500_000, dear: 3_000_000}, f.end().byStack)
}

func TestASampleHasThePriceOfItsPackage(t *testing.T) {
	f := start(t, &Config{})
	w := windowOf(0, 1000, 9_000_000) // 3 J of no package, 4 J in 500 ms on the first, 2 J in 500 ms on the second
	w.Packages = []int32{0, 1, 0, 1}
	for _, energy := range []uint64{4_000_000, 2_000_000} {
		w.Processes[0].Packages = append(w.Processes[0].Packages, feed.Part{CPU: 500 * time.Millisecond, Energy: []uint64{energy}})
	}
	f.publish(w)
	b := newSamples()
	var stacks []int32
	for cpu := range int64(5) { // the receiver does not know the last
		stacks = append(stacks, b.add(1, ns(100), ns(200)))
		b.on(cpu)
	}
	f.consume(b)
	got := f.end()
	assert.EqualValues(t, 9_000_000, got.all)
	for i, price := range []float64{11, 7, 11, 7, 9} { // 3 + 8, 3 + 4 and 9 J per second of CPU time
		assert.InDelta(t, 9_000_000*price/45, got.byStack[stacks[i]], 1)
	}
}

func TestEnergyOfASlowMeterIsOfTheTimeThatItCovers(t *testing.T) {
	f := start(t, &Config{})
	for i := range 20 { // the meter reports every second: 1 J, then 3 J
		w := windowOf(100*i, 100*i+100, 0)
		w.Attributed = at(100 * (i + 1) / 1000 * 1000)
		if reported := (i+1)%10 == 0; reported {
			w.Active[0] = uint64(1_000_000 + 2_000_000*(i/10))
			w.Processes[0].Energy[0] = w.Active[0]
		}
		f.publish(w)
	}
	b := newSamples()
	first, second := b.add(1, ns(50), ns(450)), b.add(1, ns(1050), ns(1650))
	f.consume(b)
	got := f.end().byStack
	assert.InDelta(t, 1_000_000, got[first], 1)
	assert.InDelta(t, 3_000_000, got[second], 1)
}

func TestALateSampleSharesTheEnergyOfItsPeriod(t *testing.T) {
	f := start(t, &Config{})
	f.publish(windowOf(0, 1000, 1_000_000))
	f.consume(sampled(1, ns(500)))
	f.publish(windowOf(1000, 2000, 5_000_000))
	f.consume(sampled(1, ns(900), ns(1500)))
	assert.Equal(t, map[int32]uint64{1: 500_000 + 500_000 + 5_000_000}, f.end().byStack, "both have stack 1")
}

func TestEnergyWithoutSamplesIsAFrame(t *testing.T) {
	cfg := createDefaultConfig().(*Config)
	cfg.Idle, cfg.Unattributed, cfg.Wait = true, true, 0
	f := start(t, cfg)
	w := windowOf(0, 1000, 1_000_000)
	w.Kinds = append(w.Kinds, feed.Kind{Zone: "gpu", Method: "measured"}, feed.Kind{Zone: "core", Method: "measured"})
	w.Idle, w.Active, w.Unattributed = []uint64{30, 4, 99}, []uint64{1_000_900, 500, 99}, []uint64{200, 100, 99}
	w.Processes[0].Energy = []uint64{1_000_000, 400, 99}
	f.publish(w)
	f.consume(newSamples())
	got := f.end()
	assert.Equal(t, map[string]uint64{
		frameNotSampled: 1_000_000 + 700, frameGPU: 400, frameIdle: 34, frameUnattributed: 300,
	}, got.byFrame, "700 µJ are of short-lived processes; core is in package")
	assert.EqualValues(t, 1_000_400, got.byProcess[processName(key{1, time.Minute})])
	assert.Equal(t, map[string]any{
		"process.pid": int64(1), "process.creation.time": "1970-01-12T13:47:40.00Z", "process.executable.name": "a",
		"process.executable.path": "/bin/a", "container.id": "c", "service.name": "a",
	}, f.sink.AllProfiles()[0].ResourceProfiles().At(0).Resource().Attributes().AsRaw())
}

func TestSamplesOfUnknownProcessesShareTheEnergyOfShortLivedOnes(t *testing.T) {
	f := start(t, &Config{})
	w := windowOf(0, 1000, 1_000_000)
	w.Active[0] += 600
	f.publish(w)
	b := newSamples()
	known, twice, once := b.add(1, ns(10)), b.add(2, ns(20), ns(30)), b.add(0, ns(40))
	f.consume(b)
	got := f.end()
	assert.Equal(t, map[int32]uint64{known: 1_000_000, twice: 400, once: 200}, got.byStack)
	assert.EqualValues(t, 600, got.byProcess[""], "a resource without process.pid")
}

func TestAReusedPIDIsTheProcessThatExistedAtTheTimeOfTheSample(t *testing.T) {
	f := start(t, &Config{})
	f.publish(windowOf(0, 1000, 1_000_000))
	w := windowOf(1000, 2000, 2_000_000)
	w.Processes[0].Start = at(1200).Sub(boot)
	f.publish(w)
	b := newSamples()
	old, young := b.add(1, ns(500)), b.add(1, ns(1500))
	f.consume(b)
	assert.Equal(t, map[int32]uint64{old: 1_000_000, young: 2_000_000}, f.end().byStack)
}

func TestOtherProfilesPassUnchanged(t *testing.T) {
	f := start(t, &Config{})
	f.publish(windowOf(0, 1000, 1_000_000))
	b := sampled(1, ns(500))
	b.add(1, ns(600))
	b.isOffCPU()
	f.consume(b)
	require.Len(t, f.sink.AllProfiles(), 1, "at once")
	other := &samples{Profiles: f.sink.AllProfiles()[0]}
	require.Equal(t, 1, other.ResourceProfiles().Len())
	assert.Equal(t, []uint64{ns(600)}, other.last().TimestampsUnixNano().AsRaw())
	assert.Zero(t, other.last().Values().Len())
	assert.Less(t, int(other.last().StackIndex()), other.Dictionary().StackTable().Len())
	f.sink.Reset()
	assert.Equal(t, map[int32]uint64{1: 1_000_000}, f.end().byStack)
}

func TestBadSamplesAreDroppedAndCountedAndTheSumsHold(t *testing.T) {
	f := start(t, &Config{})
	f.now = func() time.Time { return at(1000) }
	f.publish(windowOf(0, 1000, 1<<40))
	b := newSamples()
	good := b.add(1, ns(500))
	b.add(1, ns(1000+61_000), math.MaxUint64) // in the future
	b.count(1, -5)
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
	f.consume(b)
	f.sink.Reset() // of the profile with unknown types
	got := f.end()
	assert.Equal(t, uint64(1<<40), got.all)
	assert.Equal(t, uint64(1<<40), got.byStack[good])
	f.checkDrops(map[string]int64{
		dropFuture: 2, dropValue: 1, dropMalformed: 4, dropLimit: 1<<20 - int64(maxLate/minPeriod)*int64(runtime.NumCPU()),
	})
}

func TestAProfileWithValuesInsteadOfTimesIsDividedByCount(t *testing.T) {
	f := start(t, &Config{})
	f.publish(windowOf(0, 1000, 1_000_000))
	b := newSamples()
	three, one := b.count(1, 3), b.count(1, 1)
	f.consume(b)
	assert.Equal(t, map[int32]uint64{three: 750_000, one: 250_000}, f.end().byStack)
}

func TestWithoutAReceiverSamplesAreDroppedAndTheReasonIsReported(t *testing.T) {
	f := start(t, &Config{})
	f.consume(sampled(1, ns(1)))
	f.end()
	assert.Empty(t, f.sink.AllProfiles())
	assert.ErrorContains(t, f.conditions.Err("receiver"), "is not an energy receiver in a pipeline of this collector")
}

func TestAZoneOfTheWholeMachineStandsInForPackages(t *testing.T) {
	f := start(t, &Config{})
	w := windowOf(0, 1000, 5000)
	w.Kinds = []feed.Kind{{Zone: "package", Method: "measured"}, {Zone: "platform", Method: "measured"}}
	w.Active, w.Idle, w.Unattributed = []uint64{0, 5000}, []uint64{0, 3}, []uint64{0, 0}
	w.Processes[0].Energy = []uint64{0, 5000}
	f.publish(w)
	f.consume(sampled(1, ns(500)))
	assert.Equal(t, map[int32]uint64{1: 5000}, f.end().byStack)
}

func TestShutdownSendsAllEnergyUntilThen(t *testing.T) {
	f := start(t, &Config{})
	f.publish(windowOf(0, 1000, 7))
	f.feed.Serve(func(context.Context) { f.publish(windowOf(1000, 1500, 3)) })
	assert.EqualValues(t, 10, f.end().all)
}

func TestAMeterThatStopsReportingDoesNotHoldProfilesForEver(t *testing.T) {
	f := start(t, &Config{})
	now := time.Now()
	f.now = func() time.Time { now = now.Add(5 * time.Second); return now }
	const batches = 24
	for i := range batches {
		w := windowOf(1000*i, 1000*i+1000, 7)
		w.Attributed = at(0)
		f.publish(w)
		f.consume(sampled(1, ns(1000*i+500)))
	}
	assert.NotEmpty(t, f.sink.AllProfiles())
	assert.LessOrEqual(t, len(f.held), batches/2)
	assert.EqualValues(t, batches*7, f.end().all)
}

func TestAProfilerThatLeavesProcessesOutIsReported(t *testing.T) {
	for _, leavesOut := range []bool{false, true} {
		f := start(t, createDefaultConfig().(*Config))
		for i := range 60 {
			f.publish(windowOf(5000*i, 5000*i+5000, 7))
			pid := 1 + int32(i%2) // at times it samples another process
			if leavesOut {
				pid = 2
			}
			f.consume(sampled(pid, ns(5000*i+2500)))
		}
		assert.Equal(t, leavesOut, f.conditions.Err("samples") != nil, f.conditions.Err("samples"))
		f.end()
	}
}

func TestAnErrorOfTheNextConsumerIsReturned(t *testing.T) {
	refused := errors.New("refused")
	f := start(t, &Config{})
	f.next = consumertest.NewErr(refused)
	b := sampled(1, ns(1))
	b.isOffCPU()
	err := f.ConsumeProfiles(context.Background(), b.Profiles)
	assert.ErrorIs(t, err, refused)
	assert.False(t, consumererror.IsPermanent(err), "nothing is held, so a client may send the batch again")

	f.publish(windowOf(0, 1000, 7))
	b = sampled(1, ns(500))
	b.add(1, ns(600))
	b.isOffCPU()
	err = f.ConsumeProfiles(context.Background(), b.Profiles)
	assert.ErrorIs(t, err, refused)
	assert.True(t, consumererror.IsPermanent(err), "a client that sent the batch again would add its samples twice")
	f.next = f.sink
	f.end()
}

// Energy that the next consumer refuses is lost: the caller gets the error, and no later batch contains
// the energy.
func TestEnergyThatIsRefusedIsReturnedAsAnErrorAndNotSentAgain(t *testing.T) {
	refused := errors.New("data refused due to high memory usage")
	f := start(t, &Config{})
	var lost consumertest.ProfilesSink
	full, err := xconsumer.NewProfiles(func(ctx context.Context, pd pprofile.Profiles) error {
		return errors.Join(refused, lost.ConsumeProfiles(ctx, pd))
	})
	require.NoError(t, err)
	const batches = 6
	for i := range batches {
		f.next = f.sink
		if i == 3 {
			f.next = full
		}
		f.publish(windowOf(1000*i, 1000*i+1000, 7))
		err := f.ConsumeProfiles(context.Background(), sampled(1, ns(1000*i+500)).Profiles)
		assert.Equal(t, i == 3, errors.Is(err, refused), "batch %d: %v", i, err)
		assert.Equal(t, i == 3, consumererror.IsPermanent(err), "a batch that is sent again adds its samples twice")
	}
	all := sumsOf(t, &lost).all
	assert.EqualValues(t, 7, all)
	assert.Equal(t, uint64(batches*7), all+f.end().all)
	assert.Empty(t, f.held)
}

func TestANegativeWaitIsRefused(t *testing.T) {
	assert.ErrorContains(t, (&Config{Wait: -1}).Validate(), "wait")
}

// The receiver waits for take at the end of each window, so a division must not delay it.
func TestAWindowIsTakenWhileEnergyIsDivided(t *testing.T) {
	f := start(t, &Config{})
	f.publish(windowOf(0, 1000, 1))
	f.intake.lock() // as in divide
	w := windowOf(1000, 2000, 10)
	w.Packages, w.Processes[0].Packages = []int32{0}, []feed.Part{{CPU: time.Second, Energy: []uint64{10}}}
	f.publish(w)
	w.Processes[0].Energy[0], w.Active[0], w.Processes[0].Packages[0].Energy[0] = 1e6, 1e6, 1e6 // the receiver uses it again
	f.publish(windowOf(2000, 3000, 100))
	f.intake.unlock()
	f.consume(sampled(1, ns(1500)))
	assert.EqualValues(t, 3, f.held[0].mark, "the batch has the windows that ended during the division")
	f.publish(windowOf(3000, 4000, 1000))
	var ends []time.Time
	for _, w := range f.intake.windows.pending {
		ends = append(ends, w.end)
	}
	assert.Equal(t, []time.Time{at(1000), at(2000), at(3000), at(4000)}, ends)
	assert.EqualValues(t, 1111, f.end().all)
}

func TestNoEnergyIsLostWhileWindowsBatchesAndShutdownRace(t *testing.T) {
	f := start(t, createDefaultConfig().(*Config))
	const windows, senders = 200, 4
	send := func(i int) {
		assert.NoError(t, f.ConsumeProfiles(context.Background(), sampled(1, ns(10*i+5)).Profiles))
	}
	var all, end sync.WaitGroup
	all.Go(func() {
		for i := range windows {
			f.publish(windowOf(10*i, 10*i+10, 1000))
		}
	})
	for range senders {
		all.Go(func() {
			for i := range windows {
				send(i)
			}
		})
	}
	all.Wait()
	for range senders {
		end.Go(func() { send(windows) })
	}
	end.Go(func() { assert.NoError(t, f.Shutdown(context.Background())) })
	end.Wait()
	assert.EqualValues(t, windows*1000, sumsOf(t, f.sink).all)
}
