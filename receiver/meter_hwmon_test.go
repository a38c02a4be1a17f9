// SPDX-License-Identifier: Apache-2.0

package energyreceiver

import (
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/energyreceiver/energyreceiver/internal/drivers"
	"github.com/energyreceiver/energyreceiver/internal/power"
	"github.com/energyreceiver/energyreceiver/internal/power/hwmon"
)

// supplies makes two chips whose meaning is not known, with energy counters in J.
func (n *testNode) supplies(counters ...string) {
	n.t.Helper()
	for i, counter := range counters {
		device := "0-002" + string(rune('0'+i))
		class := filepath.Join(n.host.Root(), "sys/class/hwmon")
		dir := filepath.Join(n.host.Root(), "sys/devices/i2c-0", device)
		require.NoError(n.t, os.MkdirAll(dir, 0o700))
		require.NoError(n.t, os.MkdirAll(filepath.Join(class, "hwmon"+device), 0o700))
		_ = os.Symlink(dir, filepath.Join(class, "hwmon"+device, "device"))
		for name, text := range map[string]string{"name": "psu", "energy1_input": counter + "000000"} {
			require.NoError(n.t, os.WriteFile(filepath.Join(class, "hwmon"+device, name), []byte(text+"\n"), 0o600))
		}
	}
}

// The configuration accepts the sensor names that the log prints.
func TestSensorsOfUnknownMeaningAreLoggedAsTheyAreNamed(t *testing.T) {
	n := newTestNode(t)
	n.supplies("5")
	n.start()
	n.run(0, nil)
	logged := n.logs.FilterMessageSnippet("Sensors without a known zone").All()
	require.Len(t, logged, 1)
	sensors := logged[0].ContextMap()["sensors"].([]any)
	require.Len(t, sensors, 1)
	assert.Equal(t, hwmon.Sensor{Chip: "psu", Device: "0-0020", Sensor: "energy1"}, drivers.ParseSensor(sensors[0].(string)))
}

func TestNamedSensorsAreTheWholeMachineTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newTestNode(t, func(c *Config) {
			c.Meters.Hwmon.Sensors = map[string]power.Kind{
				"psu/0-0020/energy1": power.Platform, "psu/0-0021/energy1": power.Platform, "psu/0-0029/energy1": power.Platform,
			}
		})
		n.supplies("5", "6")
		n.start()
		synctest.Wait() // for the first polls
		n.run(0, nil)
		time.Sleep(1500 * time.Millisecond) // between two polls, which must not find a file half written
		n.supplies("105", "206")
		time.Sleep(time.Second)
		synctest.Wait()
		n.run(0, nil)
		assert.InDelta(t, 300, n.one("hw.host.energy", "hw.id=host").value, 1e-6, "one series per host")
		assert.InDelta(t, 300, n.sum("hw.energy", nil, "hw.type=power_supply", "energy.zone=platform"), 1e-6)
		assert.Len(t, n.points("hw.energy", nil, "hw.type=power_supply"), 2)
		assert.Equal(t, []string{"Degraded energy sensor"}, n.logged(), "the third is missing")
		assert.ErrorContains(t, n.status[0].Err(), `meters::hwmon::sensors::psu/0-0029/energy1: there is no chip "psu 0-0029" with a sensor "energy1"`)
	})
}
