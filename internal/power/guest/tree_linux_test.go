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

// Whatever is in a tree, no file outside of it changes, and writing does not wait. If a file cannot be
// replaced, the error names it, and writing continues once the obstacle is gone.
func TestNoFileOfATreeLeadsOutOfIt(t *testing.T) {
	files := []string{".new", "report.json", "intel-rapl:0", "intel-rapl:0/energy_uj", "intel-rapl:0/name",
		"intel-rapl:0/intel-rapl:0:0", "intel-rapl:0/intel-rapl:0:0/energy_uj", "intel-rapl:0:0", "intel-rapl:1"}
	for name, plant := range plants {
		outside := newDir(t)
		require.NoError(t, os.WriteFile(filepath.Join(outside, "file"), []byte("untouched"), 0o600))
		for _, file := range files {
			for _, restarted := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s/%s/%t", name, strings.ReplaceAll(file, "/", "+"), restarted), func(t *testing.T) {
					testPlant(t, outside, name, plant, file, restarted)
				})
			}
		}
	}
}

func testPlant(t *testing.T, outside, name string, plant func(path, outside string) error, file string, restarted bool) {
	d := newTreeDir(t, newDir(t))
	tree := d.open(uuid)
	d.write(tree, power.Package, 5, power.DRAM, 6)
	at := d.path(file)
	require.NoError(t, os.RemoveAll(at))
	if err := plant(at, outside); err != nil {
		t.Skipf("this user cannot make the file: %v", err)
	}
	if name == "a huge file" {
		require.NoError(t, os.Truncate(at, 1<<40))
	}
	if restarted {
		tree = d.open(uuid)
	}
	first := d.tryWrite(tree, power.Package, 0, power.DRAM, 0)
	second := d.tryWrite(tree, power.Package, 2, power.DRAM, 2)
	if first != nil || second != nil {
		require.EqualError(t, first, file+": a directory with files is in its place")
		require.EqualError(t, second, first.Error(), "the text does not change")
		require.Equal(t, "a directory with something", name)
		require.NoError(t, os.RemoveAll(at))
	}
	d.write(tree, power.Package, 2, power.DRAM, 2)
	report, err := (&reader{path: d.Name()}).read()
	require.NoError(t, err)
	require.Equal(t, tree.shown, report.Zones)

	content, err := os.ReadFile(filepath.Join(outside, "file"))
	require.NoError(t, err)
	require.Equal(t, "untouched", string(content))
	entries, err := os.ReadDir(outside)
	require.NoError(t, err)
	require.Len(t, entries, 1)
	_, err = os.Lstat(d.path(newFile))
	require.ErrorIs(t, err, os.ErrNotExist)
}

func TestAFileInPlaceOfADirectoryIsRefused(t *testing.T) {
	for name, plant := range plants {
		if strings.Contains(name, "directory") && !strings.Contains(name, "link") {
			continue
		}
		t.Run(name, func(t *testing.T) {
			published(t, func(p *publishing) {
				outside := newDir(t)
				require.NoError(t, os.WriteFile(filepath.Join(outside, "file"), nil, 0o600))
				require.NoError(t, os.Mkdir(p.dir, 0o755))
				require.NoError(t, plant(filepath.Join(p.dir, "a"), outside))
				p.publish(vm("a", "", 5))
				require.EqualError(t, p.Err(), p.dir+": a: not a directory")
				entries, err := os.ReadDir(outside)
				require.NoError(t, err)
				assert.Len(t, entries, 1)
			})
		})
	}
}

func TestAFullDiskLosesNoEnergy(t *testing.T) {
	at := t.TempDir()
	if err := unix.Mount("tmpfs", at, "tmpfs", 0, "size=128k"); err != nil {
		t.Skipf("cannot mount a tmpfs: %v", err)
	}
	t.Cleanup(func() { require.NoError(t, unix.Unmount(at, 0)) })
	vm, full := filepath.Join(at, "vm"), filepath.Join(at, "full")
	for room := range 20 { // pages that are left: it fails at another file each time
		require.NoError(t, os.Mkdir(vm, 0o755))
		require.NoError(t, os.WriteFile(full, bytes.Repeat([]byte{1}, 128<<10-room*4096), 0o600))
		d := newTreeDir(t, vm)
		tree, failed := d.open(uuid), false
		for range 3 {
			if err := d.tryWrite(tree, power.Package, 1, power.DRAM, 2); err != nil {
				require.ErrorIs(t, err, unix.ENOSPC)
				require.True(t, ofWholeDisk(err))
				failed = true
			}
		}
		assert.Equal(t, room < 8, failed, "%d: seven files and one that replaces another", room)
		require.NoError(t, os.Truncate(full, 0))
		d.write(tree, power.Package, 1, power.DRAM, 2)
		files := d.files()
		assert.Equal(t, "4\n", files["intel-rapl:0/energy_uj"])
		assert.Equal(t, "8\n", files[dramFile])
		assert.NotContains(t, files, newFile)
		require.NoError(t, os.RemoveAll(vm))
	}
}
