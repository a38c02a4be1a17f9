// SPDX-License-Identifier: Apache-2.0

package main

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestTheSectionOfAMeterFollowsFromItsZone(t *testing.T) {
	for id, want := range map[string]string{
		"host": "METER", "ipmi0": "ipmi", "ipmi": "ipmi", "redfish:4c4c4544-0042": "redfish", "http:feed-a": "http/feed-a",
		"ACPI000D:00:power1": "hwmon", "0-0040:VDD_IN": "hwmon",
		"intel-rapl:1": "", "intel-rapl-mmio:0": "", "power:energy-psys:0": "", "pm_counters:energy": "", "model:0": "", "CPUs and memory": "",
	} {
		assert.Equal(t, want, sectionOf(id), id)
	}
}

func TestALagIsASettingOfTheReceiver(t *testing.T) {
	for lag, want := range map[float64]string{-3: "", 0.4: "", 0.5: "0.5s", 29.54: "29.5s", 12: "12s", 150: "120s"} {
		assert.Equal(t, want, lagSetting(lag))
	}
}
