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
	"go.opentelemetry.io/collector/pdata/ptrace"
)

// heapSince returns by how many bytes live objects have grown since before. It tries again until the growth is below
// limit, because package unique frees names in the background.
func heapSince(before, limit int64) (used int64) {
	for range 100 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		if used = int64(m.HeapAlloc) - before; used < limit {
			break
		}
	}
	return used
}

func TestNamesKeepNoMessageInMemory(t *testing.T) {
	f := start(t, func(c *Config) { c.Labels = []string{"tenant", "http.route"} })
	before := heapSince(0, math.MaxInt64)
	for i := range 30 {
		long := strings.Repeat(string(rune('a'+i%26)), 4<<20)
		td := tracesOf(long, long, long, ptrace.SpanKindServer, numbered(i), spanID{})
		data, err := (&ptrace.ProtoMarshaler{}).MarshalTraces(td)
		require.NoError(t, err)
		td, err = (&ptrace.ProtoUnmarshaler{}).UnmarshalTraces(data)
		require.NoError(t, err)
		f.consumeTraces(td)
		e := newEnergy().add(numbered(100+i), strings.Clone(long), 1)
		e.add(numbered(i), strings.Clone(long), 1).add(spanID{}, long, 1)
		e.ResourceProfiles().At(0).Resource().Attributes().PutStr("service.name", strings.Clone(long))
		f.consume(e)
	}
	const few = 1 << 20
	assert.Less(t, heapSince(before, few), int64(few), "of messages with 600 MiB")
	runtime.KeepAlive(f)
}

func TestMemoryIsBounded(t *testing.T) {
	const limit = 8 << 20
	longest := func(i int) string { return fmt.Sprintf("%0*d", maxText, i) }
	for what, add := range map[string]func(f *fixture, first int){
		"long names": func(f *fixture, first int) { // of different services
			for i := range 1000 {
				name := longest(first + i)
				f.consumeTraces(tracesOf(name, name[1:], name[2:], ptrace.SpanKindInternal, numbered(first+i), id(255, 1)))
			}
		},
		"short names": func(f *fixture, first int) {
			for i := range 1000 {
				f.consumeTraces(tracesOf("svc", "GET", "", ptrace.SpanKindInternal, numbered(first+i), id(255, 1)))
			}
		},
		"waiting energy": func(f *fixture, first int) {
			e := newEnergy()
			for i := range 1000 {
				e.add(numbered(first+i), longest(i), 1)
			}
			f.consume(e)
		},
		"series": func(f *fixture, first int) {
			e := newEnergy()
			for i := range 1000 {
				e.add(spanID{}, longest(first+i), 1)
			}
			e.ResourceProfiles().At(0).Resource().Attributes().PutStr("service.name", longest(first))
			f.consume(e)
		},
	} {
		f := start(t, func(c *Config) {
			c.MemoryLimitMiB, c.MaxSeries, c.Labels = limit>>20, math.MaxInt32, []string{"tenant"}
		})
		before := heapSince(0, math.MaxInt64)
		for i := range 50 {
			add(f, 1000*i)
		}
		assert.Less(t, heapSince(before, limit*11/10), int64(limit*11/10), what)
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
		e := newEnergy()
		for i := range 50 {
			f.serve("shop", "GET", numbered(i))
			e.add(numbered(i), "", 1)
		}
		for i := range 5000 {
			f.serve(flood(i), "GET", numbered(1000+i))
		}
		f.consume(e)
		assert.EqualValues(t, 50, f.end()["shop GET"], what)
	}
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
	const many = 100_000 // spans, and energy that waits for their parents
	full := start(t, func(c *Config) { c.MemoryLimitMiB = 256 })
	e := newEnergy()
	for i := range many {
		full.consumeTraces(tracesOf("svc", "", "", ptrace.SpanKindInternal, numbered(i), id(2, 2)))
		e.add(numbered(i), "", 1)
	}
	full.consume(e)
	require.Len(t, full.tracker.spans, many)
	require.Len(t, full.tracker.awaited, many)
	i := 1 << 20
	batch := func(f *fixture) func() {
		return func() {
			i++
			f.serve("shop", "GET", numbered(i))
			f.consume(newEnergy().add(numbered(i), "", 1).add(numbered(1<<23+i), "", 1))
		}
	}
	assert.Less(t, fastest(batch(full)), 20*fastest(batch(start(t, nil))))
}
