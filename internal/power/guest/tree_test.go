// SPDX-License-Identifier: Apache-2.0

package guest

import (
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/energyreceiver/energyreceiver/internal/power"
	"github.com/energyreceiver/energyreceiver/internal/units"
)

const uuid = "0a1b2c3d-0000-4000-8000-00000000000a"

var noon = time.Unix(1_800_000_000, 5)

// trees is a directory of trees.
type trees struct {
	*os.Root
	t    *testing.T
	path string
}

func newTrees(t *testing.T) *trees {
	path := newDir(t)
	root, err := os.OpenRoot(path)
	require.NoError(t, err)
	t.Cleanup(func() { _ = root.Close() })
	return &trees{root, t, path}
}

func (d *trees) open(id string) *tree {
	d.t.Helper()
	tree, _, err := openTree(d.Root, "vm1", id)
	require.NoError(d.t, err)
	return tree
}

// files returns the content of all files below the tree, by path.
func (d *trees) files() map[string]string {
	d.t.Helper()
	files := map[string]string{}
	vm := filepath.Join(d.path, "vm1")
	require.NoError(d.t, filepath.WalkDir(vm, func(path string, e fs.DirEntry, err error) error {
		require.NoError(d.t, err)
		if name := strings.TrimPrefix(path, vm+"/"); e.Type().IsRegular() {
			content, err := os.ReadFile(path)
			require.NoError(d.t, err)
			files[name] = string(content)
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

func TestATreeIsACompletePowercapTree(t *testing.T) {
	d := newTrees(t)
	tree := d.open(uuid)
	require.NoError(t, tree.write(d.Root, noon, zones(power.Package, 5, power.DRAM, 6, power.Platform, 7, power.Other, 8)))
	assert.Equal(t, map[string]string{
		"generation": "2\n", "update_time": "1800000000000000005\n", "epoch": tree.epoch + "\n", "vm_id": uuid + "\n",
		"intel-rapl:0/name": "package-0\n", "intel-rapl:0/energy_uj": "5\n",
		"intel-rapl:0/max_energy_range_uj":                "9223372036854775807\n",
		"intel-rapl:0/intel-rapl:0:0/name":                "dram\n",
		"intel-rapl:0/intel-rapl:0:0/energy_uj":           "6\n",
		"intel-rapl:0/intel-rapl:0:0/max_energy_range_uj": "9223372036854775807\n",
		"intel-rapl:1/name":                               "psys\n", "intel-rapl:1/energy_uj": "7\n",
		"intel-rapl:1/max_energy_range_uj": "9223372036854775807\n",
	}, d.files())
}

// Programs that look for zones as in /sys/class/powercap look at the top only.
func TestATreeHasItsSubzonesAtTheTopToo(t *testing.T) {
	d := newTrees(t)
	tree := d.open(uuid)
	vm := filepath.Join(d.path, "vm1")
	flat := func() (zones []string) {
		names, err := filepath.Glob(filepath.Join(vm, "intel-rapl*", "name"))
		require.NoError(t, err)
		for _, name := range names {
			text, err := os.ReadFile(name)
			require.NoError(t, err)
			zones = append(zones, filepath.Base(filepath.Dir(name))+" "+strings.TrimSpace(string(text)))
		}
		return zones
	}
	require.NoError(t, tree.write(d.Root, noon, zones(power.Package, 5, power.DRAM, 6, power.Uncore, 7)))
	assert.Equal(t, []string{"intel-rapl:0 package-0", "intel-rapl:0:0 dram", "intel-rapl:0:2 uncore"}, flat())
	to, err := os.Readlink(filepath.Join(vm, "intel-rapl:0:0"))
	require.NoError(t, err)
	assert.Equal(t, "intel-rapl:0/intel-rapl:0:0", to)
	info, err := os.Lstat(filepath.Join(vm, "intel-rapl:0:0"))
	require.NoError(t, err)

	require.NoError(t, tree.write(d.Root, noon, zones(power.Package, 6, power.DRAM, 7)))
	assert.Equal(t, []string{"intel-rapl:0 package-0", "intel-rapl:0:0 dram"}, flat())
	_, err = os.Lstat(filepath.Join(vm, "intel-rapl:0:2"))
	require.ErrorIs(t, err, fs.ErrNotExist)
	require.NoError(t, d.open(uuid).write(d.Root, noon, zones(power.Package, 6, power.DRAM, 7)))
	again, err := os.Lstat(filepath.Join(vm, "intel-rapl:0:0"))
	require.NoError(t, err)
	assert.True(t, os.SameFile(info, again), "it is made once")
}

func TestATreeGoesOnAfterARestart(t *testing.T) {
	d := newTrees(t)
	before := d.open(uuid)
	require.NoError(t, before.write(d.Root, noon, zones(power.Package, 500, power.DRAM, 60)))
	after := d.open(uuid)
	require.NoError(t, after.write(d.Root, noon, zones(power.Package, 3, power.DRAM, 0)))
	files := d.files()
	assert.Equal(t, before.epoch+"\n", files["epoch"])
	assert.Equal(t, "4\n", files["generation"])
	assert.Equal(t, "503\n", files["intel-rapl:0/energy_uj"])
	assert.Equal(t, "60\n", files["intel-rapl:0/intel-rapl:0:0/energy_uj"])
}

func TestATreeThatCannotBeUnderstoodBeginsANewEpoch(t *testing.T) {
	for name, damage := range map[string]map[string]string{
		"generation empty":             {"generation": ""},
		"generation of NULs":           {"generation": "\x00\x00"},
		"generation too large":         {"generation": "18446744073709551615\n"},
		"generation without a newline": {"generation": "2"},
		"epoch of another alphabet":    {"epoch": "../../etc\n"},
		"epoch missing":                {"epoch": "-"},
		"energy negative":              {"intel-rapl:0/energy_uj": "-5\n"},
		"energy above the range":       {"intel-rapl:0/energy_uj": "9223372036854775808\n"},
		"energy of two lines":          {"intel-rapl:0/energy_uj": "1\n2\n"},
		"a huge file":                  {"intel-rapl:0/energy_uj": strings.Repeat("1", 1<<20)},
		"another machine's":            {"vm_id": "0a1b2c3d-0000-4000-8000-00000000000b\n"},
	} {
		t.Run(name, func(t *testing.T) {
			d := newTrees(t)
			before := d.open(uuid)
			require.NoError(t, before.write(d.Root, noon, zones(power.Package, 500, power.DRAM, 60)))
			for file, content := range damage {
				require.NoError(t, os.Remove(filepath.Join(d.path, "vm1", file)))
				if content != "-" {
					require.NoError(t, os.WriteFile(filepath.Join(d.path, "vm1", file), []byte(content), 0o600))
				}
			}
			after := d.open(uuid)
			assert.NotEqual(t, before.epoch, after.epoch)
			require.NoError(t, after.write(d.Root, noon, zones(power.Package, 3)))
			files := d.files()
			assert.Equal(t, "3\n", files["intel-rapl:0/energy_uj"])
			assert.Equal(t, uuid+"\n", files["vm_id"])
			assert.Equal(t, after.epoch+"\n", files["epoch"])
			assert.NotContains(t, files, "intel-rapl:0/intel-rapl:0:0/energy_uj", "nobody adds to it any more")
		})
	}
}

// A crash leaves an odd generation, and a file that was not renamed yet.
func TestAHalfWrittenTreeGoesOn(t *testing.T) {
	d := newTrees(t)
	before := d.open(uuid)
	require.NoError(t, before.write(d.Root, noon, zones(power.Package, 500, power.DRAM, 60)))
	vm := filepath.Join(d.path, "vm1")
	require.NoError(t, os.WriteFile(filepath.Join(vm, "generation"), []byte("3\n"), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(vm, "intel-rapl:0/energy_uj"), []byte("700\n"), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(vm, ".new"), []byte("7"), 0o600))
	after := d.open(uuid)
	require.NoError(t, after.write(d.Root, noon, zones(power.Package, 1, power.DRAM, 1)))
	files := d.files()
	assert.Equal(t, before.epoch+"\n", files["epoch"])
	assert.Equal(t, "4\n", files["generation"])
	assert.Equal(t, "701\n", files["intel-rapl:0/energy_uj"])
	assert.Equal(t, "61\n", files["intel-rapl:0/intel-rapl:0:0/energy_uj"])
	assert.NotContains(t, files, ".new")
}

// After a restart of the host's receiver, a zone is not reported as gone because its meter is slow
// to answer.
func TestATreeThatGoesOnKeepsItsZonesForAWhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const dram, psys = "intel-rapl:0/intel-rapl:0:0/energy_uj", "intel-rapl:1/energy_uj"
		d := newTrees(t)
		require.NoError(t, d.open(uuid).write(d.Root, noon, zones(power.Package, 5, power.DRAM, 6, power.Platform, 7)))
		before := d.files()
		after := d.open(uuid)
		for range 3 {
			require.NoError(t, after.write(d.Root, noon, zones(power.Package, 10)))
		}
		files := d.files()
		assert.Equal(t, []string{"8\n", "15\n", "6\n", "7\n"}, []string{files["generation"], files["intel-rapl:0/energy_uj"], files[dram], files[psys]})
		require.NoError(t, after.write(d.Root, noon, zones(power.Package, 10, power.DRAM, 100)))
		assert.Equal(t, "106\n", d.files()[dram])
		require.NoError(t, after.write(d.Root, noon, zones(power.Package, 10)))
		assert.NotContains(t, d.files(), dram, "it answered, and is gone since")
		assert.Contains(t, d.files(), psys)
		time.Sleep(keepZones)
		require.NoError(t, after.write(d.Root, noon, zones(power.Package, 10)))
		assert.NotContains(t, d.files(), psys)
		require.NoError(t, after.write(d.Root, noon, zones(power.Package, 10, power.DRAM, 100, power.Platform, 3)))
		files = d.files()
		assert.Equal(t, []string{before["epoch"], "106\n", "10\n"}, []string{files["epoch"], files[dram], files[psys]})
	})
}

func TestAZoneThatIsNoLongerReadIsRemoved(t *testing.T) {
	d := newTrees(t)
	tree := d.open(uuid)
	require.NoError(t, tree.write(d.Root, noon, zones(power.Package, 5, power.DRAM, 6, power.Core, 7)))
	require.NoError(t, tree.write(d.Root, noon, zones(power.DRAM, 8, power.Core, 9)))
	files := d.files()
	assert.NotContains(t, files, "intel-rapl:0/energy_uj")
	assert.NotContains(t, files, "intel-rapl:0/name")
	assert.Equal(t, "8\n", files["intel-rapl:0/intel-rapl:0:0/energy_uj"])
	require.NoError(t, tree.write(d.Root, noon, zones(power.Package, 15, power.DRAM, 8)))
	files = d.files()
	assert.Equal(t, "15\n", files["intel-rapl:0/energy_uj"], "what it missed is added")
	assert.NotContains(t, files, "intel-rapl:0/intel-rapl:0:1/energy_uj")
}

// While a zone is lost its total is nowhere. After a restart it begins at 0, which no epoch may.
func TestAZoneThatIsBackAfterARestartBeginsANewEpoch(t *testing.T) {
	d := newTrees(t)
	before := d.open(uuid)
	require.NoError(t, before.write(d.Root, noon, zones(power.Package, 500, power.DRAM, 60)))
	require.NoError(t, before.write(d.Root, noon, zones(power.Package, 510)))
	after := d.open(uuid)
	require.NoError(t, after.write(d.Root, noon, zones(power.Package, 3)))
	assert.Equal(t, before.epoch+"\n", d.files()["epoch"])
	assert.Equal(t, "513\n", d.files()["intel-rapl:0/energy_uj"])
	require.NoError(t, after.write(d.Root, noon, zones(power.Package, 5, power.DRAM, 7)))
	files := d.files()
	assert.NotEqual(t, before.epoch+"\n", files["epoch"])
	assert.Equal(t, "8\n", files["generation"])
	assert.Equal(t, "2\n", files["intel-rapl:0/energy_uj"])
	assert.Equal(t, "7\n", files["intel-rapl:0/intel-rapl:0:0/energy_uj"])
	require.NoError(t, after.write(d.Root, noon, zones(power.Package, 6, power.DRAM, 8)))
	assert.Equal(t, files["epoch"], d.files()["epoch"])
	assert.Equal(t, "3\n", d.files()["intel-rapl:0/energy_uj"])
}

// Of two kinds that cover the whole machine a tree shows the first that it had. The energy of the
// other is never mixed into it.
func TestATreeShowsOneZoneOfTheWholeMachine(t *testing.T) {
	d := newTrees(t)
	tree := d.open(uuid)
	psys := func() string { return d.files()["intel-rapl:1/energy_uj"] }
	require.NoError(t, tree.write(d.Root, noon, zones(power.Platform, 100)))
	require.NoError(t, tree.write(d.Root, noon, zones(power.PSys, 5000, power.Platform, 110)))
	assert.Equal(t, "110\n", psys())
	require.NoError(t, tree.write(d.Root, noon, zones(power.PSys, 5007)))
	assert.Equal(t, "117\n", psys())
	require.NoError(t, tree.write(d.Root, noon, zones(power.PSys, 5008, power.Platform, 900)))
	assert.Equal(t, "118\n", psys())
}

func TestATotalStaysAtItsRange(t *testing.T) {
	total := func(e units.Energy) []Zone { return []Zone{{Kind: power.Package, Energy: e}} }
	d := newTrees(t)
	tree := d.open(uuid)
	require.NoError(t, tree.write(d.Root, noon, total(1<<62)))
	tree = d.open(uuid)
	require.NoError(t, tree.write(d.Root, noon, total(1<<62)))
	require.NoError(t, tree.write(d.Root, noon, total(1<<62+5)))
	assert.Equal(t, "9223372036854775807\n", d.files()["intel-rapl:0/energy_uj"])
}

func TestATreeThatSomebodyRemovedIsWrittenAnew(t *testing.T) {
	for _, part := range []string{"", "intel-rapl:0", "intel-rapl:0/intel-rapl:0:0", "generation"} {
		d := newTrees(t)
		tree := d.open(uuid)
		require.NoError(t, tree.write(d.Root, noon, zones(power.Package, 5, power.DRAM, 6)))
		before := d.files()
		require.NoError(t, os.RemoveAll(filepath.Join(d.path, "vm1", part)))
		require.NoError(t, tree.write(d.Root, noon, zones(power.Package, 5, power.DRAM, 6)))
		after := d.files()
		assert.Equal(t, "4\n", after["generation"])
		after["generation"] = before["generation"]
		assert.Equal(t, before, after, part)
	}
}

func TestEverybodyMayReadATree(t *testing.T) {
	d := newTrees(t)
	tree := d.open(uuid)
	restrict(t)
	require.NoError(t, tree.write(d.Root, noon, zones(power.Package, 5, power.DRAM, 6)))
	require.NoError(t, filepath.WalkDir(filepath.Join(d.path, "vm1"), func(path string, e fs.DirEntry, err error) error {
		require.NoError(t, err)
		if e.Type() == fs.ModeSymlink {
			return nil // its mode means nothing
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

// A reader that takes a generation only where it is even, and the same before and after, never sees
// a part of another one.
func TestAReaderSeesWholeGenerations(t *testing.T) {
	d := newTrees(t)
	tree := d.open(uuid)
	require.NoError(t, tree.write(d.Root, noon, zones(power.Package, 0, power.DRAM, 0)))
	word := func(name string) uint64 {
		text, err := os.ReadFile(filepath.Join(d.path, "vm1", name))
		require.NoError(t, err, "no file is ever missing")
		number, err := strconv.ParseUint(strings.TrimSuffix(string(text), "\n"), 10, 64)
		require.NoError(t, err, "no file is ever partly written")
		return number
	}
	const last = 2000
	written := make(chan error, 1)
	go func() {
		var err error
		for i := 1; i <= last && err == nil; i++ {
			err = tree.write(d.Root, noon, zones(power.Package, i, power.DRAM, 3*i))
		}
		written <- err
	}()
	var taken, seen uint64
	for seen < last {
		before := word(generationFile)
		pkg, dram := word("intel-rapl:0/energy_uj"), word("intel-rapl:0/intel-rapl:0:0/energy_uj")
		if before%2 == 1 || before != word(generationFile) {
			continue
		}
		taken++
		require.Equal(t, 3*pkg, dram)
		require.Equal(t, before, 2*pkg+2)
		require.GreaterOrEqual(t, pkg, seen)
		seen = pkg
	}
	require.NoError(t, <-written)
	t.Log(taken, "generations seen")
}

func TestOnlyPlainNamesAreDirectories(t *testing.T) {
	for _, name := range []string{"vm1", "con", "0", "a.b_c-d", "VM.", strings.Repeat("a", 64), uuid} {
		assert.True(t, safeName(name), name)
	}
	for _, name := range []string{"", ".", "..", "../../etc", "/etc", "a/b", "a\\b", ".new", "-rf", "_a", "a b", "a\n", "a\x00", "\xff", "ä", "a:b",
		strings.Repeat("a", 65), "intel-rapl:0"} {
		assert.False(t, safeName(name), name)
	}
}
