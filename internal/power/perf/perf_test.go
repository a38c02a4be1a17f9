// SPDX-License-Identifier: Apache-2.0

package perf

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/energyreceiver/energyreceiver/internal/kernfs"
	"github.com/energyreceiver/energyreceiver/internal/power"
	"github.com/energyreceiver/energyreceiver/internal/power/powertest"
	"github.com/energyreceiver/energyreceiver/internal/units"
)

// machine is a host's root and a kernel that counts its energy.
type machine struct {
	testing.TB
	root   string
	zones  []string // ID, name, kind, domain and parent of each
	source *source
	meter  power.Meter
	now    time.Time

	joules   map[string]float64 // so far, by "PMU/config" or "PMU/config@CPU"
	running  uint64             // ns
	offline  map[int]bool
	denied   map[int]error // of opening, by CPU
	failing  error         // of reading
	foreign  error         // of check
	counting map[*fakeCounters]bool
	opens    int // number of opened counters
	tries    int // number of calls of open
	reads    int
}

// newMachine returns the machine that a file in testdata describes.
func newMachine(t testing.TB, name string, want ...power.Kind) *machine {
	t.Helper()
	m := &machine{
		TB: t, root: t.TempDir(), now: time.Now(), joules: map[string]float64{}, offline: map[int]bool{}, denied: map[int]error{},
		counting: map[*fakeCounters]bool{},
	}
	m.zones = powertest.Extract(t, filepath.Join("testdata", name+".txt"), m.root, "zone: ")[0]
	m.source = newSource(m.root, func(k power.Kind) bool { return len(want) == 0 || slices.Contains(want, k) }, m)
	m.meter = power.Direct("perf", m.source)
	t.Cleanup(func() {
		assert.NoError(t, m.meter.Close())
		assert.Empty(t, m.counting, "counters are left open")
	})
	return m
}

func (m *machine) path(path string) string { return filepath.Join(m.root, path) }

func (m *machine) write(path, content string) {
	m.Helper()
	require.NoError(m, os.MkdirAll(filepath.Dir(m.path(path)), 0o700))
	require.NoError(m, os.WriteFile(m.path(path), []byte(content), 0o600))
}

// read lets some time pass and reads the meter.
func (m *machine) read(pass time.Duration) map[string]power.Reading {
	m.Helper()
	readings, err := m.tryRead(pass)
	require.NoError(m, err)
	return readings
}

func (m *machine) tryRead(pass time.Duration) (map[string]power.Reading, error) {
	m.now = m.now.Add(pass)
	m.pass(pass)
	list, err := m.meter.Read(context.Background(), power.Sample{At: m.now})
	return powertest.ByID(list), err
}

func (m *machine) pass(d time.Duration) { m.running += uint64(d) + 1 }

// check implements kernel.
func (m *machine) check(root string) error {
	assert.Equal(m, m.root, root)
	return m.foreign
}

// open implements kernel.
func (m *machine) open(pmu uint32, configs []uint64, cpu int) (counters, error) {
	m.tries++
	switch {
	case m.denied[cpu] != nil:
		return nil, m.denied[cpu]
	case m.offline[cpu]:
		return nil, syscall.ENODEV
	}
	m.opens++
	c := &fakeCounters{m: m, cpu: cpu, began: m.running, start: make([]uint64, len(configs))}
	for _, config := range configs {
		name := fmt.Sprintf("%d/%d", pmu, config)
		c.names = append(c.names, [2]string{fmt.Sprintf("%s@%d", name, cpu), name})
	}
	c.values(c.start)
	m.counting[c] = true
	return c, nil
}

type fakeCounters struct {
	m       *machine
	names   [][2]string // in joules, of each event
	cpu     int
	began   uint64
	start   []uint64
	stopped uint64 // running when they stopped
	last    []uint64
}

// values sets what the registers show, in 2^-32 J.
func (c *fakeCounters) values(v []uint64) {
	for i, names := range c.names {
		joules, ok := c.m.joules[names[0]]
		if !ok {
			joules = c.m.joules[names[1]]
		}
		v[i] = uint64(joules * (1 << 32))
	}
}

func (c *fakeCounters) Read(counts []uint64) (uint64, error) {
	c.m.reads++
	if c.m.failing != nil {
		return 0, c.m.failing
	}
	if c.stopped > 0 {
		copy(counts, c.last)
		return c.stopped, nil
	}
	c.values(counts)
	for i := range counts {
		counts[i] -= c.start[i]
	}
	return c.m.running - c.began + 1, nil
}

// stop stops the counters of a CPU that goes offline as the last one of its package.
func (m *machine) stop(cpu int) {
	m.offline[cpu] = true
	for c := range m.counting {
		if c.cpu == cpu {
			c.last = make([]uint64, len(c.names))
			_, _ = c.Read(c.last)
			c.stopped = m.running - c.began + 1
		}
	}
}

func (c *fakeCounters) Close() error {
	assert.True(c.m, c.m.counting[c], "closed twice")
	delete(c.m.counting, c)
	return nil
}

func joules(r power.Reading) float64 { return float64(r.Total) / float64(units.Joule) }

func TestZonesOfRecordedMachines(t *testing.T) {
	for _, name := range []string{"laptop", "dies", "genoa", "genoa_ccd"} {
		t.Run(name, func(t *testing.T) {
			m := newMachine(t, name)
			m.read(0)
			m.joules["24/5"] = 1 // psys is a zone when it moves
			var got []string
			for id, r := range m.read(time.Second) {
				z := r.Zone
				got = append(got, strings.TrimSpace(fmt.Sprintf("%s | %s | %s | %s | %s", id, z.Name, z.Kind, z.Domain, z.Parent)))
				assert.Equal(t, power.Measured, z.Method)
				assert.Equal(t, power.MaxWatts(z.Kind), z.MaxWatts)
			}
			assert.ElementsMatch(t, m.zones, got)
		})
	}
}

func TestFiles(t *testing.T) {
	powertest.Files(t, func(t testing.TB, always bool) *powertest.Machine {
		m := newMachine(t, "genoa", power.Package)
		m.source.Search.Always = always
		set := func(zone, joules int) { m.joules["15/2@"+strconv.Itoa(2*zone)] = float64(joules) }
		set(0, 1000)
		set(1, 1000)
		dir := m.path("sys/devices/power")
		return &powertest.Machine{
			DiscoveryAllocs: 30,
			Meter:           m.meter, Zones: [2]string{"power:energy-pkg:0", "power:energy-pkg:1"}, Set: set, Pass: m.pass,
			Dir: dir, Searched: filepath.Join(dir, "cpumask"),
			Deny: func(zone int, err error) func() {
				m.denied[2*zone] = err
				return func() { delete(m.denied, 2*zone) }
			},
		}
	})
}

func TestCoresAreSummedByPackage(t *testing.T) {
	m := newMachine(t, "genoa", power.Core)
	m.read(0)
	assert.Equal(t, 4, m.opens)
	m.joules = map[string]float64{"16/1@0": 1, "16/1@1": 2, "16/1@2": 4, "16/1@3": 8}
	r := m.read(time.Second)
	assert.InDelta(t, 3, joules(r["power_core:energy-core:0"]), 1e-6)
	assert.InDelta(t, 12, joules(r["power_core:energy-core:1"]), 1e-6)
}

// The energy of a core that cannot be read for a while is late, not lost.
func TestAPackageWaitsForAllOfItsCores(t *testing.T) {
	m := newMachine(t, "genoa", power.Core)
	m.read(0)
	m.failing = syscall.EIO
	m.joules = map[string]float64{"16/1@0": 1, "16/1@1": 2}
	r, err := m.tryRead(time.Second)
	require.NoError(t, err, "the zones have it")
	require.ErrorIs(t, r["power_core:energy-core:0"].Err, syscall.EIO)
	m.failing = nil
	m.joules = map[string]float64{"16/1@0": 2, "16/1@1": 3}
	assert.InDelta(t, 5, joules(m.read(time.Second)["power_core:energy-core:0"]), 1e-6)
}

func TestPsysThatNeverMovesIsNoZone(t *testing.T) {
	m := newMachine(t, "laptop", power.PSys)
	for range 2 {
		readings, err := m.tryRead(time.Second)
		require.ErrorIs(t, err, power.ErrNoZones, "nothing waits for it")
		assert.Empty(t, readings)
	}
	m.joules["24/5"] = 3
	assert.Equal(t, power.Appeared, m.read(time.Second)["power:energy-psys:0"].Event)
	m.joules["24/5"] = 5
	assert.InDelta(t, 2, joules(m.read(time.Second)["power:energy-psys:0"]), 1e-6)
}

func TestTheCounterGoesOnWhenAnotherCPUCountsThePackage(t *testing.T) {
	m := newMachine(t, "laptop", power.Package)
	m.read(0)
	m.joules["24/2"] = 10
	m.write("sys/devices/power/cpumask", "3\n") // the kernel has moved the counters
	r := m.read(10 * time.Second)["power:energy-pkg:0"]
	assert.InDelta(t, 10, joules(r), 1e-6)
	assert.Equal(t, 1, m.opens)
	m.joules["24/2"] = 30
	m.stop(0) // it has not
	m.joules["24/2"] = 40
	m.read(time.Second)
	m.joules["24/2"] = 60
	r = m.read(time.Second)["power:energy-pkg:0"]
	require.NoError(t, r.Err)
	assert.Equal(t, 2, m.opens)
	assert.InDelta(t, 50, joules(r), 1e-6, "without the 10 J that nobody counted")
	assert.Len(t, m.counting, 1)
}

func TestAPackageWithoutCPUsKeepsItsTotalUntilItIsBack(t *testing.T) {
	m := newMachine(t, "dies", power.Package)
	m.read(0)
	m.joules["31/2"] = 100
	m.read(time.Second)
	m.joules["31/2"] = 150
	m.stop(72)
	m.write("sys/devices/power/cpumask", "0,24,48\n")
	r := m.read(time.Second)
	require.ErrorIs(t, r["power:energy-pkg:1:1"].Err, syscall.ENODEV)
	for range 3 {
		r = m.read(time.Second)
		require.ErrorIs(t, r["power:energy-pkg:1:1"].Err, errOffline)
		assert.Equal(t, "package-0-die-0", r["power:energy-pkg:0:0"].Zone.Name)
		assert.InDelta(t, 150, joules(r["power:energy-pkg:0:0"]), 1e-6)
	}
	m.offline = nil
	m.joules["31/2"] = 190
	m.write("sys/devices/power/cpumask", "0,24,48,72\n")
	m.read(time.Second)
	m.joules["31/2"] = 210
	back := m.read(time.Second)["power:energy-pkg:1:1"]
	require.NoError(t, back.Err)
	assert.InDelta(t, 170, joules(back), 1e-6)
}

func TestZonesKeepTheirNamesWhileAllOtherDiesAreOffline(t *testing.T) {
	m := newMachine(t, "dies", power.Package)
	m.read(0)
	m.write("sys/devices/power/cpumask", "0,48\n")
	m.joules["31/2"] = 10
	r := m.read(10 * time.Second)
	assert.Len(t, r, 4)
	require.NoError(t, r["power:energy-pkg:0:0"].Err)
	require.ErrorIs(t, r["power:energy-pkg:0:1"].Err, errOffline)
	m.write("sys/devices/power/cpumask", "0,24,48,72\n")
	assert.InDelta(t, 10, joules(m.read(time.Second)["power:energy-pkg:0:1"]), 1e-6, "what was counted before it went is not lost")
}

func TestDiesThatComeOnlineLaterMakeZonesOfDies(t *testing.T) {
	m := newMachine(t, "dies", power.Package)
	m.write("sys/devices/power/cpumask", "0,48\n")
	assert.Equal(t, []string{"power:energy-pkg:0", "power:energy-pkg:1"}, slices.Sorted(maps.Keys(m.read(0))))
	m.write("sys/devices/power/cpumask", "0,24,48,72\n")
	m.joules["31/2"] = 10
	r := m.read(10 * time.Second)
	assert.Len(t, r, 4)
	for id, reading := range r {
		assert.NoError(t, reading.Err, id)
		assert.Zero(t, reading.Total, id)
	}
	m.joules["31/2"] = 15
	r = m.read(time.Second)
	for id, reading := range r {
		assert.InDelta(t, 5, joules(reading), 1e-6, id)
	}
}

func TestADiscoveryWithTheSameCPUsReadsNothingElse(t *testing.T) {
	m := newMachine(t, "genoa")
	m.read(0)
	m.read(10 * time.Second)
	m.write("sys/devices/power/events/energy-pkg.unit", "Watts\n")
	assert.Len(t, m.read(10*time.Second), 4)
	m.write("sys/devices/power/cpumask", "0\n")
	m.read(10 * time.Second)
	require.ErrorIs(t, m.read(10 * time.Second)["power:energy-pkg:0"].Err, errOffline)
}

func TestAFileThatCouldNotBeReadIsReadLaterWithTheSameCPUs(t *testing.T) {
	for name, want := range map[string]int{"dies": 8, "genoa": 4, "genoa_ccd": 2} {
		for file, failure := range map[string]error{
			"events/energy-pkg": fs.ErrNotExist, "events/energy-ram.scale": syscall.EIO, "events/energy-core": syscall.EMFILE,
			"cpu0/topology/die_id": syscall.EMFILE, "cpu24/topology/die_id": syscall.EMFILE, "proc/cpuinfo": syscall.EMFILE,
		} {
			m := newMachine(t, name)
			restore := kernfs.InjectFaults(func(path string, got []byte, err error) ([]byte, error) {
				if strings.HasSuffix(path, file) {
					return nil, failure
				}
				return got, err
			})
			_, _ = m.tryRead(0)
			if !errors.Is(failure, fs.ErrNotExist) {
				_, _ = m.tryRead(10 * time.Second)
			}
			restore()
			assert.Len(t, m.read(10*time.Second), want, "%s of %s", file, name)
		}
	}
}

func TestPackagesOfOneDieAreReadIfCPUInfoIsHidden(t *testing.T) {
	m := newMachine(t, "laptop")
	t.Cleanup(kernfs.InjectFaults(func(path string, got []byte, err error) ([]byte, error) {
		if strings.HasSuffix(path, "proc/cpuinfo") {
			return nil, syscall.EACCES
		}
		return got, err
	}))
	require.NoError(t, m.read(0)["power:energy-pkg:0"].Err)
	assert.Contains(t, m.read(time.Second), "power:energy-pkg:0")
}

// A PMU that is registered anew has another number, and the counters of the old one fail.
func TestAPMUThatIsRegisteredAnewIsOpenedAnew(t *testing.T) {
	m := newMachine(t, "laptop", power.Package)
	m.read(0)
	m.joules["24/2"] = 10
	m.read(time.Second)
	m.write("sys/devices/power/type", "25\n")
	m.joules["25/2"] = 1000
	m.read(10 * time.Second)
	m.joules["25/2"] = 1005
	r := m.read(time.Second)["power:energy-pkg:0"]
	require.NoError(t, r.Err)
	assert.InDelta(t, 15, joules(r), 1e-6)
	assert.Len(t, m.counting, 1)
}

func TestMachinesWithoutCounters(t *testing.T) {
	for name, c := range map[string]struct {
		change func(m *machine)
		want   error
	}{
		"no event":     {func(m *machine) { require.NoError(m, os.RemoveAll(m.path("sys/devices/power/events"))) }, power.ErrNoZones},
		"no mask":      {func(m *machine) { require.NoError(m, os.Remove(m.path("sys/devices/power/cpumask"))) }, power.ErrNoZones},
		"bad mask":     {func(m *machine) { m.write("sys/devices/power/cpumask", "0-x\n") }, power.ErrNoZones},
		"empty mask":   {func(m *machine) { m.write("sys/devices/power/cpumask", "\n") }, power.ErrNoZones},
		"bad type":     {func(m *machine) { m.write("sys/devices/power/type", "-1\n") }, power.ErrNoZones},
		"other kernel": {func(m *machine) { m.foreign = errors.New("another kernel") }, power.ErrNoZones},
	} {
		t.Run(name, func(t *testing.T) {
			m := newMachine(t, "laptop", power.Package)
			c.change(m)
			r, err := m.tryRead(0)
			require.ErrorIs(t, err, c.want)
			assert.Empty(t, r)
			assert.Zero(t, m.opens)
		})
	}
	m := newMachine(t, "bulldozer")
	_, err := m.tryRead(0)
	require.ErrorIs(t, err, power.ErrNoZones)
}

func TestAnEventThatCannotBeConvertedIsLeftOut(t *testing.T) {
	for name, text := range map[string]string{
		"sys/devices/power/events/energy-ram":       "event=0x03,umask=0x1\n",
		"sys/devices/power/events/energy-ram.unit":  "Watts\n",
		"sys/devices/power/events/energy-ram.scale": "0x1p-32\n",
	} {
		m := newMachine(t, "laptop", power.Package, power.DRAM)
		m.write(name, text)
		r := m.read(0)
		assert.Len(t, r, 1)
		assert.Contains(t, r, "power:energy-pkg:0")

		m = newMachine(t, "laptop", power.DRAM)
		m.write(name, text)
		_, err := m.tryRead(0)
		require.ErrorIs(t, err, power.ErrNoZones)
		require.ErrorContains(t, err, "energy-ram", "the event is named")
	}
}

func TestARegisterIsReadBeforeItCanWrapTwice(t *testing.T) {
	m := newMachine(t, "laptop", power.Package)
	raw := m.read(0)["power:energy-pkg:0"].Raw
	assert.Equal(t, power.Raw{Range: 65_536 * units.Joule, MaxWatts: power.MaxSocketWatts}, raw)
}
