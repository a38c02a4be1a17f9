// SPDX-License-Identifier: Apache-2.0

package energyprofile

import (
	"context"
	"net"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/consumer/consumertest"
	"go.opentelemetry.io/collector/pdata/pprofile"

	"github.com/energyreceiver/energyreceiver/feed"
)

// large returns a batch with a sample of process 1 and n empty locations, of 2 bytes each if they are encoded.
func large(n int) *samples {
	b := newSamples()
	b.add(1, ns(500))
	b.Dictionary().LocationTable().EnsureCapacity(n)
	for range n {
		b.Dictionary().LocationTable().AppendEmpty()
	}
	return b
}

// heap returns the bytes of all objects that are in use.
func heap() int {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc)
}

func TestTheProfilesOfABatchWithoutValidSamplesAreNotHeld(t *testing.T) {
	p, f := start(t, &Config{}, new(consumertest.ProfilesSink))
	publish(f, windowOf(0, 1000, 7))
	b := large(10_000)
	b.last().SetStackIndex(1 << 30)
	require.NoError(t, p.ConsumeProfiles(context.Background(), b.Profiles))
	bytes := p.size()
	assert.Equal(t, batchBytes, bytes)
	assert.Empty(t, p.held[0].data)
	require.NoError(t, p.Shutdown(context.Background()))
}

func TestProfilesWithoutSamplesAreNotHeld(t *testing.T) {
	b := newSamples()
	b.add(1, ns(500))
	of := b.ResourceProfiles().At(0).ScopeProfiles().At(0).Profiles()
	hold := func() *batch {
		held, err := newBatch(copyOf(b.Profiles), &indexer{now: at(1000).UnixNano(), cpuTime: time.Hour, byPID: map[int32]uint64{}})
		require.NoError(t, err)
		return held
	}
	one := hold()
	for range 100 {
		of.AppendEmpty()
	}
	assert.Equal(t, one.data, hold().data)
}

func TestTheCountedMemoryOfBatchesIsTheirActualMemory(t *testing.T) {
	for name, next := range map[string]func() *samples{
		"empty locations": func() *samples { return large(200_000) },
		"many samples": func() *samples {
			b := newSamples()
			b.add(1, ns(500))
			of := b.ResourceProfiles().At(0).ScopeProfiles().At(0).Profiles().At(0).Samples()
			for range 10_000 {
				of.At(0).CopyTo(of.AppendEmpty())
			}
			return b
		},
		"many resources": func() *samples {
			b := newSamples()
			for i := range 5_000 {
				b.add(int32(i+1), ns(500))
			}
			return b
		},
	} {
		p, f := start(t, &Config{}, new(consumertest.ProfilesSink))
		publish(f, windowOf(0, 1000, 7))
		p.next = consumertest.NewNop()
		before := heap()
		for range 10 {
			require.NoError(t, p.ConsumeProfiles(context.Background(), next().Profiles))
		}
		used := heap() - before
		bytes := p.size()
		assert.Less(t, used, 2*bytes, name)
		assert.Less(t, bytes, 10<<20, name)
		require.NoError(t, p.Shutdown(context.Background()))
	}
}

func TestABatchBeyondTheLimitOfBytesEvictsTheOldest(t *testing.T) {
	sink := new(consumertest.ProfilesSink)
	p, f := start(t, &Config{}, sink)
	check := countDrops(t, p)
	publish(f, windowOf(0, 1000, 7))
	for range 100 { // the first two are complete, and no window ends for the others
		b := newSamples()
		b.add(1, ns(1500))
		b.Dictionary().StringTable().Append(strings.Repeat("a", 1<<20))
		require.NoError(t, p.ConsumeProfiles(context.Background(), b.Profiles))
	}
	bytes := p.size()
	assert.LessOrEqual(t, bytes, maxBytes)
	check(map[string]int64{dropLimit: int64(98 - len(p.held))})
	require.NoError(t, p.Shutdown(context.Background()))
	assert.EqualValues(t, 7, sumsOf(t, sink).all)
}

func TestABatchThatIsTooLargeEvictsNoOther(t *testing.T) {
	p, f := start(t, &Config{}, new(consumertest.ProfilesSink))
	check := countDrops(t, p)
	publish(f, windowOf(0, 1000, 7))
	for _, size := range []int{1, maxBytes} {
		b := newSamples()
		b.add(1, ns(1500))
		b.Dictionary().StringTable().Append(strings.Repeat("a", size))
		require.NoError(t, p.ConsumeProfiles(context.Background(), b.Profiles))
	}
	assert.Len(t, p.held, 1)
	check(map[string]int64{dropLimit: 1})
	require.NoError(t, p.Shutdown(context.Background()))
}

func TestABatchWithTooManyEntriesInItsDictionaryIsDropped(t *testing.T) {
	sink := new(consumertest.ProfilesSink)
	p, f := start(t, &Config{}, sink)
	check := countDrops(t, p)
	publish(f, windowOf(0, 1000, 7))
	require.NoError(t, p.ConsumeProfiles(context.Background(), large(maxEntries/2).Profiles))
	require.NoError(t, p.ConsumeProfiles(context.Background(), large(maxEntries).Profiles))
	assert.Len(t, p.held, 1)
	check(map[string]int64{dropLimit: 1})
	require.NoError(t, p.Shutdown(context.Background()))
	assert.EqualValues(t, 7, sumsOf(t, sink).all)
}

func TestOtherProfilesAreSplitOffWithoutACopyOfTheDictionary(t *testing.T) {
	b := large(100_000)
	b.add(2, ns(500))
	of := b.ResourceProfiles().At(1).ScopeProfiles().At(0).Profiles().At(0)
	of.SampleType().SetTypeStrindex(text(b.Dictionary(), "off_cpu"))
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, ok := splitOther(b.Profiles)
	runtime.ReadMemStats(&after)
	assert.True(t, ok)
	assert.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(1<<20), "bytes")
}

func TestBatchesDoNotWaitForAMeterIfTheyTakeMuchMemory(t *testing.T) {
	sink := new(consumertest.ProfilesSink)
	p, f := start(t, &Config{}, sink)
	for i := range maxBytes / 2 >> 20 {
		assert.Empty(t, sink.AllProfiles(), i)
		w := windowOf(1000*i, 1000*i+1000, 7)
		w.Attributed = at(0) // the meter does not report
		publish(f, w)
		b := newSamples()
		b.add(1, ns(1000*i+500))
		b.Dictionary().StringTable().Append(strings.Repeat("a", 1<<20))
		require.NoError(t, p.ConsumeProfiles(context.Background(), b.Profiles))
	}
	assert.NotEmpty(t, sink.AllProfiles())
	require.NoError(t, p.Shutdown(context.Background()))
}

func TestTheLimitOfSamplesGrowsWithTheTimeSinceTheLastPeriod(t *testing.T) {
	sink := new(consumertest.ProfilesSink)
	p, f := start(t, &Config{}, sink)
	now := p.since
	p.now = func() time.Time { return now }
	publish(f, windowOf(0, 1000, 7))
	hold := func() (accepted bool) {
		b := newSamples()
		b.add(1)
		b.last().Values().FromRaw([]int64{int64(100 * runtime.NumCPU())})
		b.ResourceProfiles().At(0).ScopeProfiles().At(0).Profiles().At(0).SetPeriod(int64(time.Second))
		drop := dropped{}
		require.NoError(t, p.hold(b.Profiles, origin{}, drop))
		return drop[dropLimit] == 0
	}
	assert.False(t, hold())
	now = now.Add(100 * time.Second)
	assert.True(t, hold())
	require.NoError(t, p.settle(context.Background(), 1, false))
	assert.False(t, hold(), "the samples of the time until now are settled")
	require.NoError(t, p.Shutdown(context.Background()))
}

func TestTheEnergyOfAnEvictedBatchIsSentWithoutSamples(t *testing.T) {
	sink := new(consumertest.ProfilesSink)
	p, f := start(t, &Config{}, sink)
	publish(f, windowOf(0, 1000, 1_000_000))
	require.NoError(t, p.ConsumeProfiles(context.Background(), newSamples().Profiles))
	f.Serve(func(context.Context) { publish(f, windowOf(1000, 2000, 600)) })
	first, second := newSamples(), newSamples()
	first.add(1, ns(500))
	second.add(1, ns(600)) // of the same period, but it waits for the next one
	second.add(9, ns(600))
	require.NoError(t, p.ConsumeProfiles(context.Background(), first.Profiles))
	require.NoError(t, p.ConsumeProfiles(context.Background(), second.Profiles))
	f.Serve(nil)
	require.Len(t, p.held, 1)
	require.NotZero(t, p.held[0].resources[0].samples[0].energy)
	p.held[0].bytes = maxBytes + 1
	p.evict(dropped{})
	require.Empty(t, p.held)
	require.NoError(t, p.Shutdown(context.Background()))
	assert.EqualValues(t, 1_001_200, sumsOf(t, sink).all)
}

func TestASampleWaitsForItsEnergyThoughManySmallBatchesArrive(t *testing.T) {
	sink := new(consumertest.ProfilesSink)
	p, f := start(t, &Config{}, sink)
	w := windowOf(0, 1000, 0)
	w.Attributed = at(0) // the meter has not reported yet
	publish(f, w)
	b := newSamples()
	stack := b.add(1, ns(500))
	require.NoError(t, p.ConsumeProfiles(context.Background(), b.Profiles))
	for range 100 {
		small := newSamples()
		small.add(99999, 1)
		require.NoError(t, p.ConsumeProfiles(context.Background(), small.Profiles))
	}
	publish(f, windowOf(1000, 2000, 1_000_000))
	require.NoError(t, p.Shutdown(context.Background()))
	assert.Equal(t, map[int32]uint64{stack: 1_000_000}, sumsOf(t, sink).byStack)
}

func TestFewSmallBatchesAreHeld(t *testing.T) {
	p, f := start(t, &Config{}, new(consumertest.ProfilesSink))
	w := windowOf(0, 1000, 7)
	w.Attributed = at(-1000) // a meter does not report
	publish(f, w)
	const batches = 4000
	for range batches {
		b := newSamples()
		b.add(1, ns(500))
		require.NoError(t, p.ConsumeProfiles(context.Background(), b.Profiles))
	}
	assert.LessOrEqual(t, len(p.held), batches*3/4)
	require.NoError(t, p.Shutdown(context.Background()))
}

func TestTheLargestForeignSenderLosesBatchesBeforeTheProfilerOfThisProcess(t *testing.T) {
	p := &energyProfile{}
	local, quiet, loud := origin{}, origin{isForeign: true, host: "10.0.0.1"}, origin{isForeign: true, host: "10.0.0.2"}
	for _, from := range []origin{local, quiet, loud, loud, loud} {
		p.held = append(p.held, &batch{from: from, bytes: 10})
	}
	p.held[0].bytes = 1000
	assert.Equal(t, 2, p.oldestOfLargest())
	p.held = p.held[:2]
	assert.Equal(t, 1, p.oldestOfLargest())
	p.held = p.held[:1]
	assert.Equal(t, 0, p.oldestOfLargest())
}

func TestAFloodOfAnotherSenderDoesNotEvictTheProfilerOfThisProcess(t *testing.T) {
	sink := new(consumertest.ProfilesSink)
	p, f := start(t, &Config{ForeignSamples: true}, sink)
	publish(f, windowOf(0, 1000, 1_000_000))
	b := newSamples()
	b.add(1, ns(250))
	require.NoError(t, p.ConsumeProfiles(context.Background(), b.Profiles))
	for range 100 {
		flood := newSamples()
		flood.add(2, ns(250))
		flood.Dictionary().StringTable().Append(strings.Repeat("a", 1<<20))
		require.NoError(t, p.ConsumeProfiles(clientAt(&net.TCPAddr{}), flood.Profiles))
	}
	require.NoError(t, p.Shutdown(context.Background()))
	assert.Equal(t, map[int32]uint64{1: 1_000_000}, sumsOf(t, sink).byStack)
}

func TestTheRowsOfWindowsWithoutProfilesAreBounded(t *testing.T) {
	sink := new(consumertest.ProfilesSink)
	p, f := start(t, &Config{}, sink)
	w := windowOf(0, 1000, 0)
	w.Processes = make([]feed.Process, maxRows/8)
	for i := range w.Processes {
		w.Processes[i] = feed.Process{PID: int32(1 + i%100), Energy: []uint64{1}}
	}
	w.Active[0] = maxRows / 8
	for range 10 {
		publish(f, w)
		assert.LessOrEqual(t, p.intake.windows.rows, maxRows)
	}
	assert.Len(t, p.intake.windows.pending, 8)
	require.NoError(t, p.Shutdown(context.Background()))
	assert.Zero(t, p.intake.windows.rows)
	assert.EqualValues(t, 10*maxRows/8, sumsOf(t, sink).all)
}

func TestProfilesWithMoreEnergyThanTheReceiverAttributedAreNotSent(t *testing.T) {
	sink := new(consumertest.ProfilesSink)
	p, f := start(t, &Config{}, sink)
	publish(f, windowOf(0, 1000, 7))
	b := newSamples()
	b.add(1, ns(500))
	require.NoError(t, p.ConsumeProfiles(context.Background(), b.Profiles))
	p.held[0].resources[0].samples[0].energy = 1 // invented
	require.NoError(t, p.Shutdown(context.Background()))
	assert.Empty(t, sink.AllProfiles())
	assert.ErrorContains(t, p.conditions.Err("sums"), "8 µJ")
}

func TestIdleAndUnattributedEnergyIsNotOwedUnlessItIsSent(t *testing.T) {
	p, f := start(t, &Config{}, new(consumertest.ProfilesSink))
	w := windowOf(0, 1000, 7)
	w.Active[0], w.Idle[0], w.Unattributed[0] = 7+5+3, 100, 5
	publish(f, w)
	require.NoError(t, p.Shutdown(context.Background()))
	assert.Zero(t, p.intake.windows.owed)
}

func TestALongPathOfAnExecutableIsLeftOut(t *testing.T) {
	for _, length := range []int{maxPath, maxPath + 1} {
		sink := new(consumertest.ProfilesSink)
		p, f := start(t, &Config{}, sink)
		w := windowOf(0, 1000, 7)
		w.Processes[0].Path = strings.Repeat("a", length)
		publish(f, w)
		require.NoError(t, p.Shutdown(context.Background()))
		path, ok := sink.AllProfiles()[0].ResourceProfiles().At(0).Resource().Attributes().Get("process.executable.path")
		require.Equal(t, length <= maxPath, ok)
		if ok {
			assert.Len(t, path.Str(), length)
		}
	}
}

func TestTheEnergyOfManyProcessesIsSentInSmallMessages(t *testing.T) {
	sink := new(consumertest.ProfilesSink)
	p, f := start(t, &Config{ServiceName: true}, sink)
	const processes = 30_000
	w := windowOf(0, 1000, 7)
	of := w.Processes[0]
	of.Path, of.Executable, of.ContainerID = strings.Repeat("p", maxPath), strings.Repeat("e", 256), strings.Repeat("c", 64)
	w.Active[0], w.Processes = 7*processes, nil
	for i := range processes {
		of.PID = int32(i + 1)
		w.Processes = append(w.Processes, of)
	}
	publish(f, w)
	require.NoError(t, p.Shutdown(context.Background()))
	assert.EqualValues(t, 7*processes, sumsOf(t, sink).all)
	for _, pd := range sink.AllProfiles() {
		assert.LessOrEqual(t, (&pprofile.ProtoMarshaler{}).ProfilesSize(pd), 4<<20, "bytes, the limit of gRPC servers")
	}
}
