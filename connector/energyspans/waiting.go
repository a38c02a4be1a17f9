// SPDX-License-Identifier: Apache-2.0

package energyspans

import (
	"cmp"
	"container/list"
	"time"

	"github.com/energyreceiver/energyreceiver/internal/units"
)

// waiting is energy of samples whose span, or a parent of the span, has not been received.
type waiting struct {
	claim
	µJ         uint64
	next, prev *waiting // list of the energy that waits for the same span
	in         *memory
	element    *list.Element
}

// claim holds the names of energy and the span that determines them.
type claim struct {
	since   time.Time
	profile sharedNames // names from the profile
	labels  string
	names   sharedNames // names of the service's outermost span that has been received; at first, equal to profile
	span    spanID      // the span to look up next
	depth   int         // number of spans below span
}

// bytes returns the size of all texts. No other claim may share them.
func (c *claim) bytes() int {
	profile, names := c.profile.Value(), c.names.Value()
	return len(c.labels) + profile.bytes() + names.bytes()
}

// add counts energy, either now or when its span is received.
func (t *tracker) add(c claim, µJ uint64) {
	c.since = t.now
	switch {
	case t.climb(&c):
		t.count(&c, µJ)
	case !t.merge(&c, µJ):
		w := &waiting{claim: c, µJ: µJ}
		w.in, w.element = t.remember(c.names.Value().service, w, c.bytes())
		t.await(w)
	}
	t.shrink()
}

// count adds energy to its series.
func (t *tracker) count(c *claim, µJ uint64) {
	n := c.names.Value()
	k := key{route: cmp.Or(n.route, c.profile.Value().route), span: n.span, labels: c.labels}
	s := t.seriesOf(n.service, k, t.now)
	s.energy = units.AddSaturating(s.energy, µJ)
	s.added, s.complete = t.now, t.flushes+1
}

// merge adds energy to waiting energy of the same batch with the same claim. It returns false if no such energy waits.
func (t *tracker) merge(c *claim, µJ uint64) bool {
	w := t.awaited[c.span]
	if w == nil || w.claim != *c {
		return false
	}
	w.µJ = units.AddSaturating(w.µJ, µJ)
	return true
}

// await adds energy to the list of its span.
func (t *tracker) await(w *waiting) {
	if w.next = t.awaited[w.span]; w.next != nil {
		w.next.prev = w
	}
	t.awaited[w.span] = w
}

// unawait removes energy from the list of its span.
func (t *tracker) unawait(w *waiting) {
	if w.next != nil {
		w.next.prev = w.prev
	}
	switch {
	case w.prev != nil:
		w.prev.next = w.next
	case w.next != nil:
		t.awaited[w.span] = w.next
	default:
		delete(t.awaited, w.span)
	}
}

// resume counts the energy that waited for a span. Energy that must wait for a parent of the span
// keeps its time of arrival.
func (t *tracker) resume(id spanID) {
	w := t.awaited[id]
	delete(t.awaited, id)
	for w != nil {
		next := w.next
		w.next, w.prev = nil, nil
		switch {
		case t.climb(&w.claim):
			t.forget(w.in, w.element)
			t.count(&w.claim, w.µJ)
		case t.merge(&w.claim, w.µJ):
			t.forget(w.in, w.element)
		default:
			t.resize(w.in, w.element, itemBytes+w.bytes())
			t.await(w)
		}
		w = next
	}
}
