// SPDX-License-Identifier: Apache-2.0

package energyspans

import (
	"strings"
	"unique"

	"go.opentelemetry.io/collector/pdata/pcommon"
)

// maxText is the maximum length of a name or a value of a label, in bytes.
const maxText = 256

// routeAttribute is an attribute of spans and of series. The label of that name counts if a span has no such attribute.
const routeAttribute = "http.route"

// bounded returns valid UTF-8 of at most maxText bytes. It may be part of s, which keeps all of s in memory.
func bounded(s string) string {
	if len(s) > maxText {
		s = s[:maxText]
	}
	return strings.ToValidUTF8(s, "")
}

// textOf returns a scalar value as text, and "" for maps, slices and bytes, whose texts may be as long as the message.
func textOf(v pcommon.Value) string {
	switch v.Type() {
	case pcommon.ValueTypeStr, pcommon.ValueTypeBool, pcommon.ValueTypeInt, pcommon.ValueTypeDouble:
		return bounded(v.AsString())
	default:
		return ""
	}
}

// attributeOf returns an attribute as text, "" if there is none.
func attributeOf(of pcommon.Map, name string) string {
	if v, ok := of.Get(name); ok {
		return textOf(v)
	}
	return ""
}

// names names work by its service, HTTP route and span. Empty names are absent.
type names struct{ service, route, span string }

// sharedNames refers to one copy of names for all spans that have them. As a copy, it keeps no message in memory.
type sharedNames = unique.Handle[names]

func (n *names) bytes() int { return len(n.service) + len(n.route) + len(n.span) }
