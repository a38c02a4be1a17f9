// SPDX-License-Identifier: Apache-2.0

// Package figure writes figures for people: about three digits, and a unit.
package figure

import (
	"fmt"
	"strings"
	"time"

	"github.com/energyreceiver/energyreceiver/internal/units"
)

// Watts returns a power.
func Watts(w float64) string {
	switch {
	case w > 0 && w < 0.01:
		return fmt.Sprintf("%.2f mW", 1e3*w)
	case w > 0 && w < 1:
		return fmt.Sprintf("%.0f mW", 1e3*w)
	case w < 10:
		return fmt.Sprintf("%.2f W", w)
	default:
		return fmt.Sprintf("%.1f W", w)
	}
}

// Joules returns an energy in joules.
func Joules(e units.Energy) string {
	switch j := e.Joules(); {
	case j > 0 && j < 1e-5:
		return fmt.Sprintf("%.0f µJ", 1e6*j)
	case j > 0 && j < 0.01:
		return fmt.Sprintf("%.2f mJ", 1e3*j)
	case j > 0 && j < 1:
		return fmt.Sprintf("%.0f mJ", 1e3*j)
	case j < 100:
		return fmt.Sprintf("%.2f J", j)
	case j < 10_000:
		return fmt.Sprintf("%.1f J", j)
	case j < 10_000_000:
		return fmt.Sprintf("%.1f kJ", j/1e3)
	default:
		return fmt.Sprintf("%.1f MJ", j/1e6)
	}
}

// WattHours returns an energy in watt-hours.
func WattHours(e units.Energy) string {
	switch wh := e.Joules() / 3600; {
	case wh > 0 && wh < 1e-4:
		return fmt.Sprintf("%.1f µWh", 1e6*wh)
	case wh > 0 && wh < 1:
		return digits(1e3*wh) + " mWh"
	case wh < 1000:
		return digits(wh) + " Wh"
	default:
		return digits(wh/1e3) + " kWh"
	}
}

// Grams returns a mass.
func Grams(g float64) string {
	switch {
	case g > 0 && g < 1e-3:
		return digits(1e6*g) + " µg"
	case g > 0 && g < 1:
		return digits(1e3*g) + " mg"
	case g < 1000:
		return digits(g) + " g"
	default:
		return digits(g/1e3) + " kg"
	}
}

// digits returns a number with about three digits: 0, or at least 0.1.
func digits(v float64) string {
	switch {
	case v == 0 || v >= 99.95:
		return fmt.Sprintf("%.0f", v)
	case v < 9.995:
		return fmt.Sprintf("%.2f", v)
	default:
		return fmt.Sprintf("%.1f", v)
	}
}

// Share returns a part of a whole in percent, "-" if the whole is 0.
func Share(part, whole units.Energy) string {
	if whole == 0 {
		return "-"
	}
	return fmt.Sprintf("%.1f%%", 100*float64(part)/float64(whole))
}

// Seconds returns a time in seconds.
func Seconds(d time.Duration) string {
	switch s := d.Seconds(); {
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
