// SPDX-License-Identifier: Apache-2.0

package energyprofile

import (
	"context"
	"math"
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
	b := sampled(1, ns(500))
	b.Dictionary().LocationTable().EnsureCapacity(n)
	for range n {
		b.Dictionary().LocationTable().AppendEmpty()
	}
	return b
}

// with adds a text of so many bytes.
func (s *samples) with(bytes int) *samples {
	s.Dictionary().StringTable().Append(strings.Repeat("a", bytes))
	return s
}

func TestAProcessHasNoMoreSamplesThanItsCPUTimeAllows(t *testing.T) {
	drop := dropped{}
	b := sampled(1, ns(1), ns(2), ns(3))
	b.add(1, ns(4))
	b.add(2, ns(1))
	b.count(3, math.MaxInt32)
	eachProfile(b.Profiles, func(of pprofile.Profile) { of.SetPeriod(int64(50 * time.Millisecond)) })
	held, err := newBatch(b.Profiles, &indexer{
		now: at(1000).UnixNano(), cpuTime: 160 * time.Millisecond, byPID: map[int32]uint64{1: 1}, drop: drop,
	})
	require.NoError(t, err)
	assert.Equal(t, 3, held.times)
	assert.Len(t, held.resources, 2, "of the processes 1 and 2")
	assert.Len(t, held.resources[0].samples[0].times, 2)
	assert.Equal(t, dropped{dropLimit: 2 + math.MaxInt32}, drop)
}

func TestTheLimitOfSamplesGrowsWithTheTimeSinceTheLastPeriod(t *testing.T) {
	f := start(t, &Config{})
	now := f.since
	f.now = func() time.Time { return now }
	f.publish(windowOf(0, 1000, 7))
	isAccepted := func() bool {
		b, drop := newSamples(), dropped{}
		b.count(1, int64(100*runtime.NumCPU()))
		b.profile().SetPeriod(int64(time.Second))
		require.NoError(t, f.hold(b.Profiles, origin{}, drop))
		return drop[dropLimit] == 0
	}
	assert.False(t, isAccepted())
	now = now.Add(100 * time.Second)
	assert.True(t, isAccepted())
	require.NoError(t, f.settle(context.Background(), 1, false))
	assert.False(t, isAccepted(), "the samples of the time until now are settled")
	f.end()
}

func TestProfilesWithoutValidSamplesAreNotHeld(t *testing.T) {
	f := start(t, &Config{})
	f.publish(windowOf(0, 1000, 7))
	b := large(10_000)
	b.last().SetStackIndex(1 << 30)
	f.consume(b)
	assert.Equal(t, batchBytes, f.size())
	assert.Empty(t, f.held[0].data)
	few, many := sampled(1, ns(500)), sampled(1, ns(500))
	for range 100 {
		many.resource().ScopeProfiles().At(0).Profiles().AppendEmpty()
	}
	for _, b := range []*samples{few, many} {
		require.NoError(t, f.hold(b.Profiles, origin{}, dropped{}))
	}
	assert.Equal(t, f.held[1].data, f.held[2].data)
	f.end()
}

func TestTheCountedMemoryOfBatchesIsTheirActualMemory(t *testing.T) {
	for name, next := range map[string]func() *samples{
		"empty locations": func() *samples { return large(200_000) },
		"many samples": func() *samples {
			b := sampled(1, ns(500))
			for range 10_000 {
				b.last().CopyTo(b.profile().Samples().AppendEmpty())
			}
			return b
		},
		"many resources": func() *samples {
			b := newSamples()
			for i := range int32(5_000) {
				b.add(i+1, ns(500))
			}
			return b
		},
	} {
		f := start(t, &Config{})
		f.publish(windowOf(0, 1000, 7))
		f.next = consumertest.NewNop()
		before := heap()
		for range 10 {
			f.consume(next())
		}
		assert.Less(t, heap()-before, 2*f.size(), name)
		assert.Less(t, f.size(), 10<<20, name)
		f.end()
	}
}

func TestABatchBeyondTheLimitOfBytesEvictsTheOldest(t *testing.T) {
	f := start(t, &Config{})
	f.publish(windowOf(0, 1000, 7))
	for range 100 { // the first two are complete, and no window ends for the others
		f.consume(sampled(1, ns(1500)).with(1 << 20))
	}
	assert.LessOrEqual(t, f.size(), maxBytes)
	f.checkDrops(map[string]int64{dropLimit: int64(98 - len(f.held))})
	assert.EqualValues(t, 7, f.end().all)
}

func TestABatchThatIsTooLargeIsDroppedAndEvictsNoOther(t *testing.T) {
	f := start(t, &Config{})
	f.publish(windowOf(0, 1000, 7))
	f.consume(large(maxEntries / 2))
	f.consume(large(maxEntries))
	f.consume(sampled(1, ns(1500)).with(maxBytes))
	assert.Len(t, f.held, 1)
	f.checkDrops(map[string]int64{dropLimit: 2})
	assert.EqualValues(t, 7, f.end().all)
}

func TestOtherProfilesAreSplitOffWithoutACopyOfTheDictionary(t *testing.T) {
	b := large(100_000)
	b.add(2, ns(500))
	b.isOffCPU()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, ok := splitOther(b.Profiles)
	runtime.ReadMemStats(&after)
	assert.True(t, ok)
	assert.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(1<<20), "bytes")
}

func TestBatchesDoNotWaitForAMeterIfTheyTakeMuchMemory(t *testing.T) {
	f := start(t, &Config{})
	for i := range maxBytes / 2 >> 20 {
		assert.Empty(t, f.sink.AllProfiles(), i)
		w := windowOf(1000*i, 1000*i+1000, 7)
		w.Attributed = at(0) // the meter does not report
		f.publish(w)
		f.consume(sampled(1, ns(1000*i+500)).with(1 << 20))
	}
	assert.NotEmpty(t, f.sink.AllProfiles())
	f.end()
}

func TestTheEnergyOfAnEvictedBatchIsSentWithoutSamples(t *testing.T) {
	f := start(t, &Config{})
	f.publish(windowOf(0, 1000, 1_000_000))
	f.consume(newSamples())
	f.feed.Serve(func(context.Context) { f.publish(windowOf(1000, 2000, 600)) })
	f.consume(sampled(1, ns(500)))
	second := sampled(1, ns(600)) // of the same period, but it waits for the next one
	second.add(9, ns(600))
	f.consume(second)
	f.feed.Serve(nil)
	require.Len(t, f.held, 1)
	require.NotZero(t, f.held[0].resources[0].samples[0].energy)
	f.held[0].bytes = maxBytes + 1
	f.evict(dropped{})
	require.Empty(t, f.held)
	assert.EqualValues(t, 1_001_200, f.end().all)
}

func TestAFloodOfAnotherSenderDoesNotEvictTheProfilerOfThisProcess(t *testing.T) {
	f := start(t, &Config{ForeignSamples: true})
	f.publish(windowOf(0, 1000, 1_000_000))
	f.consume(sampled(1, ns(250)))
	for range 100 {
		f.consumeAs(clientAt(&net.TCPAddr{}), sampled(2, ns(250)).with(1<<20))
	}
	assert.Equal(t, map[int32]uint64{1: 1_000_000}, f.end().byStack)

	p := &energyProfile{}
	local, quiet, loud := origin{}, origin{isForeign: true, host: "10.0.0.1"}, origin{isForeign: true, host: "10.0.0.2"}
	for _, from := range []origin{local, quiet, loud, loud, loud} {
		p.held = append(p.held, &batch{from: from, bytes: 10})
	}
	p.held[0].bytes = 1000
	for _, want := range []int{2, 1, 0} { // of all five, of the first two, of the first
		assert.Equal(t, want, p.oldestOfLargest())
		p.held = p.held[:max(want, 1)]
	}
}

func TestWindowsWithoutProfilesKeepTheirEnergyAndNoMemory(t *testing.T) {
	f := start(t, &Config{})
	for i := range 3 * maxWindows {
		f.publish(windowOf(1000*i, 1000*i+1000, 7))
	}
	assert.Len(t, f.intake.windows.pending, maxWindows)
	w := windowOf(0, 1000, 0)
	w.Processes = make([]feed.Process, maxRows/8)
	for i := range w.Processes {
		w.Processes[i] = feed.Process{PID: int32(1 + i%100), Energy: []uint64{1}}
	}
	w.Active[0] = maxRows / 8
	for range 10 {
		f.publish(w)
		assert.LessOrEqual(t, f.intake.windows.rows, maxRows)
	}
	assert.Len(t, f.intake.windows.pending, 8)
	assert.EqualValues(t, 3*maxWindows*7+10*maxRows/8, f.end().byFrame[frameNotSampled])
	assert.Zero(t, f.intake.windows.rows)
}

func TestProfilesWithMoreEnergyThanTheReceiverAttributedAreNotSent(t *testing.T) {
	f := start(t, &Config{})
	f.publish(windowOf(0, 1000, 7))
	f.consume(sampled(1, ns(500)))
	f.held[0].resources[0].samples[0].energy = 1 // invented
	f.end()
	assert.Empty(t, f.sink.AllProfiles())
	assert.ErrorContains(t, f.conditions.Err("sums"), "8 µJ")
}

func TestIdleAndUnattributedEnergyIsNotOwedUnlessItIsSent(t *testing.T) {
	f := start(t, &Config{})
	w := windowOf(0, 1000, 7)
	w.Active[0], w.Idle[0], w.Unattributed[0] = 7+5+3, 100, 5
	f.publish(w)
	f.end()
	assert.Zero(t, f.intake.windows.owed)
}

func TestTheEnergyOfManyProcessesIsSentInSmallMessages(t *testing.T) {
	f := start(t, &Config{ServiceName: true})
	const processes = 30_000
	w := windowOf(0, 1000, 7)
	of := w.Processes[0]
	of.Executable, of.ContainerID = strings.Repeat("e", 256), strings.Repeat("c", 64)
	w.Active[0], w.Processes = 7*processes, nil
	for i := range processes {
		of.PID, of.Path = int32(i+1), strings.Repeat("p", maxPath+i%2)
		w.Processes = append(w.Processes, of)
	}
	f.publish(w)
	assert.EqualValues(t, 7*processes, f.end().all)
	paths := 0
	for _, pd := range f.sink.AllProfiles() {
		assert.LessOrEqual(t, (&pprofile.ProtoMarshaler{}).ProfilesSize(pd), 4<<20, "bytes, the limit of gRPC servers")
		for _, rp := range pd.ResourceProfiles().All() {
			if path, ok := rp.Resource().Attributes().Get("process.executable.path"); ok {
				assert.Len(t, path.Str(), maxPath)
				paths++
			}
		}
	}
	assert.Equal(t, processes/2, paths, "longer paths are left out")
}
