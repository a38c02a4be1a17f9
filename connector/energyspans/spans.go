// SPDX-License-Identifier: Apache-2.0

package energyspans

import (
	"time"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"
)

// spanID identifies a span.
type spanID struct {
	trace pcommon.TraceID
	span  pcommon.SpanID
}

// span holds the stored properties of a span.
type span struct {
	parent               pcommon.SpanID
	isEntry              bool // it is where its service began to work: a server or consumer span, or the first of its trace
	service, name, route string
}

// spans remembers spans for a time, and at most a number of them.
type spans struct {
	wait  time.Duration
	max   int
	of    map[spanID]span
	queue []remembered // in the order of arrival
}

type remembered struct {
	id spanID
	at time.Time
}

// learn remembers the spans of traces.
func (s *spans) learn(td ptrace.Traces, now time.Time) {
	for _, rs := range td.ResourceSpans().All() {
		service := textOf(rs.Resource().Attributes(), "service.name")
		for _, ss := range rs.ScopeSpans().All() {
			for _, of := range ss.Spans().All() {
				s.add(service, of, now)
			}
		}
	}
	s.expire(now)
}

func (s *spans) add(service string, of ptrace.Span, now time.Time) {
	id := spanID{of.TraceID(), of.SpanID()}
	if _, known := s.of[id]; !known {
		s.queue = append(s.queue, remembered{id, now})
	}
	kind := of.Kind()
	s.of[id] = span{
		parent:  of.ParentSpanID(),
		isEntry: kind == ptrace.SpanKindServer || kind == ptrace.SpanKindConsumer || of.ParentSpanID().IsEmpty(),
		service: service, name: bounded(of.Name()), route: textOf(of.Attributes(), "http.route"),
	}
}

// expire forgets spans that are too old or too many.
func (s *spans) expire(now time.Time) {
	n := 0
	for n < len(s.queue) && (now.Sub(s.queue[n].at) > s.wait || len(s.queue)-n > s.max) {
		delete(s.of, s.queue[n].id)
		n++
	}
	s.queue = append(s.queue[:0], s.queue[n:]...)
}

// maxDepth is the maximum number of parents of a span that are looked up.
const maxDepth = 64

// entry returns the span by which a service began the work that a span is part of. complete is false if it may be
// a parent that is not known yet; entry then returns the outermost known span. ok is false if the span is unknown.
func (s *spans) entry(id spanID) (found span, complete, ok bool) {
	found, ok = s.of[id]
	for range maxDepth {
		if !ok || found.isEntry {
			return found, found.isEntry, ok
		}
		parent, known := s.of[spanID{id.trace, found.parent}]
		if !known || parent.service != found.service {
			return found, known, true
		}
		found = parent
	}
	return found, true, ok
}

// textOf returns a text attribute.
func textOf(of pcommon.Map, name string) string {
	if v, ok := of.Get(name); ok {
		return bounded(v.AsString())
	}
	return ""
}
