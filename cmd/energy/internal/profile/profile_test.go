// SPDX-License-Identifier: Apache-2.0

package profile

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/pprof/profile"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/pprofile"

	"github.com/energyreceiver/energyreceiver/cmd/energy/internal/measure"
	"github.com/energyreceiver/energyreceiver/internal/units"
	energyreceiver "github.com/energyreceiver/energyreceiver/receiver"
)

func recorded(t *testing.T, name string) pprofile.Profiles {
	t.Helper()
	b, err := os.ReadFile("testdata/" + name)
	require.NoError(t, err)
	pd, err := (&pprofile.JSONUnmarshaler{}).UnmarshalProfiles(b)
	require.NoError(t, err)
	return pd
}

// sum returns the energy of a profile.
func sum(p *profile.Profile) (sum units.Energy) {
	for _, s := range p.Sample {
		sum += units.Energy(s.Value[0])
	}
	return sum
}

// newFunctions returns a profile of functions without callers.
func newFunctions(energies map[string]int64) *energy {
	e := newEnergy()
	for name, energy := range energies {
		e.addFunction("process", name, energy)
	}
	return e
}

func (e *energy) addFunction(process, name string, energy int64) {
	e.addSample(process, []*profile.Location{e.location(frame{name: name, file: name})}, energy)
}

// asBase returns a profile as the base that a run reads.
func asBase(t *testing.T, e *energy) (Base, error) {
	t.Helper()
	var file bytes.Buffer
	require.NoError(t, e.profile.Write(&file))
	return ReadBase(&file)
}

func TestFunctionsOfARecordedEnergyProfile(t *testing.T) {
	e := newEnergy()
	e.add(recorded(t, "profiler.json"))
	require.Empty(t, e.profile.Sample, "it has no energy")
	e.add(recorded(t, "energy.json"))
	require.NoError(t, e.profile.CheckValid())
	assert.Equal(t, []measure.Function{
		{Name: "main.work", Used: 8_315_247}, {Name: "[twoc]", Used: 2_406_290}, {Name: "_raw_spin_unlock_irqrestore", Used: 41_041},
	}, functionsOf(e.profile.Sample))
}

func TestAllFunctionsTogetherAreTheEnergyOfTheCommand(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		e := newEnergy()
		for range r.IntN(20) {
			e.addFunction(fmt.Sprint(r.IntN(3)), fmt.Sprint(r.IntN(5)), r.Int64N(1e9))
		}
		used := units.Energy(r.Uint64N(2e10) >> r.IntN(35))
		e.fit(uint64(used), "command")
		all := units.Energy(0)
		for _, f := range functionsOf(e.profile.Sample) {
			all += f.Used
		}
		require.Equal(t, used, all)
		require.Equal(t, used, sum(e.profile))
	}
}

func TestAFullProfileLosesNoEnergy(t *testing.T) {
	const stacks = 10_000
	e := newEnergy()
	e.maxBytes = 200_000
	for i := range stacks {
		e.addFunction("process", strings.Repeat(fmt.Sprint(i), 1000), 1)
	}
	e.fit(stacks+7, "process")
	assert.Equal(t, units.Energy(stacks+7), sum(e.profile))
	require.NoError(t, e.profile.CheckValid())
	used := map[string]units.Energy{}
	for _, f := range functionsOf(e.profile.Sample) {
		assert.LessOrEqual(t, len(f.Name), maxName)
		used[f.Name] = f.Used
	}
	assert.Less(t, len(used), 200)
	assert.Greater(t, used[manyStacks], units.Energy(stacks-200))
	assert.Equal(t, units.Energy(7), used[notSampled])
}

func TestNamesInAProfileAreText(t *testing.T) {
	const name = "\x1b]0;title\a\xffa\u009b2Jé\n"
	e := newEnergy()
	e.addFunction(name, name, 1)
	f := e.profile.Function[0]
	for _, got := range []string{f.Name, f.SystemName, f.Filename, e.profile.Sample[0].Label[processLabel][0]} {
		assert.Equal(t, "?]0;title??a?2Jé?", got)
	}
}

func TestTheCountedMemoryOfAProfileIsItsMemory(t *testing.T) {
	heap := func() int {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return int(m.HeapAlloc)
	}
	for _, depth := range []int{1, 20, 128} {
		e := newEnergy()
		e.maxBytes = 8 << 20
		before := heap()
		for i := 0; e.rest == nil; i++ {
			var stack []*profile.Location
			for j := range depth {
				stack = append(stack, e.location(frame{name: fmt.Sprint((i >> j) % 1000)}))
			}
			e.addSample(fmt.Sprint(i), stack, 1)
		}
		assert.Less(t, heap()-before, e.maxBytes*12/10, depth)
		runtime.KeepAlive(e)
	}
}

func TestABaseMustBeAnEnergyProfile(t *testing.T) {
	_, err := ReadBase(strings.NewReader("text"))
	require.Error(t, err)
	cpu := newEnergy()
	cpu.profile.SampleType = []*profile.ValueType{{Type: "cpu", Unit: "nanoseconds"}}
	_, err = asBase(t, cpu)
	require.EqualError(t, err, "not an energy profile: it has cpu in nanoseconds")
	_, err = asBase(t, newFunctions(map[string]int64{"f": -5}))
	require.ErrorContains(t, err, "an energy is negative")
	_, err = asBase(t, newFunctions(map[string]int64{"f": math.MaxInt64, "g": 1}))
	assert.ErrorContains(t, err, "too large")
}

func TestFunctionsAreComparedByTheirDifference(t *testing.T) {
	base, err := asBase(t, newFunctions(map[string]int64{"gone": 50, "less": 100, "same": 1000}))
	require.NoError(t, err)
	of := newFunctions(map[string]int64{"same": 1000, "less": 90, "new": 70})
	assert.Equal(t, []measure.Function{
		{Name: "new", Used: 70}, {Name: "gone", Base: 50}, {Name: "less", Used: 90, Base: 100}, {Name: "same", Used: 1000, Base: 1000},
	}, functionsOf(slices.Concat(of.profile.Sample, base)))
	assert.Equal(t, "[unknown]", nameOf(&profile.Location{}), "of a base that another program wrote")
}

func TestBatchesAreReadUntilTheStreamEnds(t *testing.T) {
	b, err := (&pprofile.ProtoMarshaler{}).MarshalProfiles(recorded(t, "profiler.json"))
	require.NoError(t, err)
	stream := append(binary.BigEndian.AppendUint32(nil, uint32(len(b))), b...)
	for length := range len(stream) + 1 {
		_, err := readBatch(bytes.NewReader(stream[:length]))
		switch {
		case length == 0:
			require.ErrorIs(t, err, io.EOF)
		case length < len(stream):
			require.ErrorIs(t, err, io.ErrUnexpectedEOF, length)
		default:
			require.NoError(t, err)
		}
	}
	_, err = readBatch(bytes.NewReader([]byte{255, 255, 255, 255}))
	require.ErrorContains(t, err, "too long")
	_, err = readBatch(bytes.NewReader([]byte{0, 0, 0, 1, 255}))
	require.Error(t, err)
}

func TestOnlySamplesOfTheCommandAreKept(t *testing.T) {
	now := time.Now()
	before := func(d time.Duration) time.Time { return now.Add(-d) }
	m := members{
		processes: func(yield func(int32)) error { yield(1); return nil },
		listed:    map[int32]time.Time{2: before(time.Second), 3: before(time.Second), 4: before(time.Hour)},
		scanned:   map[int32]time.Time{1: before(3 * time.Second), 2: before(2 * time.Second), 4: before(time.Hour)},
		end:       before(time.Millisecond),
	}
	s := newSamples()
	for _, pid := range []string{"1", "2", "3", "4", "5"} {
		s.add(pid, "f", before(3*time.Second), before(time.Second), now)
	}
	m.keep(s.Profiles)
	got := map[string]int{}
	for _, rp := range s.ResourceProfiles().All() {
		for _, sample := range rp.ScopeProfiles().At(0).Profiles().At(0).Samples().All() {
			got[text(rp.Resource(), "process.executable.name")+" "+text(rp.Resource(), "process.pid")] += sample.TimestampsUnixNano().Len()
		}
	}
	assert.Equal(t, map[string]int{
		"p1 1": 2,           // it runs
		"p2 2": 1, "p2 ": 1, // it exited after its last window
		"p3 3": 2, // it lived between two windows
	}, got)
}

func TestAListThatTookLongerMakesNoProcessExit(t *testing.T) {
	now := time.Now()
	m := members{processes: func(yield func(int32)) error { yield(1); return nil }, listed: map[int32]time.Time{}}
	m.list(now)
	m.list(now.Add(-time.Millisecond))
	assert.Equal(t, map[int32]time.Time{1: now}, m.listed)
}

func TestACrashIsDescribedInBrief(t *testing.T) {
	c := &collector{ended: make(chan struct{})}
	c.watch(strings.NewReader("panic: no BPF\n" + strings.Repeat("goroutine 1 [running]:\n", 1000)))
	assert.Regexp(t, "^panic: no BPF goroutine 1", c.why())
	assert.Less(t, len(c.why()), 2*maxFailure)
}

// run measures a busy command and the programs of the machine, with a stand-in for the collector.
func run(t *testing.T, behavior string) (*Profiler, *measure.Result) {
	t.Helper()
	t.Setenv(standIn, behavior)
	p, err := Start(t.Context(), os.Args[0], nil)
	require.NoError(t, err)
	t.Cleanup(p.Close)
	cfg := energyreceiver.DefaultConfig()
	cfg.Meters.Use = []string{}
	r, err := measure.Run(context.Background(), measure.Options{
		Command: []string{"sh", "-c", "i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done"}, Config: cfg, Interval: 100 * time.Millisecond, Profiler: p,
		Node: true, By: measure.ByProgram,
	})
	require.NoError(t, err)
	require.Zero(t, r.Exit)
	require.Positive(t, r.Used())
	return p, r
}

func byName(r *measure.Result) map[string]units.Energy {
	m := map[string]units.Energy{}
	for _, f := range r.Profile.Functions {
		m[f.Name] = f.Used
	}
	return m
}

func TestACommandIsProfiled(t *testing.T) {
	p, r := run(t, "works")
	assert.Greater(t, byName(r)["busy"], r.Used()/2)
	assert.NotContains(t, byName(r), "energy", "of another process")
	assert.Equal(t, r.Used(), sum(p.energy.profile))
	assert.Equal(t, r.Used(), r.Profile.Stacks.Used)
	assert.Equal(t, "sh", r.Profile.Stacks.Name)
}

func TestAProfilerThatEndsCostsFunctionsOnly(t *testing.T) {
	p, r := run(t, "ends")
	assert.Equal(t, r.Used(), sum(p.energy.profile))
	assert.Greater(t, byName(r)[notSampled], r.Used()/2)
	assert.Contains(t, r.Notes, "The profile is incomplete: the profiler exited: out of memory")
}

func TestWhyAProfilerDoesNotStart(t *testing.T) {
	t.Setenv(standIn, "fails")
	_, err := Start(t.Context(), os.Args[0], nil)
	require.ErrorContains(t, err, `the profiler did not start: failed to start "profiling" receiver: no BPF`)
	_, err = Start(t.Context(), "/no/such/file", nil)
	require.ErrorIs(t, err, os.ErrNotExist)
	t.Setenv("PATH", t.TempDir())
	_, err = Start(t.Context(), "", nil)
	require.ErrorIs(t, err, errNoCollector)
	ctx, cancel := context.WithCancelCause(t.Context())
	interrupted := errors.New("interrupted")
	cancel(interrupted)
	t.Setenv(standIn, "works")
	_, err = Start(ctx, os.Args[0], nil)
	require.ErrorIs(t, err, interrupted)
}
