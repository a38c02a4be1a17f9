// SPDX-License-Identifier: Apache-2.0

package hostsim

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestRegistersLagBehindByOneUpdateAndCountUnits(t *testing.T) {
	m := machineOf(t, rising())
	m.AddPlatform(10)
	task(m, 0, 4) // 100 W, 100,000 µJ/ms
	m.Step(time.Second)
	m.SetRegisters(Registers{Every: 976 * time.Microsecond, Jitter: 20 * time.Microsecond, Unit: 61.03515625})
	zone := m.Sockets[0].Package
	var updates int
	var last uint64
	for range 1000 {
		m.Step(250 * time.Microsecond)
		shown := zone.Reads()
		require.LessOrEqual(t, shown, zone.Counted)
		require.Less(t, zone.Counted-shown, uint64(100_000+62), "996 µs at most, and a unit")
		if shown != last {
			require.NotZero(t, shown)
			updates++
		}
		last = shown
	}
	assert.InDelta(t, 256, updates, 3, "in 250 ms")
	require.NoError(t, m.Render())
	assert.Equal(t, fmt.Sprintln(last), text(t, m.Host, "sys/class/powercap/intel-rapl:0/energy_uj"))

	m.Step(10 * time.Second)
	assert.Less(t, zone.Counted-*zone.Shown, uint64(100_000+62), "after a long step too")
	units := float64(*zone.Shown) / 61.03515625
	assert.InDelta(t, units, float64(int(units+0.5)), 0.02, "whole units, in whole µJ")
	assert.NotEqual(t, *m.Sockets[0].DRAM.Shown, m.Sockets[0].DRAM.Counted)
	assert.NotNil(t, m.Host.Zones["intel-rapl:1"].Shown)
}

func TestLateRegistersShowTheEnergyOfAnEarlierTime(t *testing.T) {
	m := machineOf(t, rising())
	load := task(m, 0, 4)
	zone := m.Sockets[0].Package
	m.SetRegisters(Registers{Every: time.Millisecond, Unit: 1, Late: 2 * time.Second})
	m.Step(10 * time.Second)
	assert.EqualValues(t, 8*100_000_000, zone.Reads(), "within a long step")
	load.Demand = 0
	for range 1500 {
		m.Step(time.Millisecond)
	}
	assert.EqualValues(t, 950_000_000, zone.Reads())
	m.Step(time.Second)
	assert.InDelta(t, 10*100_000_000+0.5*20_000_000, float64(zone.Reads()), 100_000)
}
