// SPDX-License-Identifier: Apache-2.0

package kernfs

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

func newDir(t testing.TB, path string) *Dir {
	t.Helper()
	d := New(path)
	t.Cleanup(func() { assert.NoError(t, d.Close()) })
	return d
}

func write(t testing.TB, text string, elem ...string) {
	t.Helper()
	path := filepath.Join(elem...)
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
}

func list(d *Dir) (names []string, err error) {
	err = d.Each(func(name []byte) { names = append(names, string(name)) })
	slices.Sort(names)
	return names, err
}

// numbered returns a directory with 200 processes and a name of the maximum length, and the names in it.
func numbered(t *testing.T) (root string, names []string) {
	root, names = t.TempDir(), []string{".", "..", strings.Repeat("n", 255)}
	write(t, "", root, names[2])
	for i := range 200 {
		name := strconv.Itoa(i)
		write(t, name, root, name, "stat")
		names = append(names, name)
	}
	slices.Sort(names)
	return root, names
}

func TestAListHasEachEntryOnceWhileEntriesAreRead(t *testing.T) {
	root, want := numbered(t)
	d, buf := newDir(t, root), make([]byte, 16)
	d.entries = make([]byte, 1<<10) // too small for all
	for range 2 {
		var got []string
		require.NoError(t, d.Each(func(name []byte) {
			got = append(got, string(name))
			if pid, err := strconv.Atoi(string(name)); err == nil {
				b, err := d.ReadOf(int32(pid), "stat", buf)
				require.NoError(t, err)
				require.Equal(t, string(name), string(b))
			}
		}))
		slices.Sort(got)
		require.Equal(t, want, got)
	}
	require.NoError(t, os.Remove(filepath.Join(root, strings.Repeat("n", 255))))
	got, err := list(d)
	require.NoError(t, err)
	assert.Len(t, got, len(want)-1)
}

func TestAListThatStopsContinuesWhereItStopped(t *testing.T) {
	root, want := numbered(t)
	var got []string
	calls, position := 0, int64(0)
	for ; calls == 0 || position != 0; calls++ {
		d, left := New(root), 50 // each call has a descriptor of its own
		next, err := d.EachFrom(position, func(name []byte) bool {
			got = append(got, string(name))
			left--
			return left > 0
		})
		require.NoError(t, err)
		require.NoError(t, d.Close())
		position = next
	}
	slices.Sort(got)
	assert.Equal(t, want, got)
	assert.Equal(t, 5, calls)
}

func TestReadsReturnWhatFitsOfFilesAndLinks(t *testing.T) {
	root := t.TempDir()
	write(t, "1000.00 1.00\n", root, "uptime")
	write(t, "", root, "empty")
	write(t, strings.Repeat("y", 100), root, "longer")
	for _, pid := range []int{0, 4194304, math.MaxInt32} {
		write(t, "42", root, strconv.Itoa(pid), "stat")
	}
	require.NoError(t, os.Symlink("/usr/bin/some program (deleted)", filepath.Join(root, "0", "exe")))
	d, buf := newDir(t, root), make([]byte, 20)
	for name, c := range map[string]struct {
		want string
		read func() ([]byte, error)
	}{
		"file":       {"1000.00 1.00\n", func() ([]byte, error) { return d.Read("uptime", buf) }},
		"empty file": {"", func() ([]byte, error) { return d.Read("empty", buf) }},
		"long file":  {strings.Repeat("y", 20), func() ([]byte, error) { return d.Read("longer", buf) }},
		"file in":    {"42", func() ([]byte, error) { return d.ReadIn("4194304", "stat", buf) }},
		"file of":    {"42", func() ([]byte, error) { return d.ReadOf(math.MaxInt32, "stat", buf) }},
		"file of 0":  {"42", func() ([]byte, error) { return d.ReadOf(0, "stat", buf) }},
		"long link":  {"/usr/bin/some progra", func() ([]byte, error) { return d.LinkOf(0, "exe", buf) }},
		"link": {"/usr/bin/some program (deleted)", func() ([]byte, error) {
			return d.LinkOf(0, "exe", make([]byte, 100))
		}},
	} {
		got, err := c.read()
		require.NoError(t, err, name)
		assert.Equal(t, c.want, string(got), name)
	}
	for name, want := range map[string]bool{"0": true, "0/stat": true, "c": false, "0/c": false, "0/stat/c": false} {
		assert.Equal(t, want, d.Has(name), name)
	}
	assert.False(t, newDir(t, filepath.Join(root, "c")).Has("a"), "no directory")
}

func TestErrorsIdentifyTheFailure(t *testing.T) {
	root := t.TempDir()
	write(t, "x", root, "7", "stat")
	d := newDir(t, root)
	buf := make([]byte, 100)
	read := func(name string) error { _, err := d.Read(name, buf); return err }
	readOf := func(pid int32, name string) error { _, err := d.ReadOf(pid, name, buf); return err }
	linkOf := func(pid int32, name string) error { _, err := d.LinkOf(pid, name, buf); return err }
	for name, c := range map[string]struct{ got, want error }{
		"a file that is not there":       {read("none"), fs.ErrNotExist},
		"a directory in a file's place":  {read("7"), syscall.EISDIR},
		"a process that is gone":         {readOf(8, "stat"), fs.ErrNotExist},
		"a file in a directory's place":  {readOf(7, "stat/stat"), syscall.ENOTDIR},
		"a link of a process gone":       {linkOf(8, "exe"), fs.ErrNotExist},
		"a process without an exe":       {linkOf(7, "exe"), fs.ErrNotExist},
		"a file in a link's place":       {linkOf(7, "stat"), syscall.EINVAL},
		"a name that is longer than any": {read(strings.Repeat("n", 300)), syscall.ENAMETOOLONG},
	} {
		assert.ErrorIs(t, c.got, c.want, name)
	}
	b, err := d.ReadOf(7, "stat", buf)
	require.NoError(t, err, "errors of entries leave the directory open")
	assert.Equal(t, "x", string(b))
}

func TestADirectoryThatIsReplacedIsFound(t *testing.T) {
	path := filepath.Join(t.TempDir(), "proc")
	d := newDir(t, path)
	require.NoError(t, d.Close(), "never opened")
	_, err := list(d)
	require.ErrorIs(t, err, fs.ErrNotExist)
	require.ErrorContains(t, err, path)
	_, err = d.Read("old", make([]byte, 10))
	require.ErrorIs(t, err, fs.ErrNotExist)
	write(t, "", path)
	_, err = list(d)
	require.ErrorIs(t, err, syscall.ENOTDIR, "a file")

	require.NoError(t, os.Remove(path))
	write(t, "x", path, "old")
	for range 2 {
		b, err := d.Read("old", make([]byte, 10))
		require.NoError(t, err)
		assert.Equal(t, "x", string(b))
		require.NoError(t, d.Close())
		require.NoError(t, d.Close(), "again")
	}
	_, err = list(d)
	require.NoError(t, err)
	require.NoError(t, os.RemoveAll(path))
	write(t, "", path, "new")
	_, err = list(d)
	require.ErrorIs(t, err, fs.ErrNotExist, "once")
	got, err := list(d)
	require.NoError(t, err)
	assert.Equal(t, []string{".", "..", "new"}, got)
	assert.Equal(t, path, d.Path())
}

func TestNoDescriptorIsLeftOpen(t *testing.T) {
	root := t.TempDir()
	write(t, "x", root, "7", "stat")
	write(t, "x", root, "8", "stat", "in a directory")
	open := func() int {
		entries, err := os.ReadDir("/proc/self/fd")
		require.NoError(t, err)
		return len(entries)
	}
	d := New(root)
	before := open()
	buf := make([]byte, 10)
	for range 50 {
		_, err := list(d)
		require.NoError(t, err)
		_, err = d.ReadOf(7, "stat", buf)
		require.NoError(t, err)
		_, err = d.ReadOf(8, "stat", buf)
		require.ErrorIs(t, err, syscall.EISDIR)
		_, err = d.ReadOf(9, "stat", buf)
		require.ErrorIs(t, err, fs.ErrNotExist)
	}
	assert.Equal(t, before+1, open(), "the directory itself")
	flags, err := unix.FcntlInt(uintptr(d.fd), unix.F_GETFD, 0)
	require.NoError(t, err)
	assert.NotZero(t, flags&unix.FD_CLOEXEC)
	require.NoError(t, d.Close())
	assert.Equal(t, before, open())
}

func TestNothingIsAllocatedPerCall(t *testing.T) {
	d := newDir(t, "/proc")
	pid := int32(os.Getpid())
	buf := make([]byte, 4096)
	entries := 0
	count := func([]byte) { entries++ }
	for name, call := range map[string]func() error{
		"Each":                func() error { return d.Each(count) },
		"Read":                func() error { _, err := d.Read("uptime", buf); return err },
		"ReadIn":              func() error { _, err := d.ReadIn("self", "stat", buf); return err },
		"Has":                 func() error { d.Has("uptime"); return nil },
		"ReadOf":              func() error { _, err := d.ReadOf(pid, "stat", buf); return err },
		"LinkOf":              func() error { _, err := d.LinkOf(pid, "exe", buf); return err },
		"ReadOf of one gone":  func() error { _, err := d.ReadOf(math.MaxInt32, "stat", buf); return ignore(err, unix.ENOENT) },
		"LinkOf of one gone ": func() error { _, err := d.LinkOf(math.MaxInt32, "exe", buf); return ignore(err, unix.ENOENT) },
	} {
		var err error
		allocated := testing.AllocsPerRun(20, func() {
			if e := call(); e != nil {
				err = e
			}
		})
		require.NoError(t, err, name)
		assert.Zero(t, allocated, name)
	}
	assert.Positive(t, entries)
}

func ignore(err error, expected syscall.Errno) error {
	if err == expected { //nolint:errorlint // the bare value is documented
		return nil
	}
	return fmt.Errorf("got %w, not %w", err, expected)
}

// entry is a directory entry as getdents64(2) writes it, its length filled up to a multiple of eight.
func entry(name string) []byte {
	length := (direntName + len(name) + 1 + 7) / 8 * 8
	b := make([]byte, length)
	binary.NativeEndian.PutUint16(b[direntLength:], uint16(length))
	copy(b[direntName:], name)
	return b
}

func FuzzEntries(f *testing.F) {
	f.Add([]byte{}, "self")
	f.Add(slices.Concat(entry("."), entry(".."), entry("1"), entry("4194304"), entry(strings.Repeat("x", 255))), "stat")
	f.Add(entry("cut short")[:20], "")
	f.Add(make([]byte, 24), "1")
	f.Add(bytes.Repeat([]byte{0xff}, 64), "\xff")
	f.Fuzz(func(t *testing.T, b []byte, name string) {
		total := 0
		list := func(b []byte) (names []string, ok bool) {
			_, err := eachIn(b, func(name []byte, _ int64) bool {
				names = append(names, string(name))
				total += direntName + len(name)
				return true
			})
			return names, err == nil
		}
		names, ok := list(b)
		require.LessOrEqual(t, total, len(b), "nothing is listed twice")
		for _, n := range names {
			require.NotContains(t, n, "\x00")
		}
		name, _, _ = strings.Cut(name, "\x00")
		if len(name) > 255 {
			return
		}
		more, moreOK := list(slices.Concat(b, entry(name)))
		if ok {
			require.True(t, moreOK)
			require.Equal(t, append(names, name), more)
		}
	})
}

func FuzzNumbersInNamesAreDecimal(f *testing.F) {
	for _, n := range []int32{0, 1, 9, 10, 99, 100, 4194304, math.MaxInt32} {
		f.Add(n)
	}
	f.Fuzz(func(t *testing.T, n int32) {
		if n < 0 {
			t.Skip("no process has a negative number")
		}
		assert.Equal(t, strconv.Itoa(int(n)), string(appendInt(nil, n)))
	})
}

func TestEachOfListsTheEntriesOfAProcess(t *testing.T) {
	root := t.TempDir()
	for i := range 100 {
		write(t, "", root, "7", "fd", strconv.Itoa(i))
	}
	d := newDir(t, root)
	d.entries = make([]byte, 1024) // too small for all
	seen := map[string]bool{}
	require.NoError(t, d.EachOf(7, "fd", func(name []byte) bool { seen[string(name)] = true; return true }))
	assert.Len(t, seen, 100)
	n := 0
	require.NoError(t, d.EachOf(7, "fd", func([]byte) bool { n++; return n < 10 }))
	assert.Equal(t, 10, n, "until yield returns false")
	require.ErrorIs(t, d.EachOf(8, "fd", func([]byte) bool { return true }), syscall.ENOENT)
	_, err := d.SizeOf(8, "fd")
	require.ErrorIs(t, err, syscall.ENOENT)
}

func TestTheSizeOfAProcesssDescriptorsIsTheirNumber(t *testing.T) {
	d := newDir(t, "/proc")
	number := func() int64 {
		n, err := d.SizeOf(int32(os.Getpid()), "fd")
		require.NoError(t, err)
		return n
	}
	before := number()
	if before == 0 {
		t.Skip("lacks Linux 6.2, from which on the size of /proc/<pid>/fd is the number of descriptors")
	}
	f, err := os.Open(os.DevNull)
	require.NoError(t, err)
	assert.Equal(t, before+1, number())
	require.NoError(t, f.Close())
}

func TestTheLinksOfADirectoryCountTheDirectoriesInside(t *testing.T) {
	root := t.TempDir()
	d := newDir(t, root)
	before, err := d.Links()
	require.NoError(t, err)
	if before != 2 {
		t.Skip("this file system does not count them")
	}
	write(t, "", root, "a", "file")
	write(t, "", root, "b", "file")
	after, err := d.Links()
	require.NoError(t, err)
	assert.EqualValues(t, 4, after)
}

func TestOnlyQuickFilesOfTheKernelAreReadByRawSystemCalls(t *testing.T) {
	other := filepath.Join(t.TempDir(), "file")
	put(t, other, "text")
	for _, c := range []struct {
		file File
		raw  bool
	}{
		{File{Path: "/proc/uptime", Quick: true}, true},
		{File{Path: "/proc/uptime"}, false},
		{File{Path: other, Quick: true}, false}, // a FUSE file system may hang
	} {
		for range 2 {
			text, err := c.file.Read(make([]byte, 64))
			require.NoError(t, err)
			assert.NotEmpty(t, text)
		}
		assert.Equal(t, c.raw, c.file.raw, c.file.Path)
		assert.NoError(t, c.file.Close())
	}
}
