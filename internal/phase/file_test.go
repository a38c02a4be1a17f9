// SPDX-License-Identifier: Apache-2.0

package phase

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func appendTo(t *testing.T, path, text string) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY|os.O_CREATE, 0o600)
	require.NoError(t, err)
	_, err = f.WriteString(text)
	require.NoError(t, err)
	require.NoError(t, f.Close())
}

func follow(t *testing.T, path string) (m *marks, f *File) {
	t.Helper()
	m = &marks{seen: make(chan string, 1000)}
	f = NewFile(FileOptions{Path: path, Mark: m.take})
	f.again = time.Millisecond
	t.Cleanup(func() { require.NoError(t, f.Close()) })
	return m, f
}

// next returns the next mark.
func (m *marks) next(t *testing.T) string {
	t.Helper()
	select {
	case phase := <-m.seen:
		return phase
	case <-time.After(time.Minute):
		require.Fail(t, "no mark")
		return ""
	}
}

func TestAppendedLinesAreMarks(t *testing.T) {
	path := filepath.Join(t.TempDir(), "phases")
	appendTo(t, path, "begin before\n")
	m, f := follow(t, path)
	require.NoError(t, f.Start())
	appendTo(t, path, "begin a\nbegin b\nbeg")
	assert.Equal(t, "a", m.next(t), "lines from before do not count")
	assert.Equal(t, "b", m.next(t))
	appendTo(t, path, "in c\n")
	assert.Equal(t, "c", m.next(t), "a line may come in parts")
	appendTo(t, path, "end\n")
	assert.Equal(t, None, m.next(t))
	assert.NoError(t, f.Err())
}

func TestAFileMayAppearLaterShrinkAndBeReplaced(t *testing.T) {
	path := filepath.Join(t.TempDir(), "phases")
	m, f := follow(t, path)
	require.NoError(t, f.Start())
	appendTo(t, path, "begin first\nbegin second")
	assert.Equal(t, "first", m.next(t))
	require.NoError(t, os.Truncate(path, 0))
	appendTo(t, path, "begin 3\n")
	assert.Equal(t, "3", m.next(t), "what was left of the line before counts no longer")
	require.NoError(t, os.Rename(path, path+".1"))
	appendTo(t, path, "begin fourth\n")
	assert.Equal(t, "fourth", m.next(t))
	require.NoError(t, os.Remove(path))
	appendTo(t, path, "begin fifth\n")
	assert.Equal(t, "fifth", m.next(t))
}

func TestWrongLinesAreToldUntilARightOne(t *testing.T) {
	path := filepath.Join(t.TempDir(), "phases")
	m, f := follow(t, path)
	require.NoError(t, f.Start())
	appendTo(t, path, strings.Repeat("begin ", 100_000)+"\nbegin a\n")
	assert.Equal(t, "a", m.next(t))
	appendTo(t, path, strings.Repeat("begin ", 100)+"\n")
	require.Eventually(t, func() bool { return f.Err() != nil }, time.Minute, time.Millisecond)
	assert.EqualError(t, f.Err(), path+": line longer than 256 bytes")
	appendTo(t, path, "begin b\n")
	assert.Equal(t, "b", m.next(t))
	require.Eventually(t, func() bool { return f.Err() == nil }, time.Minute, time.Millisecond)
	require.NoError(t, f.Close())
	assert.LessOrEqual(t, cap(f.partial), 1024)
}

func TestADirectoryMayAppearLater(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "later")
	path := filepath.Join(dir, "phases")
	m, f := follow(t, path)
	assert.EqualError(t, f.Start(), path+": its directory: no such file or directory")
	for _, phase := range []string{"a", "b"} {
		require.NoError(t, os.Mkdir(dir, 0o700))
		appendTo(t, path, "begin "+phase+"\n")
		assert.Equal(t, phase, m.next(t))
		require.NoError(t, os.RemoveAll(dir))
	}
}
