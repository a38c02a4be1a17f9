// SPDX-License-Identifier: Apache-2.0

package guest

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/energyreceiver/energyreceiver/internal/power"
	"github.com/energyreceiver/energyreceiver/internal/units"
)

// publishing is a publisher in a bubble, with what it is given.
type publishing struct {
	*Publisher
	t   *testing.T
	dir string
	at  time.Time
}

func newPublishing(t *testing.T) *publishing {
	p := &publishing{t: t, dir: filepath.Join(newDir(t), "guests"), at: noon}
	p.restart()
	t.Cleanup(func() { assert.NoError(t, p.Close()) })
	return p
}

// restart begins with a new publisher.
func (p *publishing) restart() {
	if p.Publisher != nil {
		require.NoError(p.t, p.Close())
	}
	p.Publisher = NewPublisher(p.dir)
}

// publish publishes ten seconds later and waits for the trees.
func (p *publishing) publish(vms ...VM) {
	p.at = p.at.Add(10 * time.Second)
	p.Publish(vms, p.at)
	synctest.Wait()
}

// report returns the report of the tree in a directory.
func (p *publishing) report(dir string) *Report {
	p.t.Helper()
	report, err := (&reader{path: filepath.Join(p.dir, dir)}).read()
	require.NoError(p.t, err)
	return report
}

// shows checks the package energy of a tree and the ID of its machine.
func (p *publishing) shows(dir string, energy int, id string) {
	p.t.Helper()
	r := p.report(dir)
	assert.Equal(p.t, id, r.ID, dir)
	assert.Equal(p.t, units.Energy(energy), r.Zones[indexOf(r.Zones, power.Package)].Energy, dir)
}

// vm returns a machine that was attributed so much package energy.
func vm(id, name string, energy int) VM {
	return VM{ID: id, Name: name, Zones: zones(power.Package, energy)}
}

func published(t *testing.T, test func(p *publishing)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { test(newPublishing(t)) })
}

func TestATotalGoesOnWhereASeriesBeginsAnew(t *testing.T) {
	published(t, func(p *publishing) {
		began := func(start int, v VM) VM {
			v.Start = noon.Add(time.Duration(start))
			v.CID = 7
			return v
		}
		p.publish(began(1, vm("a", "", 100)))
		epoch, _ := p.Report(7)
		p.publish(began(1, vm("a", "", 130)))
		p.publish(began(2, vm("a", "", 131))) // more than before, and still another series
		p.shows("a", 261, "a")
		p.publish(began(2, vm("a", "", 1))) // less than before
		p.shows("a", 262, "a")
		r, ok := p.Report(7)
		require.True(t, ok)
		assert.Equal(t, Report{Epoch: epoch.Epoch, Generation: 4, Time: p.at, Zones: zones(power.Package, 262)}, r)
		p.restart()
		p.publish(began(3, vm("a", "", 5)))
		p.shows("a", 267, "a")
		r, _ = p.Report(7)
		assert.NotEqual(t, epoch.Epoch, r.Epoch)
		assert.Equal(t, zones(power.Package, 5), r.Zones)
	})
}

func TestAZoneThatComesBackAddsWhatItMissed(t *testing.T) {
	published(t, func(p *publishing) {
		p.publish(VM{ID: "a", CID: 7, Zones: zones(power.Package, 5, power.DRAM, 6)})
		p.publish(VM{ID: "a", CID: 7, Zones: zones(power.DRAM, 8)})
		r, _ := p.Report(7)
		assert.Equal(t, zones(power.DRAM, 8), r.Zones)
		p.publish(VM{ID: "a", CID: 7, Zones: zones(power.Package, 25, power.DRAM, 8)})
		r, _ = p.Report(7)
		assert.Equal(t, zones(power.Package, 25, power.DRAM, 8), r.Zones)
		p.shows("a", 25, "a")
	})
}

// Psys and platform have one counter in a tree, which must not jump from one to the other.
func TestOfPsysAndPlatformTheFirstIsExported(t *testing.T) {
	published(t, func(p *publishing) {
		for _, given := range [][]Zone{zones(power.Platform, 100), zones(power.PSys, 5000, power.Platform, 110)} {
			p.publish(VM{ID: "a", CID: 7, Zones: given})
		}
		r, _ := p.Report(7)
		assert.Equal(t, zones(power.Platform, 110), r.Zones)
		p.publish(VM{ID: "a", CID: 7, Zones: zones(power.PSys, 5007)})
		r, _ = p.Report(7)
		assert.Empty(t, r.Zones)
	})
}

// A graphics card has no place in a powercap tree, and one that is passed through is read in the machine.
func TestAMachineIsNotToldOfGraphicsCardsAndOther(t *testing.T) {
	published(t, func(p *publishing) {
		told := VM{ID: "a", Name: "a", CID: 3, Zones: []Zone{
			{Kind: power.Package, Energy: 100}, {Kind: power.GPU, Energy: 7000}, {Kind: power.Other, Energy: 50},
		}}
		p.publish(told)
		r, ok := p.Report(3)
		assert.True(t, ok)
		assert.Equal(t, []Zone{{Kind: power.Package, Energy: 100}}, r.Zones)
		p.shows("a", 100, "a")
		assert.NoDirExists(t, filepath.Join(p.dir, "a", "intel-rapl:1"))

		told.Ended = true
		p.publish(told)
		stopped := r.Generation
		told.Zones[1].Energy = 9000 // what it used last of the card changes nothing
		p.publish(told)
		p.Publish([]VM{{ID: "a", Name: "a", CID: 3, Zones: told.Zones}}, p.at)
		r, _ = p.Report(3)
		assert.Equal(t, stopped+2, r.Generation, "with the end, and with the return")
	})
}

func TestAMachineHasADirectoryWithItsNameElseWithItsID(t *testing.T) {
	const hostile, users = "../../etc", "user@1000.service/" + uuid
	for _, tt := range []struct{ name, id, dir string }{
		{"web", uuid, "web"}, {"con", uuid, "con"}, {"a.b_c-d", uuid, "a.b_c-d"}, {strings.Repeat("a", 64), uuid, strings.Repeat("a", 64)},
		{hostile, uuid, uuid}, {"", uuid, uuid}, {".", uuid, uuid}, {"..", uuid, uuid}, {"a\nb", uuid, uuid}, {"\xff", uuid, uuid}, {"ä", uuid, uuid},
		{strings.Repeat("a", 65), uuid, uuid}, {"intel-rapl:0", uuid, uuid}, {".new", uuid, uuid}, {"-rf", uuid, uuid}, {"a\x00", uuid, uuid},
		{"user@1000.service+" + uuid, uuid, uuid},
		{"web", users, "user@1000.service+" + uuid}, // a user can choose any name
		{"", "a/b/c", "a+b+c"}, {"", "a+b/c", ""}, {"", "../x", ""}, {"", "a/" + strings.Repeat("b", 254), ""}, {"", strings.Repeat("b", 300), ""},
	} {
		assert.Equal(t, tt.dir, dirOf(&VM{ID: tt.id, Name: tt.name}), "%.80q %.80q", tt.name, tt.id)
	}
	published(t, func(p *publishing) {
		p.publish(vm("../x", "../y", 5))
		require.NoDirExists(t, p.dir)
		require.EqualError(t, p.Err(), `no directory for virtual machine with the ID "../x": neither its name nor its ID can be the name of a directory`)
		p.publish()
		require.NoError(t, p.Err())
	})
}

// The energy of one machine must not be in the directory that another one reads.
func TestOfTwoMachinesOfOneNameNoneHasATree(t *testing.T) {
	published(t, func(p *publishing) {
		p.publish(vm("b", "web", 5))
		epoch := p.report("web").Epoch
		for range 2 {
			p.publish(vm("a", "web", 100), vm("b", "web", 7))
			p.shows("web", 5, "b")
			require.EqualError(t, p.Err(), `no directory for virtual machine with the ID "a": another one has the same name, "web"; `+
				`virtual machine with the ID "b": another one has the same name, "web"`)
			p.restart()
		}
		p.publish(vm("b", "web", 7))
		p.shows("web", 12, "b")
		assert.Equal(t, epoch, p.report("web").Epoch)

		p.publish(vm("a", "web", 101), VM{ID: "b", Name: "web", Zones: zones(power.Package, 9), Ended: true})
		require.NoError(t, p.Err())
		p.shows("web", 101, "a")
		assert.NotEqual(t, epoch, p.report("web").Epoch)
		p.publish(vm("b", "web", 13))
		p.shows("web", 13, "b")
	})
}

func TestATreeContinuesAfterAReportOfAnotherMachineCouldNotBeWritten(t *testing.T) {
	published(t, func(p *publishing) {
		p.publish(vm("a", "web", 5))
		obstacle := filepath.Join(p.dir, "web", newFile)
		require.NoError(t, os.MkdirAll(filepath.Join(obstacle, "x"), 0o755))
		p.publish(vm("b", "web", 100))
		require.Error(t, p.Err())
		require.NoError(t, os.RemoveAll(obstacle))
		p.publish(vm("a", "web", 7))
		p.shows("web", 7, "a")
	})
}

// A user of the host can give a program the name and the context ID of a virtual machine.
func TestAUsersMachineReadsNoEnergyOfTheHosts(t *testing.T) {
	published(t, func(p *publishing) {
		users, hosts := vm("user@1000.service/"+uuid, "web", 100), vm(uuid, "web", 5)
		users.CID, hosts.CID = 7, 7
		for range 2 {
			p.publish(users, hosts)
			require.NoError(t, p.Err())
			p.shows("web", 5, uuid)
			p.shows("user@1000.service+"+uuid, 100, users.ID)
			r, ok := p.Report(7)
			assert.True(t, ok)
			assert.Equal(t, hosts.Zones, r.Zones)
		}
	})
}

// A directory stays when its machine is gone, and any user can start programs that look like machines.
func TestUsersCannotFillTheDisk(t *testing.T) {
	published(t, func(p *publishing) {
		require.NoError(t, os.Mkdir(p.dir, 0o755))
		for i := range maxTrees - 1 {
			require.NoError(t, os.Mkdir(filepath.Join(p.dir, fmt.Sprint("gone", i)), 0o700))
		}
		first, second, hosts := vm("user@1.service/a", "", 5), vm("user@1.service/b", "", 6), vm("c", "hosts", 7)
		p.publish(first)
		require.NoError(t, p.Err())
		for range 2 {
			p.publish(first, second, hosts)
			require.EqualError(t, p.Err(), p.dir+": user@1.service+b: there are 1000 directories already: remove directories of virtual machines that no longer exist")
		}
		p.shows("user@1.service+a", 5, first.ID)
		p.shows("hosts", 7, hosts.ID)
		assert.NoDirExists(t, filepath.Join(p.dir, "user@1.service+b"))
		require.NoError(t, os.Remove(filepath.Join(p.dir, "gone0")))
		require.NoError(t, os.Remove(filepath.Join(p.dir, "gone1")))
		p.publish(first, second, hosts)
		require.NoError(t, p.Err())
		p.shows("user@1.service+b", 6, second.ID)
	})
}

func TestOfTwoMachinesOfOneContextIDNoneIsTold(t *testing.T) {
	published(t, func(p *publishing) {
		with := func(cid uint32, v VM) VM { v.CID = cid; return v }
		p.publish(with(7, vm("a", "", 5)), with(7, vm("b", "", 6)), with(8, vm("c", "", 7)), vm("d", "", 8))
		for _, cid := range []uint32{0, 7, 9} {
			_, ok := p.Report(cid)
			assert.False(t, ok, cid)
		}
		r, ok := p.Report(8)
		assert.True(t, ok)
		assert.Equal(t, zones(power.Package, 7), r.Zones)
		require.EqualError(t, p.Err(), "several virtual machines have vsock context ID 7")
		p.publish(with(7, vm("a", "", 5)), with(7, vm("b", "", 6)), vm("../e", "../d", 8))
		require.EqualError(t, p.Err(), "no directory for virtual machine with the ID \"../e\": neither its name nor its ID can be the name of "+
			"a directory; several virtual machines have vsock context ID 7", "in one line")
		p.shows("a", 5, "a")
		stopped := with(7, vm("a", "", 5))
		stopped.Ended = true
		p.publish(stopped, with(7, vm("b", "", 6)))
		r, ok = p.Report(7)
		assert.True(t, ok)
		assert.Equal(t, zones(power.Package, 6), r.Zones)
		require.NoError(t, p.Err())
	})
}

func TestAMachineThatIsRenamedHasItsTotalsInItsDirectory(t *testing.T) {
	published(t, func(p *publishing) {
		p.publish(vm("a", "old", 5))
		p.publish(vm("a", "new", 7))
		p.shows("old", 5, "a")
		p.shows("new", 7, "a")
		p.publish(vm("a", "old", 8))
		p.shows("old", 8, "a")
	})
}

// The total of a paused machine stands still. A machine that stopped gets no report.
func TestAPausedMachineGetsNewGenerations(t *testing.T) {
	published(t, func(p *publishing) {
		for i := range 4 {
			p.publish(vm("a", "", 5))
			assert.Equal(t, uint64(i+1), p.report("a").Generation)
		}
		last := vm("a", "", 6)
		last.Ended = true
		for range 3 { // until the next consumer acknowledges it
			p.publish(last)
		}
		p.publish()
		assert.Equal(t, uint64(5), p.report("a").Generation)
		p.shows("a", 6, "a")
	})
}

func TestAStoppedMachineIsForgottenAndGoesOnFromItsTree(t *testing.T) {
	published(t, func(p *publishing) {
		p.publish(vm("a", "", 5))
		p.publish()
		time.Sleep(keepStopped + time.Second)
		p.publish()
		assert.Empty(t, p.machines)
		p.publish()
		assert.Empty(t, p.trees)
		p.publish(vm("a", "", 3))
		p.shows("a", 8, "a")
	})
}

func TestWhatADiskRefusedIsWrittenLater(t *testing.T) {
	published(t, func(p *publishing) {
		require.NoError(t, os.WriteFile(p.dir, nil, 0o600))
		p.publish(vm("a", "", 5), vm("b", "", 6))
		last := vm("b", "", 7)
		last.Ended = true
		p.publish(vm("a", "", 8), last)
		err := p.Err()
		require.EqualError(t, err, p.dir+": not a directory")
		p.publish(vm("a", "", 9))
		require.EqualError(t, p.Err(), err.Error())
		require.NoError(t, os.Remove(p.dir))
		p.publish(vm("a", "", 10))
		require.NoError(t, p.Err())
		p.shows("a", 10, "a")
		p.shows("b", 7, "b")
	})
}

func TestACounterThatCannotBeWrittenFollowsTheReportLater(t *testing.T) {
	published(t, func(p *publishing) {
		counter := filepath.Join(p.dir, "a", "intel-rapl:0/energy_uj")
		require.NoError(t, os.MkdirAll(filepath.Join(counter, "x"), 0o755))
		p.publish(vm("a", "", 5))
		last := vm("a", "", 9)
		last.Ended = true
		p.publish(last)
		p.shows("a", 9, "a")
		require.EqualError(t, p.Err(), p.dir+": a: intel-rapl:0/energy_uj: a directory with files is in its place")
		require.NoError(t, os.RemoveAll(counter))
		p.publish(last)
		require.NoError(t, p.Err())
		text, err := os.ReadFile(counter)
		require.NoError(t, err)
		assert.Equal(t, "9\n", string(text))
		p.shows("a", 9, "a")
	})
}

func TestAnErrorNamesSomeOfManyMachines(t *testing.T) {
	published(t, func(p *publishing) {
		var vms []VM
		for i := range 100 {
			vms = append(vms, vm(fmt.Sprintf("+/%02d", i), "../"+strings.Repeat("x", 4000), 5))
		}
		p.publish(vms...)
		err := p.Err()
		require.ErrorContains(t, err, `"+/00"`)
		require.ErrorContains(t, err, "; and 97 more")
		assert.Less(t, len(err.Error()), 1000)
		p.publish(vms...)
		assert.EqualError(t, p.Err(), err.Error())
	})
}

func TestTheParentOfTheDirectoryMustExist(t *testing.T) {
	published(t, func(p *publishing) {
		require.NoError(t, p.Close())
		p.Publisher = NewPublisher(filepath.Join(p.dir, "missing", "guests"))
		p.publish(vm("a", "", 5))
		assert.ErrorIs(t, p.Err(), fs.ErrNotExist)
		assert.NoDirExists(t, p.dir)
	})
}

func TestADiskThatHangsDelaysNobody(t *testing.T) {
	published(t, func(p *publishing) {
		answer := make(chan struct{})
		p.openTrees = func(path string) (*os.Root, error) {
			<-answer
			return openTrees(path)
		}
		began := time.Now()
		p.publish(VM{ID: "a", CID: 7, Zones: zones(power.Package, 5)})
		require.NoError(t, p.Err())
		time.Sleep(slowWrite + time.Second)
		p.publish(VM{ID: "a", CID: 7, Zones: zones(power.Package, 8)})
		r, ok := p.Report(7)
		assert.True(t, ok)
		assert.Equal(t, zones(power.Package, 8), r.Zones)
		require.EqualError(t, p.Err(), p.dir+": writing the trees takes longer than 30s")
		time.Sleep(time.Hour)
		require.EqualError(t, p.Err(), p.dir+": writing the trees takes longer than 30s")
		assert.Equal(t, slowWrite+time.Second+time.Hour, time.Since(began))

		began = time.Now()
		require.ErrorIs(t, p.Close(), errHangs)
		assert.Equal(t, maxClose, time.Since(began))
		close(answer)
		synctest.Wait()
		assert.NoDirExists(t, filepath.Join(p.dir, "a"), "nothing is written once Close gave up")
	})
}

func TestCloseWritesWhatWasPublishedLast(t *testing.T) {
	published(t, func(p *publishing) {
		for i := range 50 {
			p.Publish([]VM{vm("a", "", i)}, p.at)
		}
		require.NoError(t, p.Close())
		p.shows("a", 49, "a")
		require.NoError(t, p.Close())
	})
}

func TestPublishingAllocatesNothing(t *testing.T) {
	p := NewPublisher("")
	vms := make([]VM, 100)
	for i := range vms {
		vms[i] = VM{ID: fmt.Sprint(i), Name: fmt.Sprint("vm", i), CID: uint32(i + 3), Zones: zones(power.Package, 5, power.DRAM, 6)}
	}
	p.Publish(vms, noon)
	assert.Zero(t, testing.AllocsPerRun(100, func() { p.Publish(vms, noon) }))
	require.NoError(t, p.Close())
}
