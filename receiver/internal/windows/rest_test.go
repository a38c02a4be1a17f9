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

// restOf returns a Rest of a machine with two CPUs, a function that sets their idle time in
// seconds, and one that sets which CPUs are online.
func restOf(t *testing.T, limit time.Duration) (r *Rest, idle func(float64), online func(string)) {
	t.Helper()
	root := t.TempDir()
	write := func(name, text string) {
		path := filepath.Join(root, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	}
	online = func(cpus string) { write("sys/devices/system/cpu/online", cpus+"\n") }
	online("0-1")
	write("proc/uptime", "100.00 50.00\n")
	r = new(Rest)
	r.Allow(root, limit)
	t.Cleanup(func() { assert.NoError(t, r.Close()) })
	r.End(&power.Sample{At: noon}, noon)
	return r, func(idle float64) { write("proc/uptime", fmt.Sprintf("100.00 %.2f\n", 50+idle)) }, online
}

func TestAWindowEndsWithTheFirstSecondInWhichSomethingRan(t *testing.T) {
	r, idle, _ := restOf(t, time.Minute)
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
	s = power.Sample{At: end.Add(time.Second), Busy: s.Busy, Total: 10 * units.Second}
	r.End(&s, s.At)
	assert.Zero(t, s.Rest)
}

func TestAWindowAtRestIsNoLongerThanItsLimit(t *testing.T) {
	r, idle, _ := restOf(t, 3*time.Second)
	idle(2)
	assert.True(t, r.Continues(noon.Add(time.Second), time.Second))
	idle(4)
	assert.True(t, r.Continues(noon.Add(2*time.Second), time.Second))
	idle(6)
	assert.False(t, r.Continues(noon.Add(3*time.Second), time.Second), "a counter could wrap")
}

func TestAWindowEndsIfItsPartsAtRestAreTooBusyTogether(t *testing.T) {
	r, idle, _ := restOf(t, time.Minute)
	idle(1.98)
	assert.True(t, r.Continues(noon.Add(time.Second), time.Second))
	idle(3.96)
	assert.False(t, r.Continues(noon.Add(2*time.Second), time.Second), "2 % of a CPU")
}

func TestAWindowEndsIfCPUsComeOrGoOrTheClockIsFast(t *testing.T) {
	for name, change := range map[string]func(idle func(float64), online func(string)){
		"a CPU comes online, another is busy": func(idle func(float64), online func(string)) { online("0-2"); idle(4) },
		"a CPU goes offline":                  func(idle func(float64), online func(string)) { online("0"); idle(4) },
		"fast clock":                          func(idle func(float64), _ func(string)) { idle(5) },
		"clock going back":                    func(idle func(float64), _ func(string)) { idle(1) },
		"unknown CPUs":                        func(idle func(float64), online func(string)) { online("?"); idle(4) },
	} {
		r, idle, online := restOf(t, time.Minute)
		idle(2)
		require.True(t, r.Continues(noon.Add(time.Second), time.Second), name)
		change(idle, online)
		assert.False(t, r.Continues(noon.Add(2*time.Second), time.Second), name)
	}
}

func TestAWindowContinuesIfTheCPUTimeCouldNotBeRead(t *testing.T) {
	r, idle, _ := restOf(t, time.Minute)
	idle(2)
	require.True(t, r.Continues(noon.Add(time.Second), time.Second))
	s := power.Sample{At: noon.Add(2 * time.Second)}
	r.End(&s, s.At)
	assert.Zero(t, s.Rest)
	s = power.Sample{At: noon.Add(3 * time.Second), Busy: units.Second, Total: 6 * units.Second}
	r.End(&s, s.At)
	assert.Equal(t, 2*units.Second, s.Rest.Total, "the part at rest is one of three seconds")
}

func TestEachWindowEndsIfIdleTimeCannotBeRead(t *testing.T) {
	var r Rest
	r.Allow(t.TempDir(), time.Minute)
	r.End(&power.Sample{At: noon}, noon)
	assert.False(t, r.Continues(noon.Add(time.Second), time.Second))
	require.NoError(t, r.Close())
}
