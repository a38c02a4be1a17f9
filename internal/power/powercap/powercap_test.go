// SPDX-License-Identifier: Apache-2.0

package powercap

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

	"github.com/energyreceiver/energyreceiver/internal/kernfs"
	"github.com/energyreceiver/energyreceiver/internal/power"
	"github.com/energyreceiver/energyreceiver/internal/power/powertest"
	"github.com/energyreceiver/energyreceiver/internal/units"
)

// raplRange is max_energy_range_uj of a kernel with units of 61 µJ.
const raplRange units.Energy = 262_143_328_850

var epoch = time.Now() // with a monotonic reading, like samples

// after returns the sample time d after the start of the test.
func after(d time.Duration) time.Time { return epoch.Add(d) }

// tree is a host's root with a powercap class directory.
type tree struct {
	testing.TB
	root string
}

func newTree(t testing.TB) tree { return tree{t, t.TempDir()} }

func (tr tree) path(elem ...string) string {
	return filepath.Join(append([]string{tr.root, "sys/class/powercap"}, elem...)...)
}

func (tr tree) ok(err error) {
	tr.Helper()
	if err != nil {
		tr.Fatal(err)
	}
}

func (tr tree) write(text string, elem ...string) {
	tr.Helper()
	tr.ok(os.WriteFile(tr.path(elem...), []byte(text), 0o600))
}

// zone makes the zone at place (its ID, or a path that ends in it), with 1,000 µJ on its counter.
func (tr tree) zone(place, name string) {
	tr.Helper()
	tr.ok(os.MkdirAll(tr.path(place), 0o700))
	tr.write(name+"\n", place, "name")
	tr.write("1000\n", place, "energy_uj")
	tr.write(fmt.Sprintln(uint64(raplRange)), place, "max_energy_range_uj")
}

func (tr tree) energy(place string, e units.Energy) {
	tr.Helper()
	tr.write(fmt.Sprintln(uint64(e)), place, "energy_uj")
}

func (tr tree) remove(elem ...string) {
	tr.Helper()
	tr.ok(os.RemoveAll(tr.path(elem...)))
}

// meter returns a meter of all kinds, closed at the end of the test.
func (tr tree) meter() power.Meter {
	p := New(tr.root, nil)
	tr.Cleanup(func() { tr.ok(p.Close()) })
	return p
}

// read reads at a time after the start and returns the readings by ID.
func (tr tree) read(p power.Meter, d time.Duration) map[string]power.Reading {
	tr.Helper()
	rs, err := p.Read(context.Background(), power.Sample{At: after(d)})
	tr.ok(err)
	return powertest.ByID(rs)
}

// expectIDs compares the IDs of the zones that the meter finds, in its order.
func (tr tree) expectIDs(p power.Meter, want ...string) {
	tr.Helper()
	rs, err := p.Read(context.Background(), power.Sample{At: after(0)})
	tr.ok(err)
	var got []string
	for _, r := range rs {
		got = append(got, r.Zone.ID)
	}
	assert.Equal(tr, want, got)
}

func (tr tree) expectTotal(r power.Reading, want units.Energy) {
	tr.Helper()
	assert.NoError(tr, r.Err)
	assert.Equal(tr, want, r.Total)
}

func TestFiles(t *testing.T) {
	powertest.Files(t, func(t testing.TB, always bool) *powertest.Machine {
		tr := newTree(t)
		set := func(zone, joules int) {
			tr.energy(fmt.Sprint("intel-rapl:", zone), units.Energy(joules)*units.Joule)
		}
		for zone := range 2 {
			tr.zone(fmt.Sprint("intel-rapl:", zone), fmt.Sprint("package-", zone))
			set(zone, 1000)
		}
		s := newSource(tr.root, nil)
		s.Search.Always = always
		meter := power.Direct("powercap", s)
		t.Cleanup(func() { tr.ok(meter.Close()) })
		return &powertest.Machine{
			DiscoveryAllocs: 100,
			Meter:           meter, Zones: [2]string{"intel-rapl:0", "intel-rapl:1"}, Set: set, Dir: tr.path(), Searched: tr.path(),
			Path: func(zone int) string { return tr.path(fmt.Sprint("intel-rapl:", zone), "energy_uj") },
		}
	})
}

func TestTrap05PowercapWrapsAtItsRange(t *testing.T) {
	tr := newTree(t)
	tr.zone("intel-rapl:0", "package-0")
	tr.energy("intel-rapl:0", raplRange-10)
	p := tr.meter()
	tr.read(p, 0)
	tr.energy("intel-rapl:0", 20)
	r := tr.read(p, time.Second)["intel-rapl:0"]
	tr.expectTotal(r, 30)
	assert.Equal(t, power.Wrapped, r.Event)
	t.Attr("overflow", fmt.Sprintf("%d µJ", r.Total))
	tr.energy("intel-rapl:0", 15)
	if r = tr.read(p, 2*time.Second)["intel-rapl:0"]; r.Event != power.Rebased || r.Total != 30 {
		t.Errorf("small step back: %+v, want the total of before, re-based", r)
	}
}

func TestPowercapZoneHasKindParentAndID(t *testing.T) {
	tr := newTree(t)
	tr.zone("intel-rapl:0", "package-0")
	tr.zone("intel-rapl:0:0", "core")
	tr.zone("intel-rapl:0:0:1", "uncore") // deeper than the driver's zones, but allowed by powercap
	tr.zone("intel-rapl:1", "psys")
	rs := tr.read(tr.meter(), 0)
	for _, want := range []power.Zone{
		{ID: "intel-rapl:0", Name: "package-0", Kind: power.Package, Domain: "package-0", MaxWatts: 1_500},
		{ID: "intel-rapl:0:0", Name: "core", Kind: power.Core, Parent: "intel-rapl:0", Domain: "package-0", MaxWatts: 1_500},
		{ID: "intel-rapl:0:0:1", Name: "uncore", Kind: power.Uncore, Parent: "intel-rapl:0:0", Domain: "package-0", MaxWatts: 1_500},
		{ID: "intel-rapl:1", Name: "psys", Kind: power.PSys, Domain: units.NodeCPUs, MaxWatts: 10_000},
	} {
		want.Method, want.Prompt = power.Measured, want.Kind != power.PSys
		assert.Equal(t, &want, rs[want.ID].Zone)
	}
}

func TestAZoneWaitsForTheNameOfItsPackage(t *testing.T) {
	tr := newTree(t)
	tr.zone("intel-rapl:0", "package-0")
	tr.zone("intel-rapl:0:0", "dram")
	tr.zone("intel-rapl:1", "package-1")
	p := tr.meter()
	tr.write("pack", "intel-rapl:0", "name")
	tr.expectIDs(p, "intel-rapl:1")
	tr.write("package-0\n", "intel-rapl:0", "name")
	assert.EqualValues(t, "package-0", tr.read(p, 10*time.Second)["intel-rapl:0:0"].Zone.Domain)
}

func TestTrap08RepeatSeenBeforeItsOwnerIsDropped(t *testing.T) {
	tr := newTree(t)
	tr.zone("intel-rapl-mmio:0", "package-0")
	p := tr.meter()
	tr.expectIDs(p, "intel-rapl-mmio:0")
	tr.zone("intel-rapl:0", "package-0")
	assert.Equal(t, []string{"intel-rapl:0"}, slices.Collect(maps.Keys(tr.read(p, 10*time.Second))))
	tr.remove("intel-rapl:0") // the repeat does not stand in for its owner
	gone, _ := p.Read(context.Background(), power.Sample{At: after(20 * time.Second)})
	if len(gone) != 1 || gone[0].Zone.ID != "intel-rapl:0" || !errors.Is(gone[0].Err, fs.ErrNotExist) {
		t.Errorf("readings %+v, want the owner, gone", gone)
	}
}

func TestTrap08OtherDirectoriesAreSkipped(t *testing.T) {
	tr := newTree(t)
	tr.zone("intel-rapl:0", "package-0")
	tr.zone("intel-rapl:1", "mystery")
	tr.zone("intel-rapl:2", "package-2")
	tr.remove("intel-rapl:2", "energy_uj") // a zone that caps power and counts nothing
	tr.zone("intel-rapl:3", "package-3")
	tr.remove("intel-rapl:3", "name")
	tr.ok(os.MkdirAll(tr.path("intel-rapl", "power"), 0o700))
	tr.write("1\n", "intel-rapl", "enabled")
	tr.write("", "a-file:0")
	tr.zone("dtpm:0", "package-0") // of a control type that counts no energy
	tr.remove("dtpm:0", "max_energy_range_uj")
	tr.expectIDs(tr.meter(), "intel-rapl:0")
}

func TestTrap08AnotherZoneUnderAnOldIDIsNew(t *testing.T) {
	tr := newTree(t)
	tr.zone("intel-rapl:0", "package-0")
	tr.zone("intel-rapl:0:0", "dram")
	p := tr.meter()
	tr.read(p, 0)
	tr.energy("intel-rapl:0:0", 2000)
	before := tr.read(p, time.Second)
	tr.write("package-1\n", "intel-rapl:0", "name") // the sockets came back in another order
	tr.energy("intel-rapl:0:0", 9000)
	rs := tr.read(p, 10*time.Second)
	for id, r := range rs {
		if r.Zone == before[id].Zone || r.Event != power.Appeared || r.Total != 0 {
			t.Errorf("%s: %+v goes on from another socket's", id, r)
		}
	}
}

func TestPowercapFollowsTheKernelsLinks(t *testing.T) {
	tr := newTree(t)
	devices := filepath.Join(tr.root, "sys/devices/virtual/powercap/intel-rapl")
	tr.ok(os.MkdirAll(filepath.Dir(tr.path("x")), 0o700))
	link := func(id string, elem ...string) {
		dir := filepath.Join(append([]string{devices}, elem...)...)
		tr.ok(os.MkdirAll(dir, 0o700))
		to, err := filepath.Rel(tr.path(), dir)
		tr.ok(err)
		tr.ok(os.Symlink(to, tr.path(id)))
	}
	link("intel-rapl")
	link("intel-rapl:0", "intel-rapl:0")
	link("intel-rapl:0:0", "intel-rapl:0", "intel-rapl:0:0")
	tr.ok(os.Symlink("../../intel-rapl", filepath.Join(devices, "intel-rapl:0", "device")))
	tr.zone("intel-rapl:0", "package-0")
	tr.zone("intel-rapl:0:0", "dram")
	tr.expectIDs(tr.meter(), "intel-rapl:0", "intel-rapl:0:0")
}

func TestPowercapFindsSubzonesInTheirParentsDirectory(t *testing.T) {
	tr := newTree(t)
	tr.zone("intel-rapl:0", "package-0")
	tr.zone("intel-rapl:0/intel-rapl:0:0", "core")
	tr.zone("intel-rapl:0/intel-rapl:0:1", "dram")
	tr.zone("intel-rapl:0:1", "dram") // listed at the top level as well
	tr.zone("intel-rapl/intel-rapl:1", "package-1")
	tr.energy("intel-rapl:0/intel-rapl:0:1", 77)
	p := tr.meter()
	tr.expectIDs(p, "intel-rapl:0", "intel-rapl:0:0", "intel-rapl:0:1", "intel-rapl:1")
	tr.energy("intel-rapl:0:1", 1300)
	tr.expectTotal(tr.read(p, time.Second)["intel-rapl:0:1"], 300)
}

func TestRangeThatIsMissingOrGarbageIsUnknown(t *testing.T) {
	for _, text := range []string{"missing", "", "much\n", "0\n", "-1\n"} {
		t.Run(strconv.Quote(text), func(t *testing.T) {
			tr := newTree(t)
			tr.zone("intel-rapl:0", "package-0")
			tr.write(text, "intel-rapl:0", "max_energy_range_uj")
			if text == "missing" {
				tr.remove("intel-rapl:0", "max_energy_range_uj")
			}
			tr.energy("intel-rapl:0", raplRange-10)
			p := tr.meter()
			tr.read(p, 0)
			tr.energy("intel-rapl:0", raplRange)
			tr.expectTotal(tr.read(p, time.Second)["intel-rapl:0"], 10)
			tr.energy("intel-rapl:0", 5)
			if r := tr.read(p, 2*time.Second)["intel-rapl:0"]; r.Event != power.Rebased || r.Total != 10 {
				t.Errorf("step back: %+v, want it re-based", r)
			}
		})
	}
}

func TestRangeThatTurnsUpLaterIsUsed(t *testing.T) {
	tr := newTree(t)
	tr.zone("intel-rapl:0", "package-0")
	tr.energy("intel-rapl:0", raplRange-10)
	tr.remove("intel-rapl:0", "max_energy_range_uj")
	p := tr.meter()
	tr.read(p, 0)
	tr.write(fmt.Sprintln(uint64(raplRange)), "intel-rapl:0", "max_energy_range_uj")
	tr.energy("intel-rapl:0", 5)
	tr.expectTotal(tr.read(p, 10*time.Second)["intel-rapl:0"], 15)
}

func TestAMissingUsableZoneIsAnErrorAndRecovers(t *testing.T) {
	tr := newTree(t)
	tr.ok(os.MkdirAll(tr.path("intel-rapl"), 0o700))
	tr.ok(os.Symlink("nowhere", tr.path("intel-rapl:0"))) // masked in a container
	p := tr.meter()
	rs, err := p.Read(context.Background(), power.Sample{At: after(0)})
	assert.Empty(t, rs)
	assert.ErrorIs(t, err, power.ErrNoZones)
	assert.NotErrorIs(t, err, fs.ErrNotExist)
	tr.zone("intel-rapl:1", "package-0")
	if rs := tr.read(p, time.Second); len(rs) != 1 || rs["intel-rapl:1"].Event != power.Appeared {
		t.Errorf("%+v, want the zone to have appeared", rs)
	}
}

// failNames makes reads of the names of zones fail until the returned function is called.
func failNames(err error) (restore func()) {
	return kernfs.InjectFaults(func(path string, got []byte, good error) ([]byte, error) {
		if filepath.Base(path) == "name" {
			return nil, err
		}
		return got, good
	})
}

func TestTheErrorOfNoUsableZoneNamesTheReadFailure(t *testing.T) {
	tr := newTree(t)
	tr.zone("intel-rapl:0", "package-0")
	defer failNames(syscall.EACCES)()
	_, err := tr.meter().Read(context.Background(), power.Sample{At: after(0)})
	assert.ErrorIs(t, err, power.ErrNoZones)
	assert.ErrorIs(t, err, fs.ErrPermission)
}

func TestDiscoveryThatFailsDoesNotHarmOpenCounters(t *testing.T) {
	tr := newTree(t)
	tr.zone("intel-rapl:0", "package-0")
	p := tr.meter()
	tr.read(p, 0)
	restore := failNames(syscall.EMFILE)
	tr.ok(os.Rename(tr.path("intel-rapl:0", "energy_uj"), tr.path("intel-rapl:0", "other")))
	tr.write("1100\n", "intel-rapl:0", "other")
	tr.expectTotal(tr.read(p, 10*time.Second)["intel-rapl:0"], 100)
	restore()
	tr.energy("intel-rapl:0", 1200)
	tr.expectTotal(tr.read(p, 11*time.Second)["intel-rapl:0"], 200)
}

func TestZoneNames(t *testing.T) {
	var kinds []power.Kind
	for _, name := range []string{"package-0", "core", "uncore", "dram", "psys"} {
		kind, _ := KindOf(name)
		kinds = append(kinds, kind)
	}
	t.Attr("zones", fmt.Sprint(kinds))
	for name, want := range map[string]power.Kind{
		"package-0": power.Package, "package-12": power.Package, "package-0-die-1": power.Package, "core": power.Core, "uncore": power.Uncore,
		"dram": power.DRAM, "psys": power.PSys, "psys-1": power.PSys, "psys-": "", "psys-x": "", "": "", "package": "", "package-": "", "package-x": "", "package-0-die-": "",
		"package-0-die-x": "", "package-0-1": "", "package--die-1": "", "Core": "", "dram2": "", "cpu0-cpufreq": "",
	} {
		if got, ok := KindOf(name); got != want || ok != (want != "") {
			t.Errorf("%q is %q, %t; want %q", name, got, ok, want)
		}
	}
}

func FuzzZoneName(f *testing.F) {
	for _, name := range []string{"package-0", "package-0-die-1", "core", "uncore", "dram", "psys", "package", "package-", "\xff", "package-0-die-1-die-2"} {
		f.Add(name)
	}
	f.Fuzz(func(t *testing.T, name string) {
		kind, ok := KindOf(name)
		if ok != slices.Contains(power.Kinds, kind) {
			t.Fatalf("%q is %q, %t", name, kind, ok)
		}
		if ok && !strings.HasPrefix(name, string(kind)) {
			t.Fatalf("%q is %q", name, kind)
		}
	})
}
