// SPDX-License-Identifier: Apache-2.0

package hwmon

import (
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/energyreceiver/energyreceiver/internal/power"
	"github.com/energyreceiver/energyreceiver/internal/units"
)

func TestNamedSensorsAreZonesOfTheirKind(t *testing.T) {
	tr := newTree(t, "ina_unknown_board")
	tr.bubble(t, Options{Sensors: []Sensor{
		{Chip: "ina226", Device: "1-0041", Sensor: "power1", Kind: power.Platform},
		{Chip: "ina226", Device: "2-0041", Sensor: "power1", Kind: power.Platform},
		{Chip: "ltc2947", Sensor: "Power", Kind: power.GPU},
		{Chip: "ina3221", Sensor: "VDD_IN", Kind: power.Package},
	}}, func(t *testing.T, m *Meter) {
		assert.Equal(t, []string{
			"gpu 2-005c:Power", "package 1-0040:VDD_IN", "platform 1-0041:power1", "platform 2-0041:power1",
		}, tr.kinds(m))
		later(10 * time.Second)
		assert.Equal(t, 1500*units.Joule, tr.one(m, "1-0041:power1").Total+tr.one(m, "2-0041:power1").Total)
		assert.Equal(t, units.NodeCPUs, tr.one(m, "2-0041:power1").Zone.Domain)
		assert.EqualValues(t, "gpu-2-005c", tr.one(m, "2-005c:Power").Zone.Domain)
		tr.expectTotal(tr.one(m, "1-0040:VDD_IN"), 76*units.Joule)
		assert.Equal(t, []string{"ltc2947/2-005c/energy1", "ltc2947/2-005c/energy2"}, m.Unused())
	})
}

func TestANamedPackageSensorAcceptsTheSumOfEightSockets(t *testing.T) {
	tr := newTree(t, "ina_unknown_board")
	tr.write("2400000000\n", "sys/devices/platform/i2c/i2c-1/1-0041/hwmon/hwmon1/power1_input")
	tr.bubble(t, Options{Sensors: []Sensor{
		{Chip: "ina226", Device: "1-0041", Sensor: "power1", Kind: power.Package},
	}}, func(_ *testing.T, m *Meter) {
		tr.poll(m)
		later(10 * time.Second)
		tr.expectTotal(tr.one(m, "1-0041:power1"), 24_000*units.Joule)
	})
}

func TestANamedSensorTakesThePlaceOfTheKnownOnesOfItsKind(t *testing.T) {
	tr := newTree(t, "acpi_grace")
	tr.bubble(t, Options{Sensors: []Sensor{
		{Chip: "power_meter", Device: "ACPI000D:00", Sensor: "power1", Kind: power.Package},
	}}, func(t *testing.T, m *Meter) {
		assert.Equal(t, []string{
			"core ACPI000D:02:CPU Power Socket 0", "package ACPI000D:00:Module Power Socket 0", "uncore ACPI000D:03:SysIO Power Socket 0",
		}, tr.kinds(m))
	})
}

func TestANamedSensorThatIsNotThereIsAnErrorBesideTheOthers(t *testing.T) {
	tr := newTree(t, "ina_unknown_board")
	link := tr.path("sys/class/hwmon/hwmon3")
	tr.ok(os.Remove(link))
	tr.bubble(t, Options{Sensors: []Sensor{
		{Chip: "ina226", Device: "2-0041", Sensor: "power1", Kind: power.Platform},
		{Chip: "ltc2947", Sensor: "energy1", Kind: power.Platform},
	}}, func(t *testing.T, m *Meter) {
		rs, err := tr.tryPoll(m)
		const want = `meters::hwmon::sensors::ltc2947/energy1: there is no chip "ltc2947" with a sensor "energy1"`
		assert.Len(t, rs, 1)
		require.EqualError(t, err, want)
		assert.NotErrorIs(t, err, power.ErrNoZones)
		tr.ok(os.Symlink("../../devices/platform/i2c/i2c-2/2-005c/hwmon/hwmon3", link))
		later(searchEvery)
		rs, err = tr.tryPoll(m)
		assert.Len(t, rs, 2)
		assert.NoError(t, err)
		tr.ok(os.Remove(link))
		tr.ok(os.RemoveAll(tr.path("sys/devices/platform/i2c/i2c-2/2-005c")))
		later(2 * searchEvery)
		_, err = tr.tryPoll(m)
		assert.NoError(t, err, "a sensor that was there is a failed zone")
		later(time.Second)
		assert.Error(t, tr.one(m, "2-005c:energy1").Err)
	})
}

func TestANamedSensorOfSeveralChipsIsNotGuessed(t *testing.T) {
	tr := newTree(t, "ina_unknown_board")
	tr.bubble(t, Options{Sensors: []Sensor{{Chip: "ina226", Sensor: "power1", Kind: power.Platform}}}, func(t *testing.T, m *Meter) {
		rs, err := tr.tryPoll(m)
		assert.Empty(t, rs)
		assert.ErrorContains(t, err, `name the device, such as "1-0041"`)
	})
}
