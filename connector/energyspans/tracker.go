// SPDX-License-Identifier: Apache-2.0

package energyspans

import (
	"container/list"
	"time"
)

// tracker stores spans and sums energy by their names. The energy of all series, including ended
// series, plus the energy that waits for spans equals the energy that was added. A tracker is not
// safe for concurrent use.
type tracker struct {
	cfg   *Config
	limit int       // maximum of used plus the memory of series, in bytes
	now   time.Time // never goes back

	used    int // size of all memories in bytes
	spans   map[spanID]*span
	awaited map[spanID]*waiting // waiting energy by the missing span
	evicted int64               // number of spans and of waiting energies that were removed early, for lack of memory
	services
}

func newTracker(cfg *Config) *tracker {
	return &tracker{
		cfg: cfg, limit: cfg.MemoryLimitMiB << 20, spans: map[spanID]*span{}, awaited: map[spanID]*waiting{},
		services: newServices(cfg),
	}
}

// advance sets the time, and removes spans and waiting energy that are too old.
func (t *tracker) advance(now time.Time) {
	if now.After(t.now) {
		t.now = now
	}
	t.forgetBefore(t.now.Add(-t.cfg.Wait))
	t.shrink()
}

// forgetBefore removes spans and waiting energy that arrived before a time.
func (t *tracker) forgetBefore(limit time.Time) {
	for _, s := range t.all {
		for s.memory.Len() > 0 && s.memory.Front().Value.(*item).since.Before(limit) {
			t.forgetOldest(&s.memory)
		}
	}
}

// itemBytes is the memory of a span or of waiting energy without its texts. It covers the item, its
// entries in a map and in a list, and the entry of its names in package unique.
const itemBytes = 512

// memory holds the spans of a service and the energy that waits for spans of it, in the order of arrival. Each service
// with energy has a memory, so that many spans of one service do not displace the spans of another. All other services
// share one, because senders may invent any number of services.
type memory struct {
	list.List // of *span and *waiting
	bytes     int
}

// item is an item of a memory.
type item struct {
	bytes int
	since time.Time
	of    any // *span or *waiting
}

// remember adds a span or waiting energy to the memory of a service. text is the size of its texts in bytes.
func (t *tracker) remember(service string, of any, text int) (*memory, *list.Element) {
	m := &t.find(service).memory
	e := m.PushBack(&item{since: t.now, of: of})
	t.resize(m, e, itemBytes+text)
	return m, e
}

// resize sets the bytes of an item.
func (t *tracker) resize(m *memory, e *list.Element, bytes int) {
	i := e.Value.(*item)
	m.bytes += bytes - i.bytes
	t.used += bytes - i.bytes
	i.bytes = bytes
}

// forget removes an item from a memory.
func (t *tracker) forget(m *memory, e *list.Element) {
	t.resize(m, e, 0)
	m.Remove(e)
}

// forgetOldest removes the oldest item of a memory. Waiting energy is counted with the names that were received.
func (t *tracker) forgetOldest(m *memory) {
	front := m.Front()
	switch of := front.Value.(*item).of.(type) {
	case *span:
		t.forget(m, front)
		delete(t.spans, of.id)
	case *waiting:
		t.forget(m, front)
		t.unawait(of)
		t.count(&of.claim, of.µJ)
	}
}

// shrink removes the oldest items of the largest memory until the limit is met. It removes several items at a time,
// because finding the largest memory takes longer.
func (t *tracker) shrink() {
	for t.used+t.bytes > t.limit {
		m := t.largest()
		if m.Len() == 0 {
			return
		}
		for range min(m.Len(), 16) {
			t.forgetOldest(m)
			t.evicted++
		}
	}
}
