// SPDX-License-Identifier: Apache-2.0

// Package zone orders zone kinds for display, and reports overlapping zone kinds, whose energies
// must not be added up.
package zone

import (
	"cmp"
	"slices"
)

// overlapping maps a zone kind to the zone kinds that overlap with it.
var overlapping = map[string][]string{
	"package":  {"core", "uncore", "psys", "platform"},
	"platform": {"core", "uncore", "psys", "gpu"},
	"psys":     {"core", "uncore"},
}

// Besides returns the zone kind of names that the zone kind name overlaps with. It returns "" if
// there is no overlap, so that energies can be added up.
func Besides(name string, names []string) string {
	whole := whole(names)
	if name != whole && slices.Contains(overlapping[whole], name) {
		return whole
	}
	return ""
}

// whole returns the zone kind that contains the CPU packages: the first of package, platform and
// psys that is in names, or "".
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
