// SPDX-License-Identifier: Apache-2.0

// Package figure writes figures for people: about three digits, and a unit.
package figure

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/energyreceiver/energyreceiver/internal/units"
)

// Watts returns a power.
func Watts(w float64) string { return prefixed(w, "W") }

// Joules returns an energy in joules.
func Joules(e units.Energy) string { return prefixed(e.Joules(), "J") }

// WattHours returns an energy in watt-hours.
func WattHours(e units.Energy) string { return Wh(e.Joules()) }

// Wh returns an energy in watt-hours. Energies of many machines exceed units.Energy.
func Wh(joules float64) string { return prefixed(joules/3600, "Wh") }

// Grams returns a mass.
func Grams(g float64) string { return prefixed(g, "g") }

// Change returns the change of an energy, with its sign.
func Change(from, to units.Energy) string {
	if to < from {
		return "-" + Joules(from-to)
	}
	return "+" + Joules(to-from)
}

// prefixed returns a number with three digits and the prefix of its unit, from micro to mega.
func prefixed(v float64, unit string) string {
	if v == 0 {
		return "0 " + unit
	}
	if v > 0 && v < 0.005e-6 {
		return "< 0.01 µ" + unit
	}
	prefixes := []string{"µ", "m", "", "k", "M"}
	for v *= 1e6; math.Abs(v) >= 999.5 && len(prefixes) > 1; v /= 1000 {
		prefixes = prefixes[1:]
	}
	decimals := 2
	switch size := math.Abs(v); {
	case size >= 99.95:
		decimals = 0
	case size >= 9.995:
		decimals = 1
	}
	return strconv.FormatFloat(v, 'f', decimals, 64) + " " + prefixes[0] + unit
}

// Share returns a part of a whole in percent, "-" if the whole is 0.
func Share(part, whole units.Energy) string {
	if whole == 0 {
		return "-"
	}
	return fmt.Sprintf("%.1f%%", 100*float64(part)/float64(whole))
}

// Seconds returns a time in seconds, or with a prefix if it is below a second.
func Seconds(d time.Duration) string {
	switch s := d.Seconds(); {
	case s > 0 && s < 1:
		return prefixed(s, "s")
	case s < 10:
		return fmt.Sprintf("%.3f s", s)
	case s < 1000:
		return fmt.Sprintf("%.1f s", s)
	default:
		return fmt.Sprintf("%.0f s", s)
	}
}

// Command returns a command on one line, with the quotes that a shell needs.
func Command(args []string) string {
	quoted := make([]string, len(args))
	for i, arg := range args {
		if arg == "" || strings.ContainsAny(arg, " \t\n'\"\\`$&|;<>()[]{}*?!#~") {
			arg = "'" + strings.ReplaceAll(arg, "'", `'\''`) + "'"
		}
		quoted[i] = Line(arg)
	}
	return strings.Join(quoted, " ")
}
