// SPDX-License-Identifier: Apache-2.0

package battery

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/energyreceiver/energyreceiver/internal/kernfs"
	"github.com/energyreceiver/energyreceiver/internal/power"
	"github.com/energyreceiver/energyreceiver/internal/units"
)

var _ power.Source = (*Source)(nil)

// laptop creates the power supplies of a machine and returns its root directory. The properties
// have the format of uevent, without the prefix POWER_SUPPLY_.
func laptop(t *testing.T, supplies map[string]string) string {
	t.Helper()
	root := t.TempDir()
	for name, properties := range supplies {
		dir := filepath.Join(root, "sys/class/power_supply", name)
		require.NoError(t, os.MkdirAll(dir, 0o700))
		for _, property := range strings.Fields(properties) {
			key, value, _ := strings.Cut(property, "=")
			value = strings.ReplaceAll(value, "_", " ")
			require.NoError(t, os.WriteFile(filepath.Join(dir, strings.ToLower(key)), []byte(value+"\n"), 0o600))
		}
	}
	return root
}

const (
	// https://github.com/mjkillough/cnx/pull/31
	dell = "TYPE=Battery STATUS=Discharging VOLTAGE_NOW=12600000 CURRENT_NOW=756000 CHARGE_NOW=4723000"
	// https://github.com/jaor/xmobar/issues/315, whose second battery is empty
	thinkpad = "TYPE=Battery STATUS=Discharging VOLTAGE_NOW=10459000 POWER_NOW=27758000 ENERGY_NOW=2420000"
	empty    = "TYPE=Battery STATUS=Unknown POWER_NOW=0"
	// https://github.com/corecoding/Vitals/issues/540
	macBook = "TYPE=Battery STATUS=Discharging VOLTAGE_NOW=12233000 CURRENT_NOW=-386000 POWER_NOW=-4721000"
	// https://github.com/wennaspeedy/batt_consumption_wattmetter/issues/1
	notCharging = "TYPE=Battery STATUS=Not_charging POWER_NOW=0 ENERGY_NOW=65440000"
	// https://github.com/fastfetch-cli/fastfetch/issues/118
	charging           = "TYPE=Battery STATUS=Charging VOLTAGE_NOW=12729000 CURRENT_NOW=413000"
	mouse              = "TYPE=Battery SCOPE=Device STATUS=Discharging POWER_NOW=1000"
	unplugged, plugged = "TYPE=Mains ONLINE=0", "TYPE=Mains ONLINE=1"
)

func TestDischargingBatteriesAreThePowerOfTheMachine(t *testing.T) {
	for name, c := range map[string]struct {
		supplies   map[string]string
		microwatts int64
	}{
		"current and voltage":    {map[string]string{"BAT0": dell, "AC": unplugged}, 9_525_600},
		"power":                  {map[string]string{"BAT0": thinkpad, "BAT1": empty, "AC": unplugged, "hidpp_battery_0": mouse}, 27_758_000},
		"negative":               {map[string]string{"macsmc-battery": macBook, "macsmc-ac": unplugged}, 4_721_000},
		"two at the same time":   {map[string]string{"BAT0": thinkpad, "BAT1": macBook}, 32_479_000},
		"power has no value now": {map[string]string{"BAT0": dell + " POWER_NOW="}, 9_525_600},
	} {
		answer, err := New(laptop(t, c.supplies)).Answer(t.Context(), power.Sample{})
		require.NoError(t, err, name)
		require.Len(t, answer.Shown, 1, name)
		shown := answer.Shown[0]
		assert.NoError(t, shown.Err, name)
		assert.True(t, shown.IsPower, name)
		assert.Equal(t, c.microwatts, shown.Power, name)
		assert.Equal(t, power.Platform, shown.Zone.Kind, name)
	}
}

func TestWhatBatteriesDoNotMeasureIsAnErrorOfTheZone(t *testing.T) {
	const bat = "TYPE=Battery STATUS=Discharging "
	for name, c := range map[string]struct {
		supplies map[string]string
		want     error
	}{
		// https://github.com/fwupd/fwupd/issues/8799
		"discharges on mains power": {map[string]string{"BAT1": dell, "ACAD": plugged}, errMains},
		"USB-C, variable voltage":   {map[string]string{"BAT1": dell, "ACAD": unplugged, "ucsi-source-psy-USBC000:004": "TYPE=USB ONLINE=2"}, errMains},
		"charging":                  {map[string]string{"BAT0": charging}, errNotInUse},
		"not charging":              {map[string]string{"BAT0": notCharging}, errNotInUse},
		"no sensor":                 {map[string]string{"BAT0": bat + "ENERGY_NOW=65440000"}, errNotReported},
		"no voltage":                {map[string]string{"BAT0": bat + "CURRENT_NOW=756000"}, errNotReported},
		"one of two has no sensor":  {map[string]string{"BAT0": thinkpad, "BAT1": bat}, errNotReported},
		"no power":                  {map[string]string{"BAT0": bat + "POWER_NOW=0"}, errNoPower},
		"no number":                 {map[string]string{"BAT0": bat + "POWER_NOW=NaN"}, kernfs.ErrSyntax},
		"no number, but current":    {map[string]string{"BAT0": dell + " POWER_NOW=1e7"}, kernfs.ErrSyntax},
		"two signs":                 {map[string]string{"BAT0": bat + "POWER_NOW=--1"}, kernfs.ErrSyntax},
		"more than 64 bits":         {map[string]string{"BAT0": bat + "POWER_NOW=18446744073709551616"}, kernfs.ErrRange},
	} {
		s := New(laptop(t, c.supplies))
		answer, err := s.Answer(t.Context(), power.Sample{})
		require.NoError(t, err, name)
		require.Len(t, answer.Shown, 1, name)
		assert.ErrorIs(t, answer.Shown[0].Err, c.want, name)
	}
}

func TestImpossiblePowersAreRejected(t *testing.T) {
	for name, battery := range map[string]string{
		"invalid current of 0xffff mA": "CURRENT_NOW=65535000 VOLTAGE_NOW=12000000",
		"power":                        "POWER_NOW=18446744073709551615",
		"product":                      "CURRENT_NOW=18446744073709551615 VOLTAGE_NOW=18446744073709551615",
	} {
		root := laptop(t, map[string]string{"BAT0": "TYPE=Battery STATUS=Discharging " + battery})
		readings, err := power.Direct("battery", New(root)).Read(t.Context(), power.Sample{At: time.Now()})
		require.NoError(t, err, name)
		require.Len(t, readings, 1, name)
		assert.EqualValues(t, 1, readings[0].Rejected, name)
	}
}

func TestAMachineWithoutABatteryHasNoZone(t *testing.T) {
	for name, supplies := range map[string]map[string]string{
		"no class": nil, "mouse": {"hidpp_battery_0": mouse}, "mains": {"AC": plugged},
	} {
		_, err := New(laptop(t, supplies)).Answer(t.Context(), power.Sample{})
		assert.ErrorIs(t, err, power.ErrNoZones, name)
	}
}

// The interval is that of the meter, far below the longest gap of two readings of power.
func TestTheLastPowerBeforeMainsPowerIsNotInterpolated(t *testing.T) {
	root := laptop(t, map[string]string{"BAT0": thinkpad, "AC": plugged})
	m := power.Direct("battery", New(root))
	now := time.Now()
	for i, want := range []struct {
		online     string
		unmeasured time.Duration
		total      units.Energy
	}{
		{"1", 0, 0}, {"1", 10 * time.Second, 0}, // plugged in from the start
		{"0", 20 * time.Second, 0}, {"0", 20 * time.Second, 277_580_000},
		{"1", 30 * time.Second, 277_580_000}, {"1", 40 * time.Second, 277_580_000},
		{"0", 50 * time.Second, 277_580_000}, {"0", 50 * time.Second, 555_160_000},
	} {
		require.NoError(t, os.WriteFile(filepath.Join(root, "sys/class/power_supply/AC/online"), []byte(want.online), 0o600))
		readings, err := m.Read(t.Context(), power.Sample{At: now})
		require.NoError(t, err)
		require.Len(t, readings, 1)
		assert.Equal(t, want.online == "1", errors.Is(readings[0].Err, power.ErrUnmeasured), i)
		assert.Equal(t, want.unmeasured, readings[0].Unmeasured, i)
		assert.Zero(t, readings[0].Gaps, "mains power is normal")
		assert.Equal(t, want.total, readings[0].Total, i)
		now = now.Add(10 * time.Second)
	}
}
