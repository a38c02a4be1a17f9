// SPDX-License-Identifier: Apache-2.0

package hwmon

import (
	"errors"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

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
		tr.poll(m)
		later(10 * time.Second)
		var total units.Energy
		for _, id := range []string{"1-0041:power1", "2-0041:power1"} {
			r := tr.one(m, id)
			total += r.Total
			if r.Zone.Kind != power.Platform || r.Zone.Domain != units.NodeCPUs {
				t.Errorf("%+v", r.Zone)
			}
		}
		assert.Equal(t, 1500*units.Joule, total)
		if z := tr.one(m, "2-005c:Power").Zone; z.Kind != power.GPU || z.Domain != "gpu-2-005c" {
			t.Errorf("%+v", z)
		}
		tr.expectTotal(tr.one(m, "1-0040:VDD_IN"), 76*units.Joule)
		if want := []string{
			`ltc2947/2-005c/energy1`, `ltc2947/2-005c/energy2`,
		}; !slices.Equal(m.Unused(), want) {
			t.Errorf("unused %q, want %q", m.Unused(), want)
		}
	})
}

func TestANamedPackageSensorAcceptsTheSumOfEightSockets(t *testing.T) {
	tr := newTree(t, "ina_unknown_board")
	tr.write("2400000000\n", "sys/devices/platform/i2c/i2c-1/1-0041/hwmon/hwmon1/power1_input")
	tr.bubble(t, Options{Sensors: []Sensor{
		{Chip: "ina226", Device: "1-0041", Sensor: "power1", Kind: power.Package},
	}}, func(t *testing.T, m *Meter) {
		tr.poll(m)
		later(10 * time.Second)
		r := tr.one(m, "1-0041:power1")
		assert.NoError(t, r.Err)
		tr.expectTotal(r, 24_000*units.Joule)
	})
}

func TestANamedSensorTakesThePlaceOfTheKnownOnesOfItsKind(t *testing.T) {
	tr := newTree(t, "acpi_grace")
	tr.bubble(t, Options{Sensors: []Sensor{
		{Chip: "power_meter", Device: "ACPI000D:00", Sensor: "power1", Kind: power.Package},
	}}, func(t *testing.T, m *Meter) {
		var ids []string
		for _, r := range tr.poll(m) {
			ids = append(ids, string(r.Zone.Kind)+" "+r.Zone.ID)
		}
		slices.Sort(ids)
		if want := []string{
			"core ACPI000D:02:CPU Power Socket 0", "package ACPI000D:00:Module Power Socket 0", "uncore ACPI000D:03:SysIO Power Socket 0",
		}; !slices.Equal(ids, want) {
			t.Errorf("%q, want %q", ids, want)
		}
	})
}

// readNamed reads a meter twice and returns its readings and its error.
func readNamed(t *testing.T, m *Meter) ([]power.Reading, error) {
	t.Helper()
	_, _ = m.Read(t.Context(), power.Sample{At: time.Now()})
	synctest.Wait()
	return m.Read(t.Context(), power.Sample{At: time.Now()})
}

func TestANamedSensorThatIsNotThereIsAnErrorBesideTheOthers(t *testing.T) {
	tr := newTree(t, "ina_unknown_board")
	link := tr.path("sys/class/hwmon/hwmon3")
	tr.ok(os.Remove(link))
	tr.bubble(t, Options{Sensors: []Sensor{
		{Chip: "ina226", Device: "2-0041", Sensor: "power1", Kind: power.Platform},
		{Chip: "ltc2947", Sensor: "energy1", Kind: power.Platform},
	}}, func(t *testing.T, m *Meter) {
		rs, err := readNamed(t, m)
		const want = `meters::hwmon::sensors::ltc2947/energy1: there is no chip "ltc2947" with a sensor "energy1"`
		if len(rs) != 1 || err == nil || err.Error() != want || errors.Is(err, power.ErrNoZones) {
			t.Errorf("%d zones, error %v", len(rs), err)
		}
		tr.ok(os.Symlink("../../devices/platform/i2c/i2c-2/2-005c/hwmon/hwmon3", link))
		later(searchEvery)
		if rs, err = readNamed(t, m); len(rs) != 2 || err != nil {
			t.Errorf("later: %d zones, error %v", len(rs), err)
		}
		tr.ok(os.Remove(link))
		tr.ok(os.RemoveAll(tr.path("sys/devices/platform/i2c/i2c-2/2-005c")))
		later(2 * searchEvery)
		if _, err = readNamed(t, m); err != nil {
			t.Errorf("a sensor that was there is a failed zone: %v", err)
		}
		later(time.Second)
		assert.Error(t, tr.one(m, "2-005c:energy1").Err, "no error")
	})
}

func TestANamedSensorOfSeveralChipsIsNotGuessed(t *testing.T) {
	tr := newTree(t, "ina_unknown_board")
	tr.bubble(t, Options{Sensors: []Sensor{{Chip: "ina226", Sensor: "power1", Kind: power.Platform}}}, func(t *testing.T, m *Meter) {
		rs, err := readNamed(t, m)
		if len(rs) != 0 || err == nil || !strings.Contains(err.Error(), `name the device, such as "1-0041"`) {
			t.Errorf("%d zones, error %v", len(rs), err)
		}
	})
}
