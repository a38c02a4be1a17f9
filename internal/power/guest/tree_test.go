// SPDX-License-Identifier: Apache-2.0

package guest

import (
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

const (
	uuid     = "0a1b2c3d-0000-4000-8000-00000000000a"
	dramFile = "intel-rapl:0/intel-rapl:0:0/energy_uj"
	psysFile = "intel-rapl:1/energy_uj"
)

var noon = time.Unix(1_800_000_000, 5)

// treeDir is the directory of a tree.
type treeDir struct {
	*testing.T
	*os.Root
	totals []Zone // of the machine, since the tree was opened
}

func newTreeDir(t *testing.T, at string) *treeDir {
	root, err := os.OpenRoot(at)
	require.NoError(t, err)
	t.Cleanup(func() { _ = root.Close() })
	return &treeDir{T: t, Root: root}
}

// open returns the tree as a publisher that starts has it.
func (d *treeDir) open(id string) *tree {
	d.Helper()
	d.totals = nil
	tree, err := openTree(d.Root, &machine{id: id})
	require.NoError(d, err)
	return tree
}

// tryWrite writes a report of the zones, which gained energy.
func (d *treeDir) tryWrite(t *tree, gained ...any) error {
	present := zones(gained...)
	for i := range present {
		z := &present[i]
		if j := indexOf(d.totals, z.Kind); j >= 0 {
			d.totals[j].Energy += z.Energy
			z.Energy = d.totals[j].Energy
		} else {
			d.totals = append(d.totals, *z)
		}
	}
	if err := t.writeReport(d.Root, &Report{Time: noon, Zones: present}); err != nil {
		return err
	}
	return t.writeCounters(d.Root)
}

func (d *treeDir) write(t *tree, gained ...any) {
	d.Helper()
	require.NoError(d, d.tryWrite(t, gained...))
}

func (d *treeDir) path(name string) string { return filepath.Join(d.Name(), name) }

// put replaces a file of the tree.
func (d *treeDir) put(name, content string) {
	d.Helper()
	require.NoError(d, os.RemoveAll(d.path(name)))
	require.NoError(d, os.MkdirAll(filepath.Dir(d.path(name)), 0o755))
	require.NoError(d, os.WriteFile(d.path(name), []byte(content), 0o600))
}

// files returns the content of all regular files of the tree, by path.
func (d *treeDir) files() map[string]string {
	d.Helper()
	files := map[string]string{}
	require.NoError(d, fs.WalkDir(os.DirFS(d.Name()), ".", func(path string, e fs.DirEntry, err error) error {
		require.NoError(d, err)
		if e.Type().IsRegular() {
			content, err := os.ReadFile(d.path(path))
			require.NoError(d, err)
			files[path] = string(content)
		}
		return nil
	}))
	return files
}

func zones(energies ...any) (zones []Zone) {
	for i := 0; i < len(energies); i += 2 {
		zones = append(zones, Zone{Kind: energies[i].(power.Kind), Energy: units.Energy(energies[i+1].(int))})
	}
	return zones
}

func TestATreeHasAReportAndPowercapZones(t *testing.T) {
	d := newTreeDir(t, newDir(t))
	tree := d.open(uuid)
	d.write(tree, power.Package, 5, power.DRAM, 6, power.Platform, 7)
	assert.Equal(t, map[string]string{
		"report.json": `{"version":1,"vm_id":"` + uuid + `","epoch":"` + tree.epoch + `","generation":"1","time_unix_nano":"1800000000000000005",` +
			`"zones":[{"zone":"package","energy_uj":"5"},{"zone":"dram","energy_uj":"6"},{"zone":"platform","energy_uj":"7"}]}` + "\n",
		"intel-rapl:0/name": "package-0\n", "intel-rapl:0/energy_uj": "5\n", "intel-rapl:0/max_energy_range_uj": "9223372036854775807\n",
		"intel-rapl:0/intel-rapl:0:0/name": "dram\n", dramFile: "6\n", "intel-rapl:0/intel-rapl:0:0/max_energy_range_uj": "9223372036854775807\n",
		"intel-rapl:1/name": "psys\n", psysFile: "7\n", "intel-rapl:1/max_energy_range_uj": "9223372036854775807\n",
	}, d.files())
	to, err := os.Readlink(d.path("intel-rapl:0:0"))
	require.NoError(t, err)
	assert.Equal(t, "intel-rapl:0/intel-rapl:0:0", to, "programs that read /sys/class/powercap look at the top only")
}

func TestAZoneThatIsNoLongerReadIsRemovedAndMissesNothing(t *testing.T) {
	d := newTreeDir(t, newDir(t))
	tree := d.open(uuid)
	d.write(tree, power.Package, 5, power.DRAM, 6, power.Core, 7)
	d.write(tree, power.Core, 2)
	files := d.files()
	assert.Contains(t, files["report.json"], `"zones":[{"zone":"core","energy_uj":"9"}]`)
	assert.Equal(t, "9\n", files["intel-rapl:0/intel-rapl:0:1/energy_uj"])
	assert.Len(t, files, 4, "the report, and the files of core")
	assert.NoFileExists(t, d.path("intel-rapl:0:0"))
	d.write(tree, power.Package, 10, power.DRAM, 0)
	assert.Equal(t, "15\n", d.files()["intel-rapl:0/energy_uj"])
	assert.Equal(t, "6\n", d.files()[dramFile])
}

func TestATreeContinuesFromItsReport(t *testing.T) {
	d := newTreeDir(t, newDir(t))
	before := d.open(uuid)
	d.write(before, power.Package, 500, power.DRAM, 60)
	d.put("intel-rapl:0/energy_uj", "700\n") // counters are not read
	d.put(".new", "7")                       // a crash left it
	after := d.open(uuid)
	d.write(after, power.Package, 3, power.DRAM, 0)
	assert.Equal(t, before.epoch, after.epoch)
	assert.Equal(t, uint64(2), after.generation)
	files := d.files()
	assert.Equal(t, "503\n", files["intel-rapl:0/energy_uj"])
	assert.Equal(t, "60\n", files[dramFile])
	assert.NotContains(t, files, ".new")
}

func TestATreeWithoutAReportOfTheMachineBeginsANewEpoch(t *testing.T) {
	d := newTreeDir(t, newDir(t))
	before := d.open(uuid)
	d.write(before, power.Package, 500, power.DRAM, 60)
	report := d.files()["report.json"]
	for name, damaged := range map[string]string{
		"empty": "", "NULs": "\x00\x00", "cut": report[:50], "too large": report + strings.Repeat(" ", maxDocument),
		"another version":   strings.Replace(report, `"version":1`, `"version":2`, 1),
		"a negative energy": strings.Replace(report, `"500"`, `"-500"`, 1),
		"another machine's": strings.Replace(report, uuid, "0a1b2c3d-0000-4000-8000-00000000000b", 1),
	} {
		t.Run(name, func(t *testing.T) {
			d.T = t
			d.put("report.json", damaged)
			after := d.open(uuid)
			assert.NotEqual(t, before.epoch, after.epoch)
			d.write(after, power.Package, 3)
			assert.Equal(t, "3\n", d.files()["intel-rapl:0/energy_uj"])
			assert.NotContains(t, d.files(), dramFile, "no machine adds to it any more")
		})
	}
}

// After a restart of the host's receiver, a zone is not removed because its meter is slow to answer.
func TestATreeThatContinuesKeepsItsZonesForAWhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newTreeDir(t, newDir(t))
		before := d.open(uuid)
		d.write(before, power.Package, 5, power.DRAM, 6, power.Platform, 7)
		after := d.open(uuid)
		d.write(after, power.Package, 10)
		assert.Equal(t, "6\n", d.files()[dramFile])
		d.write(after, power.Package, 0, power.DRAM, 100)
		assert.Equal(t, "106\n", d.files()[dramFile])
		d.write(after, power.Package, 0)
		assert.Equal(t, "106\n", d.files()[dramFile], "a counter never goes down")
		time.Sleep(keepZones)
		d.write(after, power.Package, 0)
		assert.NotContains(t, d.files(), dramFile)
		assert.NotContains(t, d.files(), psysFile)
		d.write(after, power.Package, 0, power.DRAM, 1, power.Platform, 3)
		assert.Equal(t, "107\n", d.files()[dramFile])
		assert.Equal(t, "10\n", d.files()[psysFile])
		assert.Equal(t, before.epoch, after.epoch)
	})
}

// A report that lacks a zone has lost its total. If the zone is read again, its total begins at 0,
// which is possible only in a new epoch.
func TestAZoneThatIsBackAfterARestartBeginsANewEpoch(t *testing.T) {
	d := newTreeDir(t, newDir(t))
	before := d.open(uuid)
	d.write(before, power.Package, 500, power.DRAM, 60)
	d.write(before, power.Package, 10)
	after := d.open(uuid)
	d.write(after, power.Package, 3)
	assert.Equal(t, before.epoch, after.epoch)
	assert.Equal(t, "513\n", d.files()["intel-rapl:0/energy_uj"])
	d.write(after, power.Package, 2, power.DRAM, 7)
	begun := after.epoch
	assert.NotEqual(t, before.epoch, begun)
	assert.Equal(t, "2\n", d.files()["intel-rapl:0/energy_uj"], "no energy of the previous epoch")
	d.write(after, power.Package, 1, power.DRAM, 1)
	assert.Equal(t, begun, after.epoch)
	assert.Equal(t, "3\n", d.files()["intel-rapl:0/energy_uj"])
	assert.Equal(t, "8\n", d.files()[dramFile])
}

func TestANewEpochRepeatsNoEnergyOfAZoneThatTheLastReportLacked(t *testing.T) {
	d := newTreeDir(t, newDir(t))
	d.write(d.open(uuid), power.Package, 500, power.Core, 60)
	tree := d.open(uuid)
	d.write(tree, power.Package, 3, power.Core, 4)
	d.write(tree, power.Package, 1)
	d.write(tree, power.Package, 1, power.Core, 2, power.DRAM, 7)
	assert.Equal(t, "2\n", d.files()["intel-rapl:0/intel-rapl:0:1/energy_uj"])
}

func TestATotalStaysAtItsRange(t *testing.T) {
	d := newTreeDir(t, newDir(t))
	text, err := marshal(&Report{ID: uuid, Epoch: "a", Time: noon, Zones: []Zone{{Kind: power.Package, Energy: maxEnergy - 5}}})
	require.NoError(t, err)
	d.put("report.json", string(text))
	d.write(d.open(uuid), power.Package, 10)
	assert.Equal(t, "9223372036854775807\n", d.files()["intel-rapl:0/energy_uj"])
}

func TestAPartOfATreeThatWasRemovedIsWrittenAgain(t *testing.T) {
	for _, part := range []string{"report.json", "intel-rapl:0", "intel-rapl:0/intel-rapl:0:0", "intel-rapl:0/energy_uj"} {
		d := newTreeDir(t, newDir(t))
		tree := d.open(uuid)
		d.write(tree, power.Package, 5, power.DRAM, 6)
		before := d.files()
		require.NoError(t, os.RemoveAll(d.path(part)))
		d.write(tree, power.Package, 0, power.DRAM, 0)
		after := d.files()
		assert.NotEqual(t, before["report.json"], after["report.json"])
		after["report.json"] = before["report.json"]
		assert.Equal(t, before, after, part)
	}
}

func TestEveryUserMayReadATree(t *testing.T) {
	d := newTreeDir(t, newDir(t))
	restrict(t)
	d.write(d.open(uuid), power.Package, 5, power.DRAM, 6)
	require.NoError(t, fs.WalkDir(os.DirFS(d.Name()), ".", func(path string, e fs.DirEntry, err error) error {
		require.NoError(t, err)
		if e.Type() == fs.ModeSymlink || path == "." {
			return nil // the mode of a link means nothing
		}
		info, err := e.Info()
		require.NoError(t, err)
		want := fs.FileMode(0o644)
		if e.IsDir() {
			want = 0o755
		}
		assert.Equal(t, want, info.Mode().Perm(), path)
		return nil
	}))
}

// A reader never finds a part of a report, nor no report.
func TestAReaderReadsWholeReports(t *testing.T) {
	d := newTreeDir(t, newDir(t))
	tree := d.open(uuid)
	d.write(tree, power.Package, 1, power.DRAM, 3)
	const last = 1000
	written := make(chan error, 1)
	go func() {
		var err error
		for i := 1; i < last && err == nil; i++ {
			err = d.tryWrite(tree, power.Package, 1, power.DRAM, 3)
		}
		written <- err
	}()
	r, generation := &reader{path: d.Name()}, uint64(0)
	for done := false; !done; {
		select {
		case err := <-written:
			require.NoError(t, err)
			done = true
		default:
		}
		report, err := r.read()
		require.NoError(t, err)
		require.GreaterOrEqual(t, report.Generation, generation)
		generation = report.Generation
		require.Equal(t, zones(power.Package, int(generation), power.DRAM, 3*int(generation)), report.Zones)
	}
	assert.Equal(t, uint64(last), generation)
}
