// SPDX-License-Identifier: Apache-2.0

package powercap

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
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

	"github.com/energyreceiver/energyreceiver/internal/power"
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
func (tr tree) meter() *Meter {
	p := New(tr.root, nil)
	tr.Cleanup(func() { tr.ok(p.Close()) })
	return p
}

// read reads at a time after the start and returns the readings by ID.
func (tr tree) read(p *Meter, d time.Duration) map[string]power.Reading {
	tr.Helper()
	rs, err := p.Read(context.Background(), power.Sample{At: after(d)})
	tr.ok(err)
	return byID(rs)
}

func byID(rs []power.Reading) map[string]power.Reading {
	m := make(map[string]power.Reading, len(rs))
	for _, r := range rs {
		m[r.Zone.ID] = r
	}
	return m
}

// ids returns the IDs of the zones that the meter finds, in its order.
func (tr tree) ids(p *Meter) []string {
	tr.Helper()
	rs, err := p.Read(context.Background(), power.Sample{At: after(0)})
	tr.ok(err)
	var ids []string
	for _, r := range rs {
		ids = append(ids, r.Zone.ID)
	}
	return ids
}

func (tr tree) expectIDs(p *Meter, want ...string) {
	tr.Helper()
	if got := tr.ids(p); !slices.Equal(got, want) {
		tr.Errorf("zones %q, want %q", got, want)
	}
}

func (tr tree) expectTotal(r power.Reading, want units.Energy) {
	tr.Helper()
	if r.Err != nil || r.Total != want {
		tr.Errorf("total %d, error %v; want %d", r.Total, r.Err, want)
	}
}

// refuse makes the meter's opens of the zone's counter fail until the returned function is called.
func refuse(p *Meter, place string, err error) (stop func()) {
	open := p.open
	p.open = func(path string) (*os.File, error) {
		if strings.HasSuffix(path, filepath.Join(place, "energy_uj")) {
			return nil, &fs.PathError{Op: "open", Path: path, Err: err}
		}
		return open(path)
	}
	return func() { p.open = open }
}

// counterFile returns a variable that holds the energy counter opened last.
func counterFile(p *Meter) **os.File {
	last, open := new(*os.File), p.open
	p.open = func(path string) (*os.File, error) {
		f, err := open(path)
		if filepath.Base(path) == "energy_uj" {
			*last = f
		}
		return f, err
	}
	return last
}

var _ power.Meter = (*Meter)(nil)

func TestTheRawCounterOutlivesTheMeter(t *testing.T) {
	tr := newTree(t)
	tr.zone("intel-rapl:0", "package-0")
	p := tr.meter()
	tr.read(p, 0)
	tr.energy("intel-rapl:0", 5000)
	want := power.Raw{Energy: 5000, Range: raplRange, MaxWatts: power.MaxSocketWatts, At: after(time.Second)}
	assert.Equal(t, want, tr.read(p, time.Second)["intel-rapl:0"].Raw)
	tr.write("no number\n", "intel-rapl:0", "energy_uj")
	rs, _ := p.Read(context.Background(), power.Sample{At: after(2 * time.Second)})
	if got := rs[0]; got.Err == nil || got.Raw != want {
		t.Errorf("after a failed read: %+v, want %+v", got, want)
	}
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
		if r, ok := rs[want.ID]; !ok || *r.Zone != want {
			t.Errorf("zone %+v, want %+v", r.Zone, want)
		}
	}
}

// Domains have the kernel's names of packages and dies, so that they agree with the topology of the CPUs.
func TestTheDomainOfAZoneIsItsPackage(t *testing.T) {
	tr := newTree(t)
	tr.zone("intel-rapl:0", "package-1-die-0")
	tr.zone("intel-rapl:0:0", "dram")
	tr.zone("intel-rapl:1", "psys-1")
	tr.zone("intel-rapl:2:0", "core") // its package was never seen
	tr.zone("intel-rapl:3", "dram")   // in no package
	for id, want := range map[string]units.Domain{
		"intel-rapl:0": "package-1-die-0", "intel-rapl:0:0": "package-1-die-0",
		"intel-rapl:1": units.NodeCPUs, "intel-rapl:2:0": units.NodeCPUs, "intel-rapl:3": units.NodeCPUs,
	} {
		if z := tr.read(tr.meter(), 0)[id].Zone; z == nil || z.Domain != want {
			t.Errorf("%s: %+v, want the domain %s", id, z, want)
		}
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
	if z := tr.read(p, 10*time.Second)["intel-rapl:0:0"].Zone; z == nil || z.Domain != "package-0" {
		t.Errorf("%+v, want a zone of package-0", z)
	}
}

func TestTrap08DieIsAPackage(t *testing.T) {
	tr := newTree(t)
	for i, name := range []string{"package-0-die-0", "package-0-die-1", "package-1-die-0", "package-1-die-1"} {
		tr.zone(fmt.Sprintf("intel-rapl:%d", i), name)
		tr.zone(fmt.Sprintf("intel-rapl:%d:0", i), "dram")
	}
	rs := tr.read(tr.meter(), 0)
	for i := range 4 {
		if r := rs[fmt.Sprintf("intel-rapl:%d", i)]; r.Zone == nil || r.Zone.Kind != power.Package {
			t.Errorf("die %d: %+v is not a package", i, r.Zone)
		}
	}
	assert.Len(t, rs, 8)
}

func TestTrap08DRAMOfTwoSocketsIsTwo(t *testing.T) {
	tr := newTree(t)
	for _, s := range []string{"0", "1"} {
		tr.zone("intel-rapl:"+s, "package-"+s)
		tr.zone("intel-rapl:"+s+":0", "dram")
	}
	tr.expectIDs(tr.meter(), "intel-rapl:0", "intel-rapl:0:0", "intel-rapl:1", "intel-rapl:1:0")
}

func TestTrap08RepeatedZoneIsOne(t *testing.T) {
	tr := newTree(t)
	tr.zone("intel-rapl:0", "package-0")
	tr.zone("intel-rapl:0:0", "dram")
	tr.zone("intel-rapl-mmio:0", "package-0")
	tr.zone("intel-rapl-mmio:0:0", "dram")
	tr.zone("intel-rapl-mmio:0:1", "uncore") // only the mmio control type has it
	tr.expectIDs(tr.meter(), "intel-rapl-mmio:0:1", "intel-rapl:0", "intel-rapl:0:0")
}

func TestTrap08ZoneOfAnotherControlTypeAloneIsKept(t *testing.T) {
	tr := newTree(t)
	tr.zone("intel-rapl:0", "package-0")
	tr.zone("intel-rapl:0:0", "dram")
	tr.zone("intel-rapl-mmio:0", "package-1") // another socket
	tr.zone("intel-rapl-mmio:0:0", "dram")    // not the memory of the first socket
	tr.expectIDs(tr.meter(), "intel-rapl-mmio:0", "intel-rapl-mmio:0:0", "intel-rapl:0", "intel-rapl:0:0")
}

func TestTrap08RepeatSeenBeforeItsOwnerIsDropped(t *testing.T) {
	tr := newTree(t)
	tr.zone("intel-rapl-mmio:0", "package-0")
	p := tr.meter()
	tr.expectIDs(p, "intel-rapl-mmio:0")
	tr.zone("intel-rapl:0", "package-0")
	rs := tr.read(p, 10*time.Second)
	if _, there := rs["intel-rapl-mmio:0"]; there || len(rs) != 1 {
		t.Errorf("%d zones, repeat there: %t; want the owner alone", len(rs), there)
	}
}

func TestTrap08RepeatDoesNotStandInForAnAbsentOwner(t *testing.T) {
	tr := newTree(t)
	tr.zone("intel-rapl:0", "package-0")
	tr.zone("intel-rapl-mmio:0", "package-0")
	p := tr.meter()
	tr.expectIDs(p, "intel-rapl:0")
	tr.remove("intel-rapl:0")
	_, _ = p.Read(context.Background(), power.Sample{At: after(10 * time.Second)})
	rs, _ := p.Read(context.Background(), power.Sample{At: after(11 * time.Second)})
	if len(rs) != 1 || rs[0].Zone.ID != "intel-rapl:0" || !errors.Is(rs[0].Err, fs.ErrNotExist) {
		t.Errorf("readings %+v, want the owner, gone", rs)
	}
}

func TestTrap08ForeignZoneIsSkipped(t *testing.T) {
	tr := newTree(t)
	tr.zone("intel-rapl:0", "package-0")
	tr.zone("dtpm:0", "package-0")
	tr.remove("dtpm:0", "max_energy_range_uj")
	tr.zone("dtpm:1", "core")
	tr.remove("dtpm:1", "max_energy_range_uj")
	tr.expectIDs(tr.meter(), "intel-rapl:0")
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
	tr.expectIDs(tr.meter(), "intel-rapl:0")
}

func TestTrap08ZonesThatAppearAreNoticed(t *testing.T) {
	tr := newTree(t)
	tr.zone("intel-rapl:0", "package-0")
	p := tr.meter()
	first := tr.read(p, 0)["intel-rapl:0"].Zone
	tr.zone("intel-rapl:1", "package-1")
	assert.Len(t, tr.read(p, 9*time.Second), 1)
	rs := tr.read(p, 10*time.Second)
	if len(rs) != 2 || rs["intel-rapl:1"].Event != power.Appeared {
		t.Errorf("%+v, want the second to have appeared", rs)
	}
	if rs["intel-rapl:0"].Zone != first {
		t.Errorf("the first zone's pointer changed")
	}
}

func TestTrap08ZonesThatAppearAreNoticedRightAfterAFailure(t *testing.T) {
	tr := newTree(t)
	tr.zone("intel-rapl:0", "package-0")
	p := tr.meter()
	tr.read(p, 0)
	tr.write("?", "intel-rapl:0", "energy_uj")
	tr.zone("intel-rapl:1", "package-1")
	assert.Len(t, tr.read(p, time.Second), 1)
	tr.energy("intel-rapl:0", 1000)
	assert.Len(t, tr.read(p, 2*time.Second), 2)
}

func TestTrap08ZoneThatVanishesAndReturnsLosesNothing(t *testing.T) {
	tr := newTree(t)
	tr.zone("intel-rapl:0", "package-0")
	tr.zone("intel-rapl:1", "package-1")
	p := tr.meter()
	tr.read(p, 0)
	tr.energy("intel-rapl:1", 1500)
	tr.read(p, time.Second)
	tr.remove("intel-rapl:1")
	for _, d := range []time.Duration{10 * time.Second, 11 * time.Second} {
		r := tr.read(p, d)["intel-rapl:1"]
		if !errors.Is(r.Err, fs.ErrNotExist) || r.Total != 500 || !r.At.Equal(after(time.Second)) {
			t.Errorf("gone at %v: %+v; want the old total and why", d, r)
		}
	}
	tr.zone("intel-rapl:1", "package-1")
	tr.energy("intel-rapl:1", 1800)
	r := tr.read(p, 12*time.Second)["intel-rapl:1"]
	tr.expectTotal(r, 800)
	if r.Event != power.NoEvent || !r.At.Equal(after(12*time.Second)) {
		t.Errorf("back: %+v", r)
	}
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

func TestTrap06FailedReadIsCoveredByTheNext(t *testing.T) {
	tr := newTree(t)
	tr.zone("intel-rapl:0", "package-0")
	tr.zone("intel-rapl:0:0", "dram")
	p := tr.meter()
	tr.read(p, 0)

	tr.energy("intel-rapl:0", 2000)
	tr.write("", "intel-rapl:0:0", "energy_uj")
	rs := tr.read(p, time.Second)
	tr.expectTotal(rs["intel-rapl:0"], 1000)
	bad := rs["intel-rapl:0:0"]
	if bad.Err == nil || bad.Total != 0 || bad.Event != power.NoEvent || !bad.At.Equal(after(0)) {
		t.Errorf("failed zone: %+v; want total and time as they were, and why", bad)
	}

	tr.energy("intel-rapl:0", 3000)
	tr.energy("intel-rapl:0:0", 1600)
	rs = tr.read(p, 2*time.Second)
	tr.expectTotal(rs["intel-rapl:0"], 2000)
	tr.expectTotal(rs["intel-rapl:0:0"], 600)
	if at := rs["intel-rapl:0:0"].At; !at.Equal(after(2 * time.Second)) {
		t.Errorf("the good read is as of %v", at.Sub(epoch))
	}
}

func TestTrap07EnergyOfAFailedSocketIsLateNotLost(t *testing.T) {
	tr := newTree(t)
	tr.zone("intel-rapl:0", "package-0")
	tr.zone("intel-rapl:1", "package-1")
	p := tr.meter()
	tr.read(p, 0)
	var sum units.Energy
	for i := 1; i <= 6; i++ {
		for _, id := range []string{"intel-rapl:0", "intel-rapl:1"} {
			tr.energy(id, 1000+units.Energy(i)*50*units.Joule)
		}
		if i == 3 || i == 4 { // the kernel's error if it cannot read the register
			tr.write("?", "intel-rapl:1", "energy_uj")
		}
		var now units.Energy
		for _, r := range tr.read(p, time.Duration(i)*time.Second) {
			now += r.Total
		}
		if now < sum {
			t.Errorf("second %d: the sum fell from %d to %d", i, sum, now)
		}
		sum = now
		if i == 4 && sum != 300*units.Joule {
			t.Errorf("second 4: %d µJ, want the good socket's 200 J and the other's 100 J", sum)
		}
	}
	assert.Equal(t, 600*units.Joule, sum)
}

func TestReplacedCounterFileIsReopened(t *testing.T) {
	tr := newTree(t)
	tr.zone("intel-rapl:0", "package-0")
	p := tr.meter()
	tr.read(p, 0)
	tr.write("1700\n", "intel-rapl:0", "new")
	tr.ok(os.Rename(tr.path("intel-rapl:0", "new"), tr.path("intel-rapl:0", "energy_uj")))
	tr.expectTotal(tr.read(p, 10*time.Second)["intel-rapl:0"], 700)
}

func TestTrap13UnreadableCounterRecoversWhenItBecomesReadable(t *testing.T) {
	tr := newTree(t)
	tr.zone("intel-rapl:0", "package-0")
	tr.zone("intel-rapl:0:0", "dram")
	p := tr.meter()
	grant := refuse(p, "intel-rapl:0", syscall.EACCES)
	if err := p.discover()(); len(p.zones) != 2 || err != nil {
		t.Errorf("discover: %d zones, %v; want both and no error", len(p.zones), err)
	}
	for i := range 2 {
		rs := tr.read(p, time.Duration(i)*time.Second)
		r := rs["intel-rapl:0"]
		if !errors.Is(r.Err, fs.ErrPermission) || !strings.Contains(r.Err.Error(), tr.path("intel-rapl:0", "energy_uj")) {
			t.Errorf("error %v, want permission denied for the path", r.Err)
		}
		if r.Total != 0 || !r.At.IsZero() || r.Event != power.NoEvent {
			t.Errorf("%+v before any good read", r)
		}
		tr.expectTotal(rs["intel-rapl:0:0"], 0)
	}
	grant()
	if r := tr.read(p, 2*time.Second)["intel-rapl:0"]; r.Err != nil || r.Event != power.Appeared || r.Total != 0 {
		t.Errorf("granted: %+v, want the baseline", r)
	}
	tr.energy("intel-rapl:0", 1100)
	tr.expectTotal(tr.read(p, 3*time.Second)["intel-rapl:0"], 100)
}

func TestTrap13AllCountersUnreadableIsNotAnErrorOfTheRead(t *testing.T) {
	tr := newTree(t)
	tr.zone("intel-rapl:0", "package-0")
	p := tr.meter()
	refuse(p, "intel-rapl:0", syscall.EPERM)
	assert.ErrorIs(t, tr.read(p, 0)["intel-rapl:0"].Err, fs.ErrPermission)
}

func TestBadCounterTextFailsItsZoneOnly(t *testing.T) {
	for _, text := range []string{"", "\n", "abc\n", "-5\n", "+5\n", " 5\n", "5 5\n", "0x10\n", "1.5\n", "5\x00", "18446744073709551616\n", strings.Repeat("9", 100)} {
		t.Run(strconv.Quote(text), func(t *testing.T) {
			tr := newTree(t)
			tr.zone("intel-rapl:0", "package-0")
			tr.zone("intel-rapl:1", "package-1")
			tr.write(text, "intel-rapl:0", "energy_uj")
			rs := tr.read(tr.meter(), 0)
			tr.expectTotal(rs["intel-rapl:1"], 0)
			if err := rs["intel-rapl:0"].Err; err == nil || !strings.Contains(err.Error(), tr.path("intel-rapl:0", "energy_uj")) {
				t.Errorf("error %v does not name the file", err)
			}
		})
	}
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

// opens counts the files that the meter opens, by name.
func opens(p *Meter) map[string]int {
	counts := map[string]int{}
	open := p.open
	p.open = func(path string) (*os.File, error) {
		counts[filepath.Base(path)]++
		return open(path)
	}
	return counts
}

func TestAZoneThatFailsIsRetriedAtEveryPassAndDiscoveryEverySecond(t *testing.T) {
	tr := newTree(t)
	tr.zone("intel-rapl:0", "package-0")
	p := tr.meter()
	at := time.Duration(0)
	read := func() power.Reading {
		at += 10 * time.Millisecond
		return tr.read(p, at)["intel-rapl:0"]
	}
	read()
	counts := opens(p)
	expect := func(what, file string, want int) {
		t.Helper()
		assert.Equal(t, want, counts[file], "%v, %v", what, file)
		clear(counts)
	}
	grant := refuse(p, "intel-rapl:0", syscall.EACCES)
	p.zones[0].CloseFile()
	read()
	expect("as it fails", "name", 0)
	read()
	expect("right after", "name", 1)
	for range 200 {
		require.Error(t, read().Err, "no error from a counter that may not be opened")
	}
	expect("in two seconds", "name", 2)

	grant()
	tr.energy("intel-rapl:0", 1100)
	tr.expectTotal(read(), 100)
	for range 200 {
		read()
	}
	expect("in two seconds after it recovered", "energy_uj", 1)

	for i := range 200 { // occasionally
		text := "1100\n"
		if i%2 == 0 {
			text = "?"
		}
		tr.write(text, "intel-rapl:0", "energy_uj")
		read()
	}
	if n := counts["name"]; n == 0 || n > 3 {
		t.Errorf("%d discoveries in two seconds of a zone that comes and goes", n)
	}
}

func TestAMissingPowercapInterfaceIsAnErrorAndRecovers(t *testing.T) {
	tr := newTree(t)
	p := tr.meter()
	err := p.discover()()
	if len(p.zones) != 0 || !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), "no powercap interface below "+tr.root) {
		t.Errorf("discover: %d zones, %v", len(p.zones), err)
	}
	for i := range 2 {
		rs, err := p.Read(context.Background(), power.Sample{At: after(time.Duration(i) * time.Second)})
		if len(rs) != 0 || !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("Read: %+v, %v", rs, err)
		}
	}
	tr.zone("intel-rapl:0", "package-0")
	assert.Equal(t, power.Appeared, tr.read(p, 2*time.Second)["intel-rapl:0"].Event)
}

func TestAMissingUsableZoneIsAnErrorAndRecovers(t *testing.T) {
	tr := newTree(t)
	tr.ok(os.MkdirAll(tr.path("intel-rapl"), 0o700))
	tr.ok(os.Symlink("nowhere", tr.path("intel-rapl:0"))) // masked in a container
	p := tr.meter()
	err := p.discover()()
	if len(p.zones) != 0 || !errors.Is(err, power.ErrNoZones) || errors.Is(err, fs.ErrNotExist) {
		t.Errorf("discover: %d zones, %v", len(p.zones), err)
	}
	rs, err := p.Read(context.Background(), power.Sample{At: after(0)})
	if len(rs) != 0 || !errors.Is(err, power.ErrNoZones) {
		t.Errorf("Read: %+v, %v", rs, err)
	}
	tr.zone("intel-rapl:1", "package-0")
	if rs := tr.read(p, time.Second); len(rs) != 1 || rs["intel-rapl:1"].Event != power.Appeared {
		t.Errorf("%+v, want the zone to have appeared", rs)
	}
}

func TestTheErrorOfNoUsableZoneNamesTheReadFailure(t *testing.T) {
	tr := newTree(t)
	tr.zone("intel-rapl:0", "package-0")
	p := tr.meter()
	p.open = func(path string) (*os.File, error) {
		return nil, &fs.PathError{Op: "open", Path: path, Err: syscall.EACCES}
	}
	if err := p.discover()(); !errors.Is(err, power.ErrNoZones) || !errors.Is(err, fs.ErrPermission) {
		t.Errorf("error %v, want both no zones and permission denied", err)
	}
}

func TestPowercapPathThatIsNoDirectoryIsAnError(t *testing.T) {
	tr := newTree(t)
	tr.ok(os.MkdirAll(filepath.Dir(tr.path()), 0o700))
	tr.ok(os.WriteFile(tr.path(), nil, 0o600))
	p := tr.meter()
	if err := p.discover()(); len(p.zones) != 0 || !errors.Is(err, syscall.ENOTDIR) {
		t.Errorf("discover: %d zones, %v", len(p.zones), err)
	}
}

func TestWholeInterfaceThatVanishesKeepsItsZones(t *testing.T) {
	tr := newTree(t)
	tr.zone("intel-rapl:0", "package-0")
	p := tr.meter()
	tr.read(p, 0)
	tr.energy("intel-rapl:0", 1100)
	tr.read(p, time.Second)
	tr.remove()
	rs, err := p.Read(context.Background(), power.Sample{At: after(10 * time.Second)})
	if !errors.Is(err, fs.ErrNotExist) || len(rs) != 1 || !errors.Is(rs[0].Err, fs.ErrNotExist) || rs[0].Total != 100 {
		t.Errorf("gone: %+v, %v", rs, err)
	}
	tr.zone("intel-rapl:0", "package-0")
	tr.energy("intel-rapl:0", 1150)
	tr.expectTotal(tr.read(p, 11*time.Second)["intel-rapl:0"], 150)
}

func TestDiscoveryThatFailsDoesNotHarmOpenCounters(t *testing.T) {
	tr := newTree(t)
	tr.zone("intel-rapl:0", "package-0")
	p := tr.meter()
	tr.read(p, 0)
	open := p.open
	p.open = func(path string) (*os.File, error) {
		return nil, &fs.PathError{Op: "open", Path: path, Err: syscall.EMFILE}
	}
	tr.energy("intel-rapl:0", 1100)
	tr.expectTotal(tr.read(p, 10*time.Second)["intel-rapl:0"], 100)
	p.open = open
	tr.energy("intel-rapl:0", 1200)
	tr.expectTotal(tr.read(p, 11*time.Second)["intel-rapl:0"], 200)
}

func TestCloseClosesDescriptorsAndMayBeRepeated(t *testing.T) {
	tr := newTree(t)
	tr.zone("intel-rapl:0", "package-0")
	p := New(tr.root, nil)
	f := counterFile(p)
	tr.read(p, 0)
	tr.ok(p.Close())
	tr.ok(p.Close())
	assert.ErrorIs(t, (*f).Close(), os.ErrClosed)
	if _, err := p.Read(context.Background(), power.Sample{At: after(0)}); !errors.Is(err, fs.ErrClosed) {
		t.Errorf("Read after Close: %v", err)
	}
}

func TestZoneNames(t *testing.T) {
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
