// SPDX-License-Identifier: Apache-2.0

package energyspans

import (
	"unique"

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
	id      spanID
	parent  pcommon.SpanID
	isEntry bool // its service began to work with it: a server or consumer span, or the first of its trace
	names   sharedNames
}

// store stores the spans of traces, and counts the energy that waited for them.
func (t *tracker) store(td ptrace.Traces) {
	for _, rs := range td.ResourceSpans().All() {
		service := attributeOf(rs.Resource().Attributes(), "service.name")
		for _, ss := range rs.ScopeSpans().All() {
			for _, of := range ss.Spans().All() {
				t.storeSpan(service, of)
			}
		}
	}
}

// storeSpan stores a span. If two spans have the same ID, it ignores the second.
func (t *tracker) storeSpan(service string, of ptrace.Span) {
	id := spanID{of.TraceID(), of.SpanID()}
	if _, known := t.spans[id]; known || id.trace.IsEmpty() || id.span.IsEmpty() {
		return
	}
	n := names{service: service, route: attributeOf(of.Attributes(), routeAttribute), span: bounded(of.Name())}
	kind := of.Kind()
	s := &span{
		id: id, parent: of.ParentSpanID(), names: unique.Make(n),
		isEntry: kind == ptrace.SpanKindServer || kind == ptrace.SpanKindConsumer || of.ParentSpanID().IsEmpty(),
	}
	t.spans[id] = s
	t.remember(service, s, n.bytes())
	t.resume(id)
	t.shrink()
}

// maxDepth is the maximum number of parents of a span that are looked up.
const maxDepth = 64

// climb follows the parents of a claim's span to the entry span of its service. If a span on the way has not been
// received, climb makes it the claim's span and returns false.
func (t *tracker) climb(c *claim) (complete bool) {
	for ; c.depth < maxDepth && c.span.span != (pcommon.SpanID{}); c.depth++ {
		s := t.spans[c.span]
		if s == nil {
			return false
		}
		if c.depth > 0 && s.names.Value().service != c.names.Value().service {
			return true
		}
		c.names, c.span.span = s.names, s.parent
		if s.isEntry {
			return true
		}
	}
	return true
}
