// SPDX-License-Identifier: Apache-2.0

package energyspans

import (
	"cmp"
	"container/list"
	"time"
)

// waiting is energy of samples whose span, or a parent of it, has not been received.
type waiting struct {
	claim
	µJ         uint64
	next, prev *waiting // that wait for the same span
	in         *memory
	element    *list.Element
}

// claim says which energy waits, and for what.
type claim struct {
	since   time.Time
	profile sharedNames // of the profile
	labels  string
	names   sharedNames // of the outermost span of its service that has been received, at first those of the profile
	span    spanID      // whose names are needed
	depth   int         // spans below span
}

// bytes returns the bytes of all texts, which a claim may hold alone.
func (c *claim) bytes() int {
	profile, names := c.profile.Value(), c.names.Value()
	return len(c.labels) + profile.bytes() + names.bytes()
}

// add counts energy, now or once its span has been received.
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
	s.energy = add(s.energy, µJ)
	s.added, s.complete = t.now, t.flushes+1
}

// merge adds energy to the energy of the same batch that has the same names and waits for the same span.
func (t *tracker) merge(c *claim, µJ uint64) bool {
	w := t.awaited[c.span]
	if w == nil || w.claim != *c {
		return false
	}
	w.µJ = add(w.µJ, µJ)
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

// resume goes on with the energy that waited for a span. Energy that then waits for a parent keeps its time.
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
