// SPDX-License-Identifier: Apache-2.0

package emissions

import (
	"hash/maphash"
	"strings"

	"go.opentelemetry.io/collector/pdata/pcommon"
)

// identities computes identities of series: 64-bit hashes with a secret seed. The probability that
// two of 50,000 series have the same identity is 1 in 10 billion.
type identities struct{ seed maphash.Seed }

func newIdentities() identities { return identities{maphash.MakeSeed()} }

// text returns the identity of a text.
func (i identities) text(s string) uint64 { return maphash.String(i.seed, s) }

// attribute returns the identity of an attribute.
func (i identities) attribute(key string, v pcommon.Value) uint64 {
	var value uint64
	switch v.Type() {
	case pcommon.ValueTypeStr:
		value = i.text(v.Str())
	case pcommon.ValueTypeInt:
		value = maphash.Comparable(i.seed, v.Int())
	default:
		value = i.text(v.AsString())
	}
	return mix(i.text(key), value)
}

// attributes returns the identity of attributes, whatever their order.
func (i identities) attributes(m pcommon.Map) (id uint64) {
	for k, v := range m.All() {
		id += i.attribute(k, v)
	}
	return id
}

// identity identifies a resource or a scope, and the component that measured it.
type identity struct{ id, origin uint64 }

// in returns the identity of a scope in a resource.
func (i identity) in(scope uint64) identity { return identity{mix(i.id, scope), mix(i.origin, scope)} }

// resource returns the identity of a resource. The identity of its origin consists of the
// attributes that name a machine or an instance.
func (i identities) resource(m pcommon.Map) identity {
	of := identity{1, 1}
	for k, v := range m.All() {
		a := i.attribute(k, v)
		of.id += a
		if namesOrigin(k) {
			of.origin += a
		}
	}
	return of
}

// namesOrigin reports whether a resource attribute names what measured: a machine, or an instance
// of a service.
func namesOrigin(key string) bool {
	return strings.HasPrefix(key, "host.") || strings.HasPrefix(key, "k8s.node.") || strings.HasPrefix(key, "k8s.cluster.") ||
		strings.HasPrefix(key, "service.")
}

// scope returns the identity of an instrumentation scope.
func (i identities) scope(s pcommon.InstrumentationScope) uint64 {
	return mix(mix(i.text(s.Name()), i.text(s.Version())), i.attributes(s.Attributes()))
}

// mix returns the identity of a pair.
func mix(a, b uint64) uint64 {
	a ^= b * 0x9e3779b97f4a7c15 // the golden ratio, as an odd number
	a ^= a >> 32
	a *= 0xd6e8feb86659fd93
	return a ^ a>>29
}
