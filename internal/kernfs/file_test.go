// SPDX-License-Identifier: Apache-2.0

package kernfs

import (
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
	got, err := f.Read(make([]byte, 8))
	require.NoError(t, err)
	assert.Equal(t, want, string(got))
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
	require.NoError(t, f.file.Close()) // any read of it fails now
	_, err := f.Read(make([]byte, 8))
	require.Error(t, err)
	assert.False(t, f.IsOpen())
	expectText(t, f, "12\n")
}

func TestAMissingFileIsAnErrorUntilItAppears(t *testing.T) {
	f := &File{Path: filepath.Join(t.TempDir(), "file")}
	_, err := f.Read(make([]byte, 8))
	require.ErrorIs(t, err, fs.ErrNotExist)
	put(t, f.Path, "12\n")
	expectText(t, f, "12\n")
	require.NoError(t, f.Close())
	require.NoError(t, f.Close(), "again")
	assert.False(t, f.IsOpen())
}

func TestAFileThatWasReplacedIsStale(t *testing.T) {
	f := smallFile(t, "12\n")
	assert.False(t, f.Stale(), "it is closed")
	expectText(t, f, "12\n")
	assert.False(t, f.Stale())
	put(t, f.Path+"-new", "345\n")
	require.NoError(t, os.Rename(f.Path+"-new", f.Path))
	assert.True(t, f.Stale(), "it was replaced")
	require.NoError(t, os.Remove(f.Path))
	assert.True(t, f.Stale(), "it was removed")
}

func TestReadingAnOpenFileAllocatesNothing(t *testing.T) {
	f, buf := smallFile(t, "12\n"), make([]byte, 8)
	expectText(t, f, "12\n")
	assert.Zero(t, testing.AllocsPerRun(100, func() {
		if _, err := f.Read(buf); err != nil {
			t.Error(err)
		}
	}))
}

func TestFaultsReachFiles(t *testing.T) {
	f := smallFile(t, "12\n")
	defer InjectFaults(func(path string, got []byte, err error) ([]byte, error) {
		assert.Equal(t, f.Path, path)
		assert.Equal(t, "12\n", string(got))
		assert.NoError(t, err)
		return nil, syscall.EIO
	})()
	_, err := f.Read(make([]byte, 8))
	require.ErrorIs(t, err, syscall.EIO)
	assert.False(t, f.IsOpen())
}
