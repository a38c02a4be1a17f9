// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"math"
	"regexp"
	"strconv"
	"strings"

	"github.com/energyreceiver/energyreceiver/internal/power"
)

// meterSections are the sections of the receiver's meters that have the settings lag, factor and
// offset, by the hw.id of their zones. Meters that come before hwmon and have no such settings have
// an empty section.
var meterSections = []struct {
	id      *regexp.Regexp
	section string
}{
	{regexp.MustCompile(`^host$`), wholeMachine},
	{regexp.MustCompile(`^http:(.+)$`), "http/$1"},
	{regexp.MustCompile(`^redfish:`), "redfish"},
	{regexp.MustCompile(`^ipmi\d*$`), "ipmi"},
	{regexp.MustCompile(`^[0-9a-f]+:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]:`), ""}, // a PCI device is not the whole machine
	{regexp.MustCompile(`^(intel-rapl|amd|power|power_core|pm_counters|model)[^:]*:`), ""},
	{regexp.MustCompile(`^[^:]+:`), "hwmon"},
}

// wholeMachine stands for the section of the meter of hw.host.energy, which does not name its meter.
const wholeMachine = "host"

// wholeMachineSections are the sections of the meters that can measure the whole machine.
var wholeMachineSections = []string{"ipmi", "redfish", "hwmon", "http/NAME"}

// sectionOf returns the section that corrects the meter of a zone, empty if there is none.
func sectionOf(id string) string {
	for _, s := range meterSections {
		if match := s.id.FindStringSubmatchIndex(id); match != nil {
			return string(s.id.ExpandString(nil, s.section, id, match))
		}
	}
	return ""
}

// leastLag is the shortest lag that is worth a setting, in seconds.
const leastLag = 0.5

// lagSetting returns a lag in seconds as a setting, empty if it is none.
func lagSetting(lag float64) string {
	if lag < leastLag {
		return ""
	}
	return strconv.FormatFloat(math.Round(10*min(lag, power.MaxLag.Seconds()))/10, 'f', -1, 64) + "s"
}

// outOfBounds returns why the receiver does not accept the correction of a meter, empty if it does.
func (m *comparedMeter) outOfBounds() string {
	const least, most, watts = float64(power.MinFactor) / power.Unscaled, power.MaxFactor / power.Unscaled, float64(power.MaxOffset) / 1e6
	switch {
	case !(m.line.Factor >= least && m.line.Factor <= most):
		return fmt.Sprintf("the factor %.4f is not between %g and %d", m.line.Factor, least, most)
	case !(math.Abs(m.line.Offset) <= watts):
		return fmt.Sprintf("the offset %.1f W is not between %.0f and %.0f W", m.line.Offset, -watts, watts)
	}
	return ""
}

// settingsLines returns the lines that correct the meter of a section. If the meter is not known, there is a comment
// for each meter that it can be.
func settingsLines(section, settings string) string {
	if section != wholeMachine {
		return fmt.Sprintf("      %s: {%s}\n", section, settings)
	}
	lines := "      # Uncomment the meter that the collector's log names for the zone platform (\"Meter selected\"):\n"
	for _, section := range wholeMachineSections {
		lines += fmt.Sprintf("      # %s: {%s}\n", section, settings)
	}
	return lines
}

// renderCorrections writes the settings that correct the meters of the collector, and the meters
// that cannot be corrected.
func (f *fitted) renderCorrections(out io.Writer) {
	lines, times := map[string]string{}, map[string]int{}
	var order, notes []string
	for _, m := range f.meters {
		section := sectionOf(m.name)
		if section == "" || m.err != nil {
			continue
		}
		var settings []string
		if lag := lagSetting(m.lag); lag != "" {
			settings = append(settings, "lag: "+lag)
		}
		settings = append(settings, fmt.Sprintf("factor: %.4f", m.line.Factor), fmt.Sprintf("offset: %.1f", m.line.Offset))
		if times[section]++; times[section] == 1 {
			order = append(order, section)
		}
		if reason := m.outOfBounds(); reason != "" {
			notes = append(notes, fmt.Sprintf("\n%s cannot be corrected: %s.\n", m.name, reason))
			continue
		}
		lines[section] = settingsLines(section, strings.Join(settings, ", "))
	}
	header := "\nThese lines correct the meters:\n\nreceivers:\n  energy:\n    meters:\n"
	for _, section := range order {
		if times[section] == 1 && lines[section] != "" { // else no setting fits all of its zones
			fmt.Fprint(out, header, lines[section])
			header = ""
		}
	}
	fmt.Fprint(out, strings.Join(notes, ""))
}
