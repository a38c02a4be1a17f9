// SPDX-License-Identifier: Apache-2.0

package energyspans

import (
	"fmt"
	"math"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"
)

// limitMemory sets a limit below a MiB.
func (f *fixture) limitMemory(bytes int) { f.tracker.limit, f.tracker.maxBytes = bytes, bytes/2 }

// heap returns the bytes of live objects.
func heap() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// heapSince returns by how many bytes live objects have grown since before. It tries again until the growth is below
// limit, because package unique frees names in the background.
func heapSince(before, limit int64) (used int64) {
	for range 100 {
		if used = heap() - before; used < limit {
			break
		}
	}
	return used
}

func TestNamesKeepNoMessageInMemory(t *testing.T) {
	f := start(t, func(c *Config) { c.Labels = []string{"tenant", "http.route"} })
	before := heap()
	for i := range 30 {
		long := strings.Repeat(string(rune('a'+i%26)), 4<<20)
		td := tracesOf(long, long, long, ptrace.SpanKindServer, numbered(i), spanID{})
		data, err := (&ptrace.ProtoMarshaler{}).MarshalTraces(td)
		require.NoError(t, err)
		td, err = (&ptrace.ProtoUnmarshaler{}).UnmarshalTraces(data)
		require.NoError(t, err)
		f.learn(td)
		e := newEnergy().add(numbered(100+i), strings.Clone(long), 1)
		e.add(numbered(i), strings.Clone(long), 1).add(spanID{}, long, 1)
		e.ResourceProfiles().At(0).Resource().Attributes().PutStr("service.name", strings.Clone(long))
		f.consume(e)
	}
	const few = 1 << 20
	assert.Less(t, heapSince(before, few), int64(few), "of messages with 600 MiB")
	runtime.KeepAlive(f)
}

// worstSpans has n spans of different services with the longest names.
func worstSpans(first, n int) ptrace.Traces {
	td := ptrace.NewTraces()
	for i := range n {
		long := fmt.Sprintf("%0*d", maxText, first+i)
		one := tracesOf(long, long[1:], long[2:], ptrace.SpanKindInternal, numbered(first+i), id(255, 1))
		one.ResourceSpans().MoveAndAppendTo(td.ResourceSpans())
	}
	return td
}

func TestMemoryIsBounded(t *testing.T) {
	const limit = 8 << 20
	for what, add := range map[string]func(f *fixture, i int){
		"long names": func(f *fixture, i int) { f.learn(worstSpans(1000*i, 1000)) },
		"short names": func(f *fixture, i int) {
			for j := range 1000 {
				f.learn(tracesOf("svc", "GET", "", ptrace.SpanKindInternal, numbered(1000*i+j), id(255, 1)))
			}
		},
		"waiting energy": func(f *fixture, i int) {
			e := newEnergy()
			for j := range 1000 {
				e.add(numbered(1000*i+j), fmt.Sprintf("%0*d", maxText, j), 1)
			}
			f.consume(e)
		},
		"series": func(f *fixture, i int) {
			e := newEnergy()
			for j := range 1000 {
				e.add(spanID{}, fmt.Sprintf("%0*d", maxText, 1000*i+j), 1)
			}
			e.ResourceProfiles().At(0).Resource().Attributes().PutStr("service.name", fmt.Sprintf("%0*d", maxText, i))
			f.consume(e)
		},
	} {
		f := start(t, func(c *Config) {
			c.MemoryLimitMiB, c.MaxSeries, c.Labels = limit>>20, math.MaxInt32, []string{"tenant"}
		})
		before := heap()
		for i := range 50 {
			add(f, i)
		}
		used := heapSince(before, limit*11/10)
		t.Logf("%s: %d of %d bytes, %d accounted", what, used, limit, f.tracker.used+f.tracker.bytes)
		assert.Less(t, used, int64(limit*11/10), what)
		assert.LessOrEqual(t, f.tracker.used+f.tracker.bytes, limit, what)
		runtime.KeepAlive(f)
	}
}

func TestAFloodOfSpansDoesNotDisplaceSpansOfOtherServices(t *testing.T) {
	for what, flood := range map[string]func(i int) string{
		"a service with energy": func(int) string { return "noisy" },
		"invented services":     func(i int) string { return fmt.Sprint("invented ", i) },
	} {
		f := start(t, nil)
		f.limitMemory(200 * itemBytes)
		f.work("noisy", 1<<16, 1, 1)
		f.work("shop", 1<<16+1, 1, 1)
		for i := range 50 {
			f.learn(tracesOf("shop", "GET", "", ptrace.SpanKindServer, numbered(i), spanID{}))
		}
		for i := range 5000 {
			f.learn(tracesOf(flood(i), "GET", "", ptrace.SpanKindServer, numbered(1000+i), spanID{}))
		}
		assert.Positive(t, f.tracker.others.memory.bytes+f.tracker.find("noisy").memory.bytes)
		e := newEnergy()
		for i := range 50 {
			e.add(numbered(i), "", 1)
		}
		f.consume(e)
		assert.EqualValues(t, 50, f.end()["shop GET"], what)
	}
}

func TestEnergyThatWaitsIsCountedIfMemoryIsShort(t *testing.T) {
	f := start(t, nil)
	f.limitMemory(20 * itemBytes)
	e := newEnergy()
	for i := range 100 {
		e.add(numbered(i), "", 1)
	}
	f.consume(e)
	assert.Less(t, len(f.tracker.awaited), 20)
	assert.Equal(t, map[string]int64{"svc": 100}, f.end())
}

// fill remembers many spans, and energy that waits for their parent.
func (f *fixture) fill(n int) {
	td := ptrace.NewTraces()
	e := newEnergy()
	ss := td.ResourceSpans().AppendEmpty().ScopeSpans().AppendEmpty().Spans()
	for i := range n {
		s := ss.AppendEmpty()
		of := numbered(i)
		s.SetTraceID(of.trace)
		s.SetSpanID(of.span)
		s.SetParentSpanID(pcommon.SpanID{2})
		e.add(of, "", 1)
	}
	f.learn(td)
	f.consume(e)
}

// fastest returns the shortest duration of several calls of f. Even on a busy machine, some calls are not preempted.
func fastest(f func()) time.Duration {
	least := time.Hour
	for range 200 {
		began := time.Now()
		f()
		least = min(least, time.Since(began))
	}
	return least
}

func TestABatchTakesNoLongerIfMuchIsRemembered(t *testing.T) {
	empty, full := start(t, nil), start(t, func(c *Config) { c.MemoryLimitMiB = 256 })
	full.fill(100_000)
	require.Len(t, full.tracker.spans, 100_000)
	require.Len(t, full.tracker.awaited, 100_000)
	i := 1 << 20
	for what, batch := range map[string]func(f *fixture){
		"traces": func(f *fixture) {
			i++
			f.learn(tracesOf("shop", "GET", "", ptrace.SpanKindServer, numbered(i), spanID{}))
		},
		"profiles": func(f *fixture) {
			i++
			f.consume(newEnergy().add(numbered(i), "", 1))
		},
	} {
		few, many := fastest(func() { batch(empty) }), fastest(func() { batch(full) })
		t.Logf("%s: %v, %v with 100,000 spans and waiting samples", what, few, many)
		assert.Less(t, many, 20*few, what)
	}
}
