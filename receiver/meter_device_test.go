// SPDX-License-Identifier: Apache-2.0

package energyreceiver

import (
	"net"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/energyreceiver/energyreceiver/internal/test/loopback"
	"github.com/energyreceiver/energyreceiver/receiver/internal/config/configtest"
)

// serve answers each request on loopback until the test ends, and returns its address.
func serve(t *testing.T, answer func(request []byte) []byte) string {
	t.Helper()
	return loopback.Serve(t, func(conn net.Conn) {
		request := make([]byte, 256)
		for n, err := conn.Read(request); err == nil; n, err = conn.Read(request) {
			_, _ = conn.Write(answer(request[:n]))
		}
	})
}

func TestDevicesThatUsersNameAreTheWholeMachine(t *testing.T) {
	register := serve(t, func(request []byte) []byte {
		return append(request[:4:4], 0, 5, request[6], request[7], 2, 0, 100) // the header, and one register
	})
	upsd := serve(t, func([]byte) []byte { return []byte("VAR apc ups.realpower \"100\"\n") })
	for meter, settings := range map[string]string{
		"modbus":  "meters: {modbus/pdu: {endpoint: '" + register + "', type: uint16, unit: W}}",
		"nut":     "meters: {nut/rack: {endpoint: '" + upsd + "', ups: apc}}",
		"battery": "meters: {use: [battery]}",
	} {
		synctest.Test(t, func(t *testing.T) {
			n := newTestNode(t, func(c *Config) { c.Meters = configtest.Load(t, c, settings).Meters })
			bat := filepath.Join(n.host.Root(), "sys/class/power_supply/BAT0")
			require.NoError(t, os.MkdirAll(bat, 0o700))
			for property, value := range map[string]string{"type": "Battery", "status": "Discharging", "power_now": "100000000"} {
				require.NoError(t, os.WriteFile(filepath.Join(bat, property), []byte(value+"\n"), 0o600))
			}
			n.start()
			synctest.Wait() // for the first poll
			n.run(0, nil)
			time.Sleep(10 * time.Second)
			synctest.Wait()
			n.run(0, nil)
			assert.InDelta(t, 1000, n.one("hw.host.energy", "hw.id=host").value, 1e-6, meter)
		})
	}
}

func TestALaptopOnMainsPowerIsNotDegraded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newTestNode(t, func(c *Config) { c.Meters = configtest.Load(t, c, "meters: {use: [powercap, battery]}").Meters })
		for property, value := range map[string]string{"BAT0/type": "Battery", "BAT0/status": "Charging", "AC/type": "Mains", "AC/online": "1"} {
			file := filepath.Join(n.host.Root(), "sys/class/power_supply", property)
			require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o700))
			require.NoError(t, os.WriteFile(file, []byte(value+"\n"), 0o600))
		}
		n.start()
		for range 4 {
			synctest.Wait() // for a poll
			n.run(joule, nil)
			time.Sleep(10 * time.Second)
		}
		assert.Empty(t, n.logged())
		assert.Empty(t, n.status)
		tally := n.s.meters.Tallies["battery"]
		require.NotNil(t, tally)
		assert.Zero(t, tally.ReadErrors)
		assert.Equal(t, 30*time.Second, tally.SensorTotal().Unmeasured)
	})
}
