// SPDX-License-Identifier: Apache-2.0

package guest

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/energyreceiver/energyreceiver/internal/power"
)

// restrict makes new files readable by their owner only.
func restrict(t *testing.T) {
	before := unix.Umask(0o077)
	t.Cleanup(func() { unix.Umask(before) })
}

// newDir returns an empty directory, in memory where there is some: some file systems write a file
// to the disk when it is renamed.
func newDir(t testing.TB) string {
	const memory = "/dev/shm"
	var fs unix.Statfs_t
	if err := unix.Statfs(memory, &fs); err != nil || fs.Type != unix.TMPFS_MAGIC || fs.Bavail*uint64(fs.Bsize) < 16<<20 {
		return t.TempDir()
	}
	dir, err := os.MkdirTemp(memory, "guests-")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(dir)) })
	return dir
}

// plants are objects that a virtual machine can put into its tree if the tree is shared writable.
var plants = map[string]func(path, outside string) error{
	"a link to a file":               func(path, outside string) error { return os.Symlink(filepath.Join(outside, "file"), path) },
	"a link to a directory":          func(path, outside string) error { return os.Symlink(outside, path) },
	"a relative link out of it":      func(path, _ string) error { return os.Symlink("../../../../../../../../etc", path) },
	"a link to itself":               func(path, _ string) error { return os.Symlink(filepath.Base(path), path) },
	"a link to the directory":        func(path, _ string) error { return os.Symlink(".", path) },
	"a dangling link":                func(path, outside string) error { return os.Symlink(filepath.Join(outside, "missing"), path) },
	"a hard link":                    func(path, outside string) error { return os.Link(filepath.Join(outside, "file"), path) },
	"a pipe":                         func(path, _ string) error { return unix.Mkfifo(path, 0o666) },
	"a device":                       func(path, _ string) error { return unix.Mknod(path, unix.S_IFCHR|0o666, int(unix.Mkdev(1, 8))) },
	"an empty directory":             func(path, _ string) error { return os.Mkdir(path, 0o777) },
	"a directory with something":     func(path, _ string) error { return os.MkdirAll(filepath.Join(path, "something"), 0o777) },
	"a huge file":                    func(path, _ string) error { return os.WriteFile(path, nil, 0o600) /* made larger below */ },
	"a file that nobody may touch":   func(path, _ string) error { return os.WriteFile(path, []byte("1\n"), 0) },
	"a file of the wrong kind again": func(path, _ string) error { return os.WriteFile(path, []byte("\x00\xff\n\n\n"), 0o666) },
}

// Whatever is in a tree, nothing outside of it changes, nothing waits, and if a file cannot be
// replaced, the error names it and writing goes on when it is gone.
func TestNothingInATreeLeadsOutOfIt(t *testing.T) {
	files := []string{".new", "generation", "epoch", "vm_id", "update_time", "intel-rapl:0", "intel-rapl:0/energy_uj", "intel-rapl:0/name",
		"intel-rapl:0/intel-rapl:0:0", "intel-rapl:0/intel-rapl:0:0/energy_uj", "intel-rapl:0:0", "intel-rapl:1"}
	for name, plant := range plants {
		d, outside := newTrees(t), newDir(t)
		require.NoError(t, os.WriteFile(filepath.Join(outside, "file"), []byte("untouched"), 0o600))
		for _, file := range files {
			for _, restarted := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s/%s/%t", name, strings.ReplaceAll(file, "/", "+"), restarted), func(t *testing.T) {
					d.t = t
					testPlant(t, d, outside, name, plant, file, restarted)
				})
			}
		}
	}
}

func testPlant(t *testing.T, d *trees, outside, name string, plant func(path, outside string) error, file string, restarted bool) {
	require.NoError(t, os.RemoveAll(filepath.Join(d.path, "vm1")))
	tree := d.open(uuid)
	require.NoError(t, tree.write(d.Root, noon, zones(power.Package, 5, power.DRAM, 6)))
	at := filepath.Join(d.path, "vm1", file)
	require.NoError(t, os.RemoveAll(at))
	if err := plant(at, outside); err != nil {
		t.Skipf("cannot make what is to be found: %v", err)
	}
	if name == "a huge file" {
		require.NoError(t, os.Truncate(at, 1<<50>>10))
	}
	if restarted {
		tree = d.open(uuid)
	}
	first := tree.write(d.Root, noon, zones(power.Package, 5, power.DRAM, 6))
	second := tree.write(d.Root, noon, zones(power.Package, 7, power.DRAM, 8))
	if first != nil || second != nil {
		require.EqualError(t, first, file+": a directory with files is in its place")
		require.EqualError(t, second, first.Error(), "the text does not change")
		require.Equal(t, "a directory with something", name)
	}
	if name == "a directory with something" {
		require.NoError(t, os.RemoveAll(at))
	}
	require.NoError(t, tree.write(d.Root, noon, zones(power.Package, 9, power.DRAM, 10)))
	tree = d.open(uuid)
	require.NoError(t, tree.write(d.Root, noon, zones(power.Package, 0, power.DRAM, 0)), "and it can be understood")

	content, err := os.ReadFile(filepath.Join(outside, "file"))
	require.NoError(t, err)
	require.Equal(t, "untouched", string(content))
	entries, err := os.ReadDir(outside)
	require.NoError(t, err)
	require.Len(t, entries, 1)
	_, err = os.Lstat(filepath.Join(d.path, "vm1", newFile))
	require.ErrorIs(t, err, os.ErrNotExist)
	_, err = os.Stat("/etc/energy_uj")
	require.ErrorIs(t, err, os.ErrNotExist)
}

func TestADirectoryOfAMachineThatIsNoneIsRefused(t *testing.T) {
	for name, plant := range plants {
		if strings.Contains(name, "directory") && !strings.Contains(name, "link") {
			continue
		}
		t.Run(name, func(t *testing.T) {
			d, outside := newTrees(t), newDir(t)
			require.NoError(t, os.WriteFile(filepath.Join(outside, "file"), nil, 0o600))
			require.NoError(t, plant(filepath.Join(d.path, "vm1"), outside))
			_, _, err := openTree(d.Root, "vm1", uuid)
			require.ErrorIs(t, err, errNoDirectory)
			tree := &tree{dir: "vm1", id: uuid, epoch: "x"}
			require.ErrorIs(t, tree.write(d.Root, noon, zones(power.Package, 5)), errNoDirectory)
			entries, err := os.ReadDir(outside)
			require.NoError(t, err)
			assert.Len(t, entries, 1)
		})
	}
}

// smallDisk mounts a file system of so many bytes.
func smallDisk(t *testing.T, options string) string {
	t.Helper()
	at := t.TempDir()
	if err := unix.Mount("tmpfs", at, "tmpfs", 0, options); err != nil {
		t.Skipf("cannot mount a tmpfs: %v", err)
	}
	t.Cleanup(func() { require.NoError(t, unix.Unmount(at, 0)) })
	return at
}

func TestAFullDiskLosesNothing(t *testing.T) {
	at := smallDisk(t, "size=128k")
	root, err := os.OpenRoot(at)
	require.NoError(t, err)
	t.Cleanup(func() { _ = root.Close() })
	d := &trees{root, t, at}
	full := filepath.Join(at, "full")
	for room := range 20 { // pages that are left: it fails at another file each time
		require.NoError(t, os.RemoveAll(filepath.Join(at, "vm1")))
		require.NoError(t, os.WriteFile(full, bytes.Repeat([]byte{1}, 128<<10-room*4096), 0o600))
		tree := d.open(uuid)
		failed := false
		for energy := range 3 {
			if err := tree.write(d.Root, noon, zones(power.Package, energy, power.DRAM, 2*energy)); err != nil {
				require.ErrorIs(t, err, unix.ENOSPC)
				require.True(t, ofWholeDisk(err))
				failed = true
			}
		}
		assert.Equal(t, room < 11, failed, "ten files and one that replaces another")
		require.NoError(t, os.Truncate(full, 0))
		require.NoError(t, tree.write(d.Root, noon, zones(power.Package, 7, power.DRAM, 14)))
		files := d.files()
		assert.Equal(t, "7\n", files["intel-rapl:0/energy_uj"])
		assert.Equal(t, "14\n", files["intel-rapl:0/intel-rapl:0:0/energy_uj"])
		assert.NotContains(t, files, newFile)
	}
}

// A tree that was complete needs room for one file only.
func TestADiskThatBecomesFullLeavesTheLastGeneration(t *testing.T) {
	at := smallDisk(t, "size=128k")
	root, err := os.OpenRoot(at)
	require.NoError(t, err)
	t.Cleanup(func() { _ = root.Close() })
	d := &trees{root, t, at}
	tree := d.open(uuid)
	require.NoError(t, tree.write(d.Root, noon, zones(power.Package, 5)))
	before := d.files()
	full := filepath.Join(at, "full")
	require.Error(t, os.WriteFile(full, bytes.Repeat([]byte{1}, 128<<10), 0o600))
	require.ErrorIs(t, tree.write(d.Root, noon, zones(power.Package, 7)), unix.ENOSPC)
	assert.Equal(t, before, d.files())
	info, err := os.Stat(full)
	require.NoError(t, err)
	require.NoError(t, os.Truncate(full, info.Size()-4096))
	require.NoError(t, tree.write(d.Root, noon, zones(power.Package, 8)))
	assert.Equal(t, "8\n", d.files()["intel-rapl:0/energy_uj"])
}

func TestAReadOnlyDiskLosesNothing(t *testing.T) {
	at := smallDisk(t, "")
	root, err := os.OpenRoot(at)
	require.NoError(t, err)
	t.Cleanup(func() { _ = root.Close() })
	d := &trees{root, t, at}
	tree := d.open(uuid)
	require.NoError(t, tree.write(d.Root, noon, zones(power.Package, 5)))
	before := d.files()
	require.NoError(t, unix.Mount("", at, "", unix.MS_REMOUNT|unix.MS_RDONLY, ""))
	err = tree.write(d.Root, noon, zones(power.Package, 7))
	require.ErrorIs(t, err, unix.EROFS)
	require.True(t, ofWholeDisk(err))
	assert.Equal(t, before, d.files())
	require.NoError(t, unix.Mount("", at, "", unix.MS_REMOUNT, ""))
	require.NoError(t, tree.write(d.Root, noon, zones(power.Package, 8)))
	assert.Equal(t, "8\n", d.files()["intel-rapl:0/energy_uj"])
}
