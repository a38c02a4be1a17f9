// SPDX-License-Identifier: Apache-2.0

package state

import (
	"bytes"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component"
	"golang.org/x/sys/unix"

	"github.com/energyreceiver/energyreceiver/receiver/internal/training"
)

func TestReceiversOfOneDirectoryHaveFilesOfTheirOwn(t *testing.T) {
	for name, file := range map[string]string{
		"":              "/dir/energy.state",
		"rack 1":        "/dir/energy%2Frack%201.state",
		"../../etc/x":   "/dir/energy%2F..%2F..%2Fetc%2Fx.state",
		"%2F..":         "/dir/energy%2F%252F...state",
		"node.state.id": "/dir/energy%2Fnode.state.id.state",
	} {
		assert.Equal(t, file, Path("/dir", component.MustNewIDWithName("energy", name).String()))
	}
}

// contentDamages change the content of a state file.
var contentDamages = []func(r *rand.Rand, b []byte) []byte{
	func(r *rand.Rand, b []byte) []byte { // bits flip
		b[r.IntN(len(b))] ^= 1 << r.IntN(8)
		return b
	},
	func(r *rand.Rand, b []byte) []byte { return b[:r.IntN(len(b))] }, // the end is lost
	func(_ *rand.Rand, b []byte) []byte { // a page is zeroed
		clear(b[:512])
		return b
	},
	func(r *rand.Rand, b []byte) []byte { return append(b, make([]byte, 1+r.IntN(5000))...) },
	func(r *rand.Rand, b []byte) []byte { return b[1+r.IntN(len(b)-1):] }, // the start is lost
	func(*rand.Rand, []byte) []byte { return nil },
}

// fileDamages put something else in the place of a state file.
var fileDamages = map[string]func(path string) error{
	"a directory":          func(path string) error { return os.Mkdir(path, 0o700) },
	"a pipe":               func(path string) error { return unix.Mkfifo(path, 0o600) },
	"a link to nothing":    func(path string) error { return os.Symlink("/nonexistent", path) },
	"a link to a state":    func(path string) error { return os.Symlink(path+".moved", path) },
	"a file of a terabyte": func(path string) error { return os.WriteFile(path, nil, 0o600) },
	"a link to itself":     func(path string) error { return os.Symlink(path, path) },
}

func TestADamagedStateFileIsAnErrorAndIsReplaced(t *testing.T) {
	good, now := earlier(t)
	path := filepath.Join(t.TempDir(), "lib", "energy.state")
	f, err := OpenFile(path)
	require.NoError(t, err)
	replaces := func() {
		require.NoError(t, f.Set(t.Context(), Key, sealed(good)))
		got, err := f.Get(t.Context(), Key)
		require.NoError(t, err)
		require.NoError(t, Decode(got, &training.Models{}, &Totals{}, now))
	}
	replaces()
	r := rand.New(rand.NewPCG(1, 0))
	for i := range 300 {
		require.NoError(t, os.WriteFile(path, contentDamages[i%len(contentDamages)](r, bytes.Clone(sealed(good))), 0o600))
		got, err := f.Get(t.Context(), Key)
		require.NoError(t, err)
		require.Error(t, Decode(got, &training.Models{}, &Totals{}, now), "damage %d", i)
		replaces()
	}
	require.NoError(t, os.WriteFile(path+".moved", sealed(good), 0o600))
	for name, damage := range fileDamages {
		require.NoError(t, os.Remove(path))
		require.NoError(t, damage(path))
		if name == "a file of a terabyte" {
			require.NoError(t, os.Truncate(path, 1<<40))
		}
		_, err := f.Get(t.Context(), Key)
		require.Error(t, err, name)
		if name == "a directory" {
			require.Error(t, f.Set(t.Context(), Key, nil))
			require.NoError(t, f.Delete(t.Context(), Key))
		}
		replaces()
	}
	require.NoError(t, f.Close(t.Context()))
	for of, mode := range map[string]fs.FileMode{path: 0o600, filepath.Dir(path): 0o700 | fs.ModeDir} {
		info, err := os.Lstat(of)
		require.NoError(t, err)
		assert.Equal(t, mode, info.Mode())
	}
}

func TestAnUnusableDirectoryIsAnError(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string {
		require.NoError(t, os.Mkdir(filepath.Join(dir, name), 0o700))
		return filepath.Join(dir, name, "energy.state")
	}
	lock, next, full, readOnly := at("lock"), at("next"), at("full"), at("read-only")
	require.NoError(t, os.Mkdir(lock+".lock", 0o700))
	require.NoError(t, os.MkdirAll(next+".new/file", 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "file"), nil, 0o600))
	paths := []string{"/proc/self/state/energy.state", lock, next, filepath.Join(dir, "file", "energy.state")}
	for path, options := range map[string]string{full: "size=4k", readOnly: ""} {
		if err := unix.Mount("tmpfs", filepath.Dir(path), "tmpfs", 0, options); err != nil {
			t.Logf("%s is left out: %v", path, err)
			continue
		}
		t.Cleanup(func() { require.NoError(t, unix.Unmount(filepath.Dir(path), 0)) })
		if paths = append(paths, path); path == readOnly {
			require.NoError(t, unix.Mount("", filepath.Dir(path), "", unix.MS_REMOUNT|unix.MS_RDONLY, ""))
		}
	}
	for _, path := range paths {
		f, err := OpenFile(path)
		if err == nil {
			err = f.Set(t.Context(), Key, make([]byte, 8192))
			require.NoError(t, f.Close(t.Context()))
		}
		require.Error(t, err, path)
		_, err = os.Stat(path)
		require.Error(t, err, path)
	}
}

func TestAStateIsUsedByOneCollectorAtATime(t *testing.T) {
	path := filepath.Join(t.TempDir(), "energy.state")
	first, err := OpenFile(path)
	require.NoError(t, err)
	_, err = OpenFile(path)
	require.ErrorContains(t, err, "another collector may use it")
	_, err = ReadOnlyFile(path).Get(t.Context(), Key)
	require.NoError(t, err)
	require.NoError(t, first.Close(t.Context()))
	second, err := OpenFile(path)
	require.NoError(t, err)
	require.NoError(t, second.Close(t.Context()))
}

func TestTheStateOfAnotherUserIsAnError(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can act as another user")
	}
	path := filepath.Join(t.TempDir(), "private", "energy.state")
	f, err := OpenFile(path)
	require.NoError(t, err)
	require.NoError(t, f.Set(t.Context(), Key, nil))
	require.NoError(t, f.Close(t.Context()))
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	_, err = unix.SetfsuidRetUid(65534)
	require.NoError(t, err)
	_, readErr := ReadOnlyFile(path).Get(t.Context(), Key)
	_, openErr := OpenFile(path)
	_, err = unix.SetfsuidRetUid(0)
	require.NoError(t, err)
	require.ErrorIs(t, readErr, fs.ErrPermission)
	require.ErrorIs(t, openErr, fs.ErrPermission)
}
