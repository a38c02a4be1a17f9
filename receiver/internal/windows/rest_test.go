// SPDX-License-Identifier: Apache-2.0

package windows

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/energyreceiver/energyreceiver/internal/power"
	"github.com/energyreceiver/energyreceiver/internal/units"
)

// restOf returns a Rest of a machine with two CPUs, and a function that sets their idle time in seconds.
func restOf(t *testing.T, limit time.Duration) (*Rest, func(idle float64)) {
	t.Helper()
	root := t.TempDir()
	write := func(name, text string) {
		path := filepath.Join(root, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	}
	write("sys/devices/system/cpu/online", "0-1\n")
	write("proc/uptime", "100.00 50.00\n")
	r := new(Rest)
	r.Allow(root, limit)
	require.NoError(t, os.RemoveAll(filepath.Join(root, "sys"))) // Continues reads only /proc/uptime
	t.Cleanup(func() { assert.NoError(t, r.Close()) })
	r.End(&power.Sample{At: noon}, noon)
	return r, func(idle float64) { write("proc/uptime", fmt.Sprintf("100.00 %.2f\n", 50+idle)) }
}

func TestAWindowEndsWithTheFirstSecondInWhichSomethingRan(t *testing.T) {
	r, idle := restOf(t, time.Minute)
	for s := 1; s <= 3; s++ {
		idle(2*float64(s) - 0.02)
		assert.True(t, r.Continues(noon.Add(time.Duration(s)*time.Second), time.Second))
	}
	end := noon.Add(4 * time.Second)
	idle(7.94)
	require.False(t, r.Continues(end, time.Second), "20 ms of CPU time in a second are rest, 40 ms are not")
	s := power.Sample{At: end, Busy: 6 * units.Tick, Total: 8 * units.Second}
	r.End(&s, end)
	assert.Equal(t, noon.Add(3*time.Second), s.Rest.At)
	assert.Equal(t, 2*units.Tick, s.Rest.Busy, "of the part at rest only")
	assert.Equal(t, 6*units.Second, s.Rest.Total)
	s = power.Sample{At: end.Add(time.Second)}
	r.End(&s, s.At)
	assert.Zero(t, s.Rest)
}

func TestAWindowAtRestIsNoLongerThanItsLimit(t *testing.T) {
	r, idle := restOf(t, 3*time.Second)
	idle(2)
	assert.True(t, r.Continues(noon.Add(time.Second), time.Second))
	idle(4)
	assert.True(t, r.Continues(noon.Add(2*time.Second), time.Second))
	idle(6)
	assert.False(t, r.Continues(noon.Add(3*time.Second), time.Second), "a counter could wrap")
}

func TestEachWindowEndsIfIdleTimeCannotBeRead(t *testing.T) {
	var r Rest
	r.Allow(t.TempDir(), time.Minute)
	r.End(&power.Sample{At: noon}, noon)
	assert.False(t, r.Continues(noon.Add(time.Second), time.Second))
	require.NoError(t, r.Close())
}
