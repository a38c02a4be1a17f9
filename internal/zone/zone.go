// SPDX-License-Identifier: Apache-2.0

// Package zone knows in which order zone kinds are shown, and which of them overlap, so that their
// energies are not added up.
package zone

import (
	"cmp"
	"slices"
)

// overlapping has the zone kinds that overlap with one.
var overlapping = map[string][]string{
	"package":  {"core", "uncore", "psys", "platform"},
	"platform": {"core", "uncore", "psys", "gpu"},
	"psys":     {"core", "uncore"},
}

// Besides returns the zone kind with which one of these names overlaps, empty if its energy is
// added to that of the others.
func Besides(name string, names []string) string {
	whole := whole(names)
	if name != whole && slices.Contains(overlapping[whole], name) {
		return whole
	}
	return ""
}

// whole returns package, else the zone kind that stands in for it, empty if there is none.
func whole(names []string) string {
	for _, name := range []string{"package", "platform", "psys"} {
		if slices.Contains(names, name) {
			return name
		}
	}
	return ""
}

// Compare sorts package first, then dram, then gpu, then the rest by name.
func Compare(a, b string) int { return cmp.Or(cmp.Compare(rank(a), rank(b)), cmp.Compare(a, b)) }

func rank(name string) int {
	first := []string{"package", "dram", "gpu"}
	if i := slices.Index(first, name); i >= 0 {
		return i
	}
	return len(first)
}
