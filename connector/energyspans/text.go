// SPDX-License-Identifier: Apache-2.0

package energyspans

import (
	"strings"
	"unique"

	"go.opentelemetry.io/collector/pdata/pcommon"
)

// maxText is the maximum length of a name or a value of a label, in bytes.
const maxText = 256

// routeAttribute is an attribute of spans and of series. If a span has no route, the label of this name is used.
const routeAttribute = "http.route"

// bounded returns valid UTF-8 of at most maxText bytes. It may be part of s, which keeps all of s in memory.
func bounded(s string) string {
	if len(s) > maxText {
		s = s[:maxText]
	}
	return strings.ToValidUTF8(s, "")
}

// textOf returns a scalar value as text. It returns "" for maps, slices and bytes, because their
// texts can be very long.
func textOf(v pcommon.Value) string {
	switch v.Type() {
	case pcommon.ValueTypeStr, pcommon.ValueTypeBool, pcommon.ValueTypeInt, pcommon.ValueTypeDouble:
		return bounded(v.AsString())
	default:
		return ""
	}
}

// attributeOf returns an attribute as text, or "" if the attribute is missing.
func attributeOf(of pcommon.Map, name string) string {
	if v, ok := of.Get(name); ok {
		return textOf(v)
	}
	return ""
}

// names holds the names of a service, an HTTP route and a span. Empty names are absent.
type names struct{ service, route, span string }

// sharedNames refers to a copy of names that all spans with these names share. A copy does not keep
// the message in memory.
type sharedNames = unique.Handle[names]

func (n *names) bytes() int { return len(n.service) + len(n.route) + len(n.span) }
