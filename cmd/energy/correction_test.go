// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/energyreceiver/energyreceiver/cmd/energy/internal/calibration"
)

func TestTheSectionOfAMeterFollowsFromItsZone(t *testing.T) {
	for id, want := range map[string]string{
		"host": wholeMachine, "ipmi0": "ipmi", "ipmi": "ipmi", "redfish:4c4c4544-0042": "redfish", "http:feed-a": "http/feed-a",
		"ACPI000D:00:power1": "hwmon", "0-0040:VDD_IN": "hwmon", "0000:03:00.0:PPT": "",
		"intel-rapl:1": "", "intel-rapl-mmio:0": "", "power:energy-psys:0": "", "pm_counters:energy": "", "model:0": "", "CPUs and memory": "",
	} {
		assert.Equal(t, want, sectionOf(id), id)
	}
}

func TestACorrectionOfAnUnnamedMeterIsACommentForEachMeter(t *testing.T) {
	f := fitted{meters: []comparedMeter{
		{name: "host", line: calibration.Line{Factor: 1.051, Offset: 3}}, {name: "ipmi0", line: calibration.Line{Factor: 2}},
	}}
	var out bytes.Buffer
	f.renderCorrections(&out)
	assert.Equal(t, `
These lines correct the meters:

receivers:
  energy:
    meters:
      # Uncomment the meter that the collector's log names for the zone platform ("Meter selected"):
      # ipmi: {factor: 1.0510, offset: 3.0}
      # redfish: {factor: 1.0510, offset: 3.0}
      # hwmon: {factor: 1.0510, offset: 3.0}
      # http/NAME: {factor: 1.0510, offset: 3.0}
      ipmi: {factor: 2.0000, offset: 0.0}
`, out.String())
}

func TestALagIsASettingOfTheReceiver(t *testing.T) {
	for lag, want := range map[float64]string{-3: "", 0.4: "", 0.5: "0.5s", 29.54: "29.5s", 12: "12s", 150: "120s"} {
		assert.Equal(t, want, lagSetting(lag))
	}
}

// The receiver would refuse a configuration with such settings.
func TestACorrectionThatTheReceiverRefusesIsNotPrinted(t *testing.T) {
	for want, line := range map[string]calibration.Line{
		"\nipmi0 cannot be corrected: the factor 0.0500 is not between 0.1 and 10.\n":                                                {Factor: 0.05},
		"\nipmi0 cannot be corrected: the factor -1.0000 is not between 0.1 and 10.\n":                                               {Factor: -1},
		"\nipmi0 cannot be corrected: the offset -10500.0 W is not between -10000 and 10000 W.\n":                                    {Factor: 1, Offset: -10500},
		"\nThese lines correct the meters:\n\nreceivers:\n  energy:\n    meters:\n      ipmi: {factor: 10.0000, offset: -10000.0}\n": {Factor: 10, Offset: -10000},
	} {
		f := fitted{meters: []comparedMeter{{name: "ipmi0", line: line}}}
		var out bytes.Buffer
		f.renderCorrections(&out)
		assert.Equal(t, want, out.String())
	}
}
