// SPDX-License-Identifier: Apache-2.0

package cray

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/energyreceiver/energyreceiver/internal/kernfs"
	"github.com/energyreceiver/energyreceiver/internal/power"
	"github.com/energyreceiver/energyreceiver/internal/power/powertest"
	"github.com/energyreceiver/energyreceiver/internal/units"
)

// node is a node's directory of counters, with a meter.
type node struct {
	testing.TB
	source *source
	power.Meter
	root      string
	now       time.Time
	freshness int
}

// newNode makes the directory that a file of testdata describes, and returns the zones that it names.
func newNode(t testing.TB, name string) (n *node, zones []string) {
	n = &node{TB: t, root: t.TempDir(), now: time.Now()}
	if name != "" {
		zones = powertest.Extract(t, filepath.Join("testdata", name+".txt"), n.path(""), "zone: ")[0]
	}
	n.source = newSource(n.root, nil)
	n.Meter = power.Direct("cray", n.source)
	t.Cleanup(func() { assert.NoError(t, n.Close()) })
	return n, zones
}

func (n *node) path(file string) string { return filepath.Join(n.root, "sys/cray/pm_counters", file) }

func (n *node) write(file, content string) {
	n.Helper()
	require.NoError(n, os.MkdirAll(n.path(""), 0o700))
	require.NoError(n, os.WriteFile(n.path(file), []byte(content+"\n"), 0o600))
}

// measure lets time pass, in which the controller measures, and sets counters in joules.
func (n *node) measure(elapsed time.Duration, counters map[string]int) {
	n.Helper()
	n.now = n.now.Add(elapsed)
	n.freshness++
	n.write("freshness", strconv.Itoa(n.freshness))
	for file, joules := range counters {
		n.write(file, fmt.Sprintf("%d J 1718000000400123 us", joules))
	}
}

// zones reads the meter and returns the readings by the names of the zones.
func (n *node) zones() map[string]power.Reading {
	n.Helper()
	readings, err := n.Read(context.Background(), power.Sample{At: n.now})
	require.NoError(n, err)
	byName := map[string]power.Reading{}
	for _, r := range readings {
		byName[r.Zone.Name] = r
	}
	return byName
}

func TestZonesOfRecordedMachines(t *testing.T) {
	for _, name := range []string{"ex_epyc", "ex_gh200", "xc50"} {
		t.Run(name, func(t *testing.T) {
			n, want := newNode(t, name)
			readings, err := n.Read(t.Context(), power.Sample{At: n.now})
			require.NoError(t, err)
			var got []string
			for _, r := range readings {
				z := r.Zone
				got = append(got, strings.TrimSpace(fmt.Sprintf("%s | %s | %s | %s | %s", z.ID, z.Name, z.Kind, z.Domain, z.Parent)))
				assert.Equal(t, power.Measured, z.Method)
				require.NoError(t, r.Err)
				assert.Equal(t, power.Appeared, r.Event)
			}
			assert.Equal(t, want, got)
		})
	}
}

func TestFiles(t *testing.T) {
	powertest.Files(t, func(t testing.TB, always bool) *powertest.Machine {
		n, _ := newNode(t, "ex_epyc")
		n.source.files.Search.Always = always
		files := [2]string{"cpu_energy", "energy"}
		set := func(zone, joules int) { n.write(files[zone], strconv.Itoa(joules)+" J") }
		set(0, 1000)
		set(1, 1000)
		freshness, err := os.OpenFile(n.path("freshness"), os.O_WRONLY, 0)
		require.NoError(t, err)
		t.Cleanup(func() { assert.NoError(t, freshness.Close()) })
		var text [20]byte
		return &powertest.Machine{
			DiscoveryAllocs: 150,
			Meter:           n.Meter, Zones: [2]string{"pm_counters:cpu_energy", "pm_counters:energy"}, Set: set,
			Dir: strings.TrimSuffix(n.path(""), "/"), Searched: strings.TrimSuffix(n.path(""), "/"),
			Path: func(zone int) string { return n.path(files[zone]) },
			Pass: func(time.Duration) { // the controller measures
				n.freshness++
				_, err := freshness.WriteAt(strconv.AppendInt(text[:0], int64(1e6+n.freshness), 10), 0)
				require.NoError(t, err)
			},
		}
	})
}

func TestOnlyWantedKindsAreRead(t *testing.T) {
	n, _ := newNode(t, "ex_gh200")
	n.source.want = func(k power.Kind) bool { return k == power.Package }
	assert.Equal(t, []string{"cpu"}, slices.Collect(maps.Keys(n.zones())))
}

func TestNothingIsNewUntilTheControllerMeasures(t *testing.T) {
	n, _ := newNode(t, "ex_epyc")
	first := n.zones()["node"]
	n.now = n.now.Add(40 * time.Millisecond)
	n.write("energy", "98765999 J 1718000000400123 us")
	again := n.zones()["node"]
	assert.Equal(t, first.At, again.At)
	assert.Zero(t, again.Total)
	assert.Equal(t, power.NoEvent, again.Event)
	n.measure(60*time.Millisecond, nil)
	assert.Equal(t, n.now, n.zones()["node"].At)
}

func TestAControllerThatStopsMeasuringIsAnErrorUntilItGoesOn(t *testing.T) {
	n, _ := newNode(t, "ex_epyc")
	n.zones()
	n.now = n.now.Add(frozenAfter - time.Millisecond)
	require.NoError(t, n.zones()["cpu"].Err)
	n.now = n.now.Add(time.Millisecond)
	require.EqualError(t, n.zones()["cpu"].Err, errFrozen.Error())
	n.now = n.now.Add(time.Minute)
	require.Error(t, n.zones()["cpu"].Err)
	n.measure(time.Second, map[string]int{"cpu_energy": 41233867 + 5000})
	got := n.zones()["cpu"]
	require.NoError(t, got.Err)
	assert.Equal(t, 5000*units.Joule, got.Total, "with what was missed")
}

func TestCountersThatChangeWhileTheyAreReadAreReadAgain(t *testing.T) {
	n, _ := newNode(t, "ex_epyc")
	n.zones()
	n.measure(time.Second, map[string]int{"cpu_energy": 41233867 + 100, "energy": 98765432 + 300})
	measured := false
	defer kernfs.InjectFaults(func(path string, got []byte, err error) ([]byte, error) {
		if strings.HasSuffix(path, "/energy") && !measured { // after cpu_energy was read
			measured = true
			n.measure(0, map[string]int{"cpu_energy": 41233867 + 200, "energy": 98765432 + 600})
			return []byte("98766032 J 1718000000400123 us\n"), nil
		}
		return got, err
	})()
	got := n.zones()
	assert.Equal(t, 600*units.Joule, got["node"].Total)
	assert.Equal(t, 200*units.Joule, got["cpu"].Total, "the part belongs to the whole")
}

func TestCountersThatChangeDuringAReadAreReadUpToThreeTimes(t *testing.T) {
	n, _ := newNode(t, "ex_epyc")
	n.zones()
	reads, freshness, moves := 0, 5, 0
	defer kernfs.InjectFaults(func(path string, got []byte, err error) ([]byte, error) {
		switch filepath.Base(path) {
		case "freshness":
			freshness += moves
			return []byte(strconv.Itoa(freshness)), nil
		case "energy":
			reads++
		}
		return got, err
	})()
	for _, want := range []int{1, 3} {
		reads = 0
		n.now = n.now.Add(time.Second)
		require.NoError(t, n.zones()["node"].Err)
		assert.Equal(t, want, reads)
		moves = 1
	}
}

func TestACardIsThereOnceItHasCounted(t *testing.T) {
	n, _ := newNode(t, "ex_epyc")
	assert.NotContains(t, n.zones(), "accel")
	n.measure(time.Minute, map[string]int{"accel_energy": 5})
	assert.Contains(t, n.zones(), "accel")
	n.measure(time.Minute, map[string]int{"accel_energy": 0}) // a restart
	require.Contains(t, n.zones(), "accel")
}

func TestOtherUnitsAndImpossibleEnergiesAreErrors(t *testing.T) {
	for _, text := range []string{
		"", "98765499", "98765499 W 1718000000400123 us", "-5 J 1718000000400123 us", "98765499 JJ", "J", "nan J", "98765499.5 J",
		"18446744073710 J 1 us", "99999999999999999999999 J", "98765499 kJ 1 us",
	} {
		_, err := parseEnergy([]byte(text))
		assert.Error(t, err, text)
	}
}

func TestWithoutFreshnessEachReadIsNew(t *testing.T) {
	n, _ := newNode(t, "ex_epyc")
	require.NoError(t, os.Remove(n.path("freshness")))
	n.zones()
	n.now = n.now.Add(time.Minute)
	n.write("energy", "98775432 J 1718000000400123 us")
	got := n.zones()["node"]
	require.NoError(t, got.Err)
	assert.Equal(t, 10000*units.Joule, got.Total)
	assert.Equal(t, n.now, got.At)
}

func TestADirectoryWithoutEnergyHasNoZones(t *testing.T) {
	n, _ := newNode(t, "")
	n.write("power", "331 W")
	n.write("freshness", "5")
	_, err := n.Read(t.Context(), power.Sample{At: n.now})
	require.ErrorIs(t, err, power.ErrNoZones)
}

func FuzzParseEnergy(f *testing.F) {
	for _, seed := range []string{"123456789 J 1718000000400123 us\n", "598732067 J\n", "0 J", "5 W", "", " J", "18446744073709551615 J"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		got, err := parseEnergy(text)
		if err != nil {
			assert.Zero(t, got)
			return
		}
		fields := strings.FieldsFunc(string(text), func(r rune) bool { return r == ' ' || r == '\n' })
		require.GreaterOrEqual(t, len(fields), 2)
		joules, err := strconv.ParseUint(fields[0], 10, 64)
		require.NoError(t, err)
		assert.Equal(t, "J", fields[1])
		assert.Equal(t, units.Energy(joules)*units.Joule, got)
	})
}
