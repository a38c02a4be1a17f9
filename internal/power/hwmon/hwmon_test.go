// SPDX-License-Identifier: Apache-2.0

package hwmon

import (
	"context"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/energyreceiver/energyreceiver/internal/power"
	"github.com/energyreceiver/energyreceiver/internal/power/powertest"
	"github.com/energyreceiver/energyreceiver/internal/units"
)

var _ power.Meter = (*Meter)(nil)

var epoch = time.Now() // with a monotonic reading, like samples

// tree is a host's root with hwmon chips.
type tree struct {
	testing.TB
	root          string
	zones, unused []string // expected result of a discovery
}

// newTree creates the tree that a file of testdata describes.
func newTree(t testing.TB, name string) tree {
	t.Helper()
	root := t.TempDir()
	lines := powertest.Extract(t, filepath.Join("testdata", name+".txt"), root, "zone: ", "unused: ")
	return tree{t, root, lines[0], lines[1]}
}

func (tr tree) ok(err error) {
	tr.Helper()
	if err != nil {
		tr.Fatal(err)
	}
}

func (tr tree) path(path string) string { return filepath.Join(tr.root, path) }

func (tr tree) write(text, path string) {
	tr.Helper()
	tr.ok(os.MkdirAll(filepath.Dir(tr.path(path)), 0o700))
	tr.ok(os.WriteFile(tr.path(path), []byte(text), 0o600))
}

// meter returns a meter of all kinds, closed at the end of the test.
func (tr tree) meter() *Meter {
	m := New(Options{Root: tr.root})
	tr.Cleanup(func() { tr.ok(m.Close()) })
	return m
}

// read reads at a time after the start and returns the readings by ID.
func (tr tree) read(m *Meter, d time.Duration) map[string]power.Reading {
	tr.Helper()
	rs, err := m.Read(context.Background(), power.Sample{At: epoch.Add(d)})
	tr.ok(err)
	return powertest.ByID(rs)
}

func (tr tree) expectIDs(m *Meter, d time.Duration, want ...string) {
	tr.Helper()
	assert.Equal(tr, want, slices.Sorted(maps.Keys(tr.read(m, d))))
}

func (tr tree) expectTotal(r power.Reading, want units.Energy) {
	tr.Helper()
	assert.NoError(tr, r.Err)
	assert.Equal(tr, want, r.Total)
}

const (
	amd     = "sys/devices/platform/amd_energy.0/hwmon/hwmon2/"
	socket0 = amd + "energy17_input"
	socket1 = amd + "energy18_input"
)

func TestSocketsOfAMDEnergyArePackages(t *testing.T) {
	tr := newTree(t, "amd_energy")
	m := tr.meter()
	assert.Equal(t, &power.Zone{
		ID: "amd_energy.0:Esocket1", Name: "Esocket1", Kind: power.Package, Method: power.Measured, Domain: "package-1", MaxWatts: 1_500,
	}, tr.read(m, 0)["amd_energy.0:Esocket1"].Zone)
}

func TestANodeThatTakesThePlaceOfAnotherIsNotCountedBesideIt(t *testing.T) {
	tr := newTree(t, "amd_energy_nps2")
	m := tr.meter()
	tr.expectIDs(m, 0, "amd_energy.0:Esocket0")
	tr.write("\n", "sys/devices/system/node/node0/cpulist") // its CPUs are offline
	tr.expectIDs(m, searchEvery, "amd_energy.0:Esocket1")
}

func TestWithoutNUMAThereIsOneSocket(t *testing.T) {
	tr := newTree(t, "amd_energy")
	tr.ok(os.RemoveAll(tr.path("sys/devices/system/node")))
	rs := tr.read(tr.meter(), 0)
	assert.Len(t, rs, 1)
	assert.Equal(t, units.NodeCPUs, rs["amd_energy.0:Esocket0"].Zone.Domain)
}

func TestASocketWhosePackageIsNotKnownIsLeftOut(t *testing.T) {
	for _, text := range []string{"-1\n", "", "x\n"} {
		tr := newTree(t, "amd_energy")
		tr.write(text, "sys/devices/system/cpu/cpu8/topology/physical_package_id")
		tr.expectIDs(tr.meter(), 0, "amd_energy.0:Esocket0")
	}
	tr := newTree(t, "amd_energy")
	tr.write("8-\n", "sys/devices/system/node/node1/cpulist")
	tr.expectIDs(tr.meter(), 0, "amd_energy.0:Esocket0")
}

func TestFastCountersAreFiles(t *testing.T) {
	powertest.Files(t, func(t testing.TB, always bool) *powertest.Machine {
		tr := newTree(t, "amd_energy")
		m := tr.meter()
		m.discovery.Search.Always = always
		files := [2]string{socket0, socket1}
		set := func(zone, joules int) { tr.write(strconv.Itoa(joules)+"000000\n", files[zone]) }
		set(0, 1000)
		set(1, 1000)
		class := tr.path("sys/class/hwmon")
		return &powertest.Machine{
			DiscoveryAllocs: 600,
			Meter:           m, Zones: [2]string{"amd_energy.0:Esocket0", "amd_energy.0:Esocket1"}, Set: set,
			Dir: class, Searched: class + "/hwmon2/name",
			Path: func(zone int) string { return tr.path(files[zone]) },
		}
	})
}

func TestADriversOverflowIsAWrap(t *testing.T) {
	tr := newTree(t, "amd_energy")
	tr.write(strconv.FormatInt(1<<48-100, 10)+"\n", socket0)
	m := tr.meter()
	tr.read(m, 0)
	tr.write("50\n", socket0)
	r := tr.read(m, time.Second)["amd_energy.0:Esocket0"]
	tr.expectTotal(r, 150)
	assert.Equal(t, power.Wrapped, r.Event)
}

func TestLabelsThatMayNotBeReadAreAnErrorUntilTheyMay(t *testing.T) {
	tr := newTree(t, "amd_energy")
	m := tr.meter()
	var denied error = syscall.EACCES
	fault(t, "_label", func() error { return denied })
	rs, err := m.Read(context.Background(), power.Sample{At: epoch})
	assert.Empty(t, rs)
	assert.ErrorIs(t, err, power.ErrNoZones)
	assert.ErrorIs(t, err, fs.ErrPermission)
	denied = nil
	tr.expectIDs(m, searchEvery, "amd_energy.0:Esocket0", "amd_energy.0:Esocket1")
}

func TestAMissingChipOfAKnownDriverIsAnErrorAndRecovers(t *testing.T) {
	tr := tree{TB: t, root: t.TempDir()}
	m := tr.meter()
	read := func(d time.Duration) error {
		rs, err := m.Read(context.Background(), power.Sample{At: epoch.Add(d)})
		assert.Empty(t, rs)
		return err
	}
	err := read(0)
	assert.ErrorIs(t, err, fs.ErrNotExist)
	assert.ErrorContains(t, err, "no hwmon interface below "+tr.root)
	tr.write("nvme\n", "sys/class/hwmon/hwmon0/name")
	assert.ErrorIs(t, read(searchEvery), power.ErrNoZones)
	tr.write("ibmpowernv\n", "sys/class/hwmon/hwmon1/name")
	tr.write("System\n", "sys/class/hwmon/hwmon1/energy1_label")
	tr.write("5\n", "sys/class/hwmon/hwmon1/energy1_input")
	assert.ErrorIs(t, read(2*searchEvery-time.Millisecond), power.ErrNoZones)
	tr.expectIDs(m, 2*searchEvery, "ibmpowernv:System") // without a device
}

func TestReadWhereThereIsNothingAllocatesNothing(t *testing.T) {
	for name, tr := range map[string]tree{"no hwmon": {TB: t, root: t.TempDir()}, "no energy": newTree(t, "nothing")} {
		m := tr.meter()
		at := time.Duration(0)
		assert.Zero(t, testing.AllocsPerRun(1000, func() {
			at += time.Millisecond
			if _, err := m.Read(context.Background(), power.Sample{At: epoch.Add(at)}); err == nil {
				t.Error("no error")
			}
		}), name)
	}
}

func TestZonesOutlastASearchThatCannotListTheChips(t *testing.T) {
	tr := newTree(t, "amd_energy")
	m := tr.meter()
	tr.read(m, 0)
	fault(t, "sys/class/hwmon", func() error { return syscall.EMFILE })
	tr.write("3000\n", socket0)
	tr.expectTotal(tr.read(m, searchEvery)["amd_energy.0:Esocket0"], 2000)
}

func TestAChipMayHaveFastCountersAndPolledPowers(t *testing.T) {
	const dir = "sys/devices/platform/opal-sensor/hwmon/hwmon0/"
	tr := newTree(t, "ibmpowernv")
	tr.write("Chip 16\n", dir+"power9_label")
	tr.write("100000000\n", dir+"power9_input")
	var polls atomic.Int32
	fault(t, "power9_input", func() error { polls.Add(1); return nil })
	tr.bubble(t, Options{}, func(t *testing.T, m *Meter) {
		assert.Contains(t, tr.kinds(m), "package opal-sensor:Chip 16")
		later(10 * time.Second)
		assert.EqualValues(t, 11, polls.Load())
		tr.write("2000\n", dir+"energy6_input")
		later(time.Millisecond)
		tr.expectTotal(tr.one(m, "opal-sensor:Chip 8"), 1000)
	})
}

func FuzzLabel(f *testing.F) {
	for _, label := range []string{"Esocket0", "Esocket", "Chip 0", "Chip 0 Memory", "Chip 18446744073709551616", "System", "", "energy1", "\xff#"} {
		f.Add(label)
	}
	f.Fuzz(func(t *testing.T, label string) {
		for _, c := range meanings {
			number, ok := match(c.label, label)
			pattern := regexp.MustCompile("^" + strings.Replace(regexp.QuoteMeta(c.label), "#", "([0-9]+)", 1) + "\\z")
			found := pattern.FindStringSubmatch(label)
			var want uint64
			var err error
			if len(found) > 1 {
				want, err = strconv.ParseUint(found[1], 10, 64)
			}
			if ok != (found != nil && err == nil) || ok && number != want {
				t.Fatalf("%q matches %q: %t, %d", label, c.label, ok, number)
			}
		}
	})
}
