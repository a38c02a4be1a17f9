// SPDX-License-Identifier: Apache-2.0

package model

import (
	"fmt"
	"io"
	"math"
	"strconv"

	"github.com/energyreceiver/energyreceiver/internal/drivers"
	"github.com/energyreceiver/energyreceiver/internal/power"
)

// hostSections returns the sections of the meters that can have the ID host.
func hostSections() (keys []string) {
	for _, driver := range drivers.All {
		if driver.Corrected {
			keys = append(keys, driver.Key())
		}
	}
	return keys
}

// sectionOf returns the section of the receiver's setting meters that corrects the meter with a
// hw.id. It may be empty, and is host for an ID that does not name the section.
func sectionOf(id string) string {
	if id == host {
		return host
	}
	return drivers.CorrectedBy(id)
}

// lagSetting returns a lag in seconds as a setting, empty if it is too short to be worth one.
func lagSetting(lag float64) string {
	if lag < 0.5 {
		return ""
	}
	return strconv.FormatFloat(rounded(min(lag, power.MaxLag.Seconds()), 10), 'f', -1, 64) + "s"
}

// writeMeters writes the comparison of the meters, the settings that correct them, and the meters that
// cannot be corrected. Meters that share a section have no settings, because these would apply to all.
func (f *Fitted) writeMeters(out io.Writer) {
	fmt.Fprint(out, "\nMETER                       ERROR   FACTOR    OFFSET   RESIDUAL: MEDIAN           LAG\n")
	meters := map[string]int{} // by section
	for _, m := range f.meters {
		if m.err != nil {
			fmt.Fprintf(out, "%-24s %v\n", m.name, m.err)
			continue
		}
		meters[sectionOf(m.name)]++
		fmt.Fprintf(out, "%-24s %+7.1f%% %8.4f %+7.1f W   %-26s %+.1f s\n",
			m.name, 100*m.before, m.factor, m.offset, errorText(m.errs), m.lag)
	}
	fmt.Fprint(out, "The reference is FACTOR x the meter + OFFSET.\n")
	settings, notes := "", ""
	for _, m := range f.meters {
		section := sectionOf(m.name)
		if section == "" || m.err != nil {
			continue
		}
		if reason := m.outOfBounds(); reason != "" {
			notes += fmt.Sprintf("\n%s cannot be corrected: %s.\n", m.name, reason)
		} else if meters[section] == 1 {
			settings += m.settings(section)
		}
	}
	if settings != "" {
		fmt.Fprint(out, "\nThese lines correct the meters:\n\nreceivers:\n  energy:\n    meters:\n", settings)
	}
	fmt.Fprint(out, notes)
}

// outOfBounds returns why the receiver would reject the correction of a meter, empty if it would not.
func (c *comparison) outOfBounds() string {
	const least, most = float64(power.MinFactor) / power.Unscaled, power.MaxFactor / power.Unscaled
	const watts = float64(power.MaxOffset) / 1e6
	switch {
	case !(c.factor >= least && c.factor <= most):
		return fmt.Sprintf("the factor %.4f is not between %g and %d", c.factor, least, most)
	case !(math.Abs(c.offset) <= watts):
		return fmt.Sprintf("the offset %.1f W is not between %.0f and %.0f W", c.offset, -watts, watts)
	}
	return ""
}

// settings returns the lines that correct the meter of a section. For host they are comments.
func (c *comparison) settings(section string) string {
	settings := fmt.Sprintf("factor: %.4f, offset: %.1f", c.factor, c.offset)
	if lag := lagSetting(c.lag); lag != "" {
		settings = "lag: " + lag + ", " + settings
	}
	if section != host {
		return fmt.Sprintf("      %s: {%s}\n", section, settings)
	}
	lines := `      # Uncomment the meter that the receiver's log names for the zone platform ("Meter selected"):` + "\n"
	for _, section := range hostSections() {
		lines += fmt.Sprintf("      # %s: {%s}\n", section, settings)
	}
	return lines
}
