// SPDX-License-Identifier: Apache-2.0

package energyspans

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/consumer/consumertest"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/energyreceiver/energyreceiver/feed"
)

// history is a random history of a connector with hostile senders and small limits.
type history struct {
	*fixture
	*rand.Rand
	accepted uint64
}

func (h *history) step() {
	h.time = h.time.Add(time.Duration(h.IntN(40)-1) * time.Second)
	h.next = h.sink
	if h.IntN(4) == 0 {
		h.next = consumertest.NewErr(errors.New("refused"))
	}
	if h.IntN(2) == 0 {
		service := fmt.Sprint("service ", h.IntN(2+h.IntN(8)))
		h.consumeTraces(tracesOf(service, fmt.Sprint("span ", h.IntN(6)), "", ptrace.SpanKind(h.IntN(6)), h.span(), h.span()))
		return
	}
	e := newEnergy()
	for range h.IntN(5) {
		e.add(h.span(), fmt.Sprint(h.IntN(3)), h.Int64N(1e6)-1e3)
	}
	ctx := feed.WithEnergy(context.Background(), uint64(h.Int64N(4e6)))
	if h.IntN(4) == 0 {
		ctx = context.Background()
	}
	newBatch(ctx, e.Profiles, nil).each(func(_ claim, energy uint64) { h.accepted += energy })
	h.consumeAs(ctx, e)
}

func (h *history) span() spanID { return id(byte(h.IntN(4)), byte(h.IntN(6))) }

// held returns the energy that waits, in µJ.
func (h *history) held() (sum uint64) {
	for _, w := range h.tracker.awaited {
		for ; w != nil; w = w.next {
			sum += w.µJ
		}
	}
	return sum
}

// checkBounds compares the counted memory with the stored items, and both with their limits.
func (h *history) checkBounds() {
	used, bytes, live := 0, 0, 0
	for _, of := range h.tracker.all {
		inMemory := 0
		for e := of.memory.Front(); e != nil; e = e.Next() {
			i := e.Value.(*item)
			if w, ok := i.of.(*waiting); ok {
				require.Equal(h, itemBytes+w.bytes(), i.bytes)
			}
			inMemory += i.bytes
		}
		require.Equal(h, inMemory, of.memory.bytes)
		used += inMemory
		if of != h.tracker.others {
			bytes += serviceBytes + len(of.name)
		}
		for k := range of.series {
			live++
			bytes += k.bytes()
		}
	}
	require.Equal(h, []int{used, bytes, live}, []int{h.tracker.used, h.tracker.bytes, h.tracker.live})
	require.LessOrEqual(h, used+bytes, h.tracker.limit)
	require.LessOrEqual(h, live, h.cfg.MaxSeries+len(h.tracker.all), "with overflow series")
	require.LessOrEqual(h, len(h.tracker.all)-1, h.cfg.MaxSeries/4)
	require.Len(h, h.tracker.byName, len(h.tracker.all))
}

// delivered returns the energy of all series that the next component received, and checks that no sum decreases.
func (h *history) delivered() (sum uint64) {
	last := map[string]point{}
	for _, md := range h.sink.AllMetrics() {
		for _, p := range pointsOf(h, md) {
			before, known := last[p.name]
			switch {
			case !known || p.start.After(before.start):
				sum += uint64(p.energy)
			default:
				require.Equal(h, before.start, p.start)
				require.GreaterOrEqual(h, p.energy, before.energy)
				sum += uint64(p.energy - before.energy)
			}
			require.True(h, p.at.After(before.at), "%v after %v", p, before)
			require.False(h, p.start.Before(before.start) || p.start.After(p.at))
			last[p.name] = p
		}
	}
	return sum
}

func TestEnergyIsConservedForAllInputsInAnyOrder(t *testing.T) {
	for seed := range uint64(500) {
		r := rand.New(rand.NewPCG(seed, 43))
		f := start(t, func(c *Config) {
			c.MaxSeries, c.Labels, c.Expiration = 4+r.IntN(20), []string{"tenant"}, time.Duration(10+r.IntN(200))*time.Second
		})
		f.limitMemory((4 + r.IntN(40)) * itemBytes)
		h := &history{fixture: f, Rand: r}
		for range 60 {
			h.step()
			h.checkBounds()
		}
		h.next = h.sink
		h.time = h.time.Add(time.Minute)
		require.NoError(t, profiles{h.energySpans}.Shutdown(t.Context()))
		require.Zero(t, h.held())
		require.Equal(t, h.accepted, h.delivered(), "seed %d", seed)
	}
}
