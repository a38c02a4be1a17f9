// SPDX-License-Identifier: Apache-2.0

package powercap

import (
	"strings"

	"github.com/energyreceiver/energyreceiver/internal/power"
	"github.com/energyreceiver/energyreceiver/internal/units"
)

// KindOf returns the kind of the zone with the name, and reports whether it is a zone of RAPL.
// Packages are called package-N, on CPUs of several dies package-N-die-M, and the platform zone of
// a package other than the first psys-N (drivers/powercap/intel_rapl_common.c, rapl_add_package and
// rapl_init_domains).
func KindOf(name string) (power.Kind, bool) {
	switch k := power.Kind(name); k {
	case power.Core, power.Uncore, power.DRAM, power.PSys:
		return k, true
	}
	if number, ok := strings.CutPrefix(name, "psys-"); ok && isDigits(number) {
		return power.PSys, true
	}
	// The driver always numbers its packages; dtpm has one without a number.
	rest, ok := strings.CutPrefix(name, "package-")
	if !ok {
		return "", false
	}
	socket, die, dies := strings.Cut(rest, "-die-")
	if !isDigits(socket) || dies && !isDigits(die) {
		return "", false
	}
	return power.Package, true
}

// domainOf returns the domain of the zone with the qualified name: its package, or the node's CPUs
// for a zone without a package.
func domainOf(qualified string) units.Domain {
	top, _, _ := strings.Cut(qualified, "/")
	if kind, _ := KindOf(top); kind == power.Package {
		return units.Domain(top)
	}
	return units.NodeCPUs
}

func isDigits(s string) bool {
	return s != "" && strings.Trim(s, "0123456789") == ""
}

// controlOf returns the control type in a zone's ID: "intel-rapl" of "intel-rapl:0:1".
func controlOf(id string) string {
	control, _, _ := strings.Cut(id, ":")
	return control
}

// ParentOf returns the ID of the parent of a zone, or "" if the zone has no parent.
func ParentOf(id string) string {
	parent := id[:max(strings.LastIndexByte(id, ':'), 0)]
	if !strings.Contains(parent, ":") {
		return "" // the control type
	}
	return parent
}
