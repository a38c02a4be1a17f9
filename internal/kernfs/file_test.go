// SPDX-License-Identifier: Apache-2.0

package kernfs

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// smallFile returns a file with the text, closed at the end of the test.
func smallFile(t *testing.T, text string) *File {
	t.Helper()
	f := &File{Path: filepath.Join(t.TempDir(), "file")}
	put(t, f.Path, text)
	t.Cleanup(func() {
		assert.NoError(t, f.Close())
	})
	return f
}

func put(t *testing.T, path, text string) {
	t.Helper()
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
}

func expectText(t *testing.T, f *File, want string) {
	t.Helper()
	if got, err := f.Read(make([]byte, 8)); err != nil || string(got) != want {
		t.Errorf("read %q, %v; want %q", got, err, want)
	}
}

func TestAFileIsReadFromItsBeginningEachTime(t *testing.T) {
	f := smallFile(t, "12\n")
	expectText(t, f, "12\n")
	expectText(t, f, "12\n")
	put(t, f.Path, "345\n")
	expectText(t, f, "345\n")
	put(t, f.Path, "0123456789\n")
	expectText(t, f, "01234567")
}

func TestAFileThatFailsIsOpenedAgain(t *testing.T) {
	f := smallFile(t, "12\n")
	expectText(t, f, "12\n")
	if err := f.file.Close(); err != nil { // any read of it fails now
		t.Fatal(err)
	}
	if _, err := f.Read(make([]byte, 8)); err == nil || f.IsOpen() {
		t.Errorf("error %v, open %t; want an error and a closed file", err, f.IsOpen())
	}
	expectText(t, f, "12\n")
}

func TestAMissingFileIsAnErrorUntilItAppears(t *testing.T) {
	f := &File{Path: filepath.Join(t.TempDir(), "file")}
	if _, err := f.Read(make([]byte, 8)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("error %v", err)
	}
	put(t, f.Path, "12\n")
	expectText(t, f, "12\n")
	if err := errors.Join(f.Close(), f.Close()); err != nil || f.IsOpen() {
		t.Errorf("closed twice: %v, open %t", err, f.IsOpen())
	}
}

func TestAFileThatWasReplacedIsStale(t *testing.T) {
	f := smallFile(t, "12\n")
	if f.Stale() {
		t.Error("a closed file is stale")
	}
	expectText(t, f, "12\n")
	if f.Stale() {
		t.Error("an open file is stale")
	}
	put(t, f.Path+"-new", "345\n")
	require.NoError(t, os.Rename(f.Path+"-new", f.Path))
	if !f.Stale() {
		t.Error("a file that was replaced is not stale")
	}
	if err := os.Remove(f.Path); err != nil || !f.Stale() {
		t.Errorf("a file that was removed is not stale, %v", err)
	}
}

func TestReadingAnOpenFileAllocatesNothing(t *testing.T) {
	f, buf := smallFile(t, "12\n"), make([]byte, 8)
	expectText(t, f, "12\n")
	if n := testing.AllocsPerRun(100, func() {
		if _, err := f.Read(buf); err != nil {
			t.Error(err)
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestFaultsReachFiles(t *testing.T) {
	f := smallFile(t, "12\n")
	defer InjectFaults(func(path string, got []byte, err error) ([]byte, error) {
		if path != f.Path || string(got) != "12\n" || err != nil {
			t.Errorf("%s: %q, %v", path, got, err)
		}
		return nil, syscall.EIO
	})()
	if _, err := f.Read(make([]byte, 8)); !errors.Is(err, syscall.EIO) || f.IsOpen() {
		t.Errorf("error %v, open %t", err, f.IsOpen())
	}
}
