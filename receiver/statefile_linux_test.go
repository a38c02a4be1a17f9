// SPDX-License-Identifier: Apache-2.0

package energyreceiver

import (
	"bytes"
	"flag"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component/componentstatus"
	"golang.org/x/sys/unix"

	"github.com/energyreceiver/energyreceiver/receiver/internal/state"
)

var damageSeed = flag.Uint64("state.seed", 1, "seed of the damages of TestADamagedStateFileIsOneConditionAndIsReplaced")

// contentDamages change the content of a state file.
var contentDamages = []func(r *rand.Rand, b []byte) []byte{
	func(r *rand.Rand, b []byte) []byte { // bits flip
		for range 1 + r.IntN(8) {
			b[r.IntN(len(b))] ^= 1 << r.IntN(8)
		}
		return b
	},
	func(r *rand.Rand, b []byte) []byte { return b[:r.IntN(len(b))] }, // the end is lost
	func(r *rand.Rand, b []byte) []byte { // a page is zeroed
		page := r.IntN(len(b)/512) * 512
		clear(b[page : page+512])
		return b
	},
	func(r *rand.Rand, b []byte) []byte { return append(b, make([]byte, 1+r.IntN(5000))...) },
	func(r *rand.Rand, b []byte) []byte { return append(b, b[:1+r.IntN(len(b))]...) },
	func(r *rand.Rand, b []byte) []byte { return b[1+r.IntN(len(b)-1):] }, // the start is lost
	func(*rand.Rand, []byte) []byte { return nil },
	func(r *rand.Rand, b []byte) []byte { // something else
		for i := range b {
			b[i] = byte(r.Uint32())
		}
		return b
	},
}

// fileDamages put something else in the place of a state file.
var fileDamages = []func(path string, good []byte) error{
	func(path string, _ []byte) error { return os.Mkdir(path, 0o700) },
	func(path string, _ []byte) error { return unix.Mkfifo(path, 0o600) },
	func(path string, _ []byte) error { return os.Symlink("/nonexistent", path) },
	func(path string, _ []byte) error { return os.Symlink(path, path) },
	func(path string, good []byte) error { // a symbolic link to a good state
		if err := os.WriteFile(path+".moved", good, 0o600); err != nil {
			return err
		}
		return os.Symlink(path+".moved", path)
	},
	func(path string, good []byte) error {
		if err := os.WriteFile(path, good, 0o600); err != nil {
			return err
		}
		return os.Truncate(path, 1<<40)
	},
}

func TestADamagedStateFileIsOneConditionAndIsReplaced(t *testing.T) {
	directory := t.TempDir()
	path := stateOf(directory)
	n := fileNode(t, directory)
	n.run(300*joule, map[int]int64{1: 10})
	n.run(600*joule, map[int]int64{10: 500})
	require.NoError(t, n.s.shutdown(t.Context()))
	r := rand.New(rand.NewPCG(*damageSeed, 0))
	for i := range unlessShort(1000, 200) {
		good, err := os.ReadFile(path)
		require.NoError(t, err)
		require.Greater(t, len(good), 1024)
		require.NoError(t, os.Remove(path))
		if kind := r.IntN(len(contentDamages) + 2); kind < len(contentDamages) {
			bad := contentDamages[kind](r, bytes.Clone(good))
			if bytes.Equal(bad, good) {
				bad = nil
			}
			require.NoError(t, os.WriteFile(path, bad, 0o600))
		} else {
			require.NoError(t, fileDamages[r.IntN(len(fileDamages))](path, good))
		}
		clear(n.finals)
		n.status = nil
		n.startAgain()
		require.Equal(t, []string{"Degraded storage"}, n.logged(), "damage %d", i)
		n.run(300*joule, map[int]int64{10: 500})
		require.InDelta(t, 300, n.one("hw.energy").value, 1e-6, "damage %d", i)
		require.Equal(t, []string{"Degraded storage", "Recovered storage"}, n.logged(), "damage %d", i)
		require.Len(t, n.status, 2, "damage %d", i)
		require.Equal(t, componentstatus.StatusRecoverableError, n.status[0].Status())
		require.ErrorContains(t, n.status[0].Err(), "storage: the state cannot be restored")
		info, err := os.Lstat(path)
		require.NoError(t, err)
		require.True(t, info.Mode().IsRegular(), "damage %d", i)
		require.NoError(t, n.s.shutdown(t.Context()))
	}
	n.startAgain()
	n.run(300*joule, map[int]int64{10: 500})
	assert.Equal(t, []string{"Totals continue"}, n.messages())
	require.NoError(t, n.s.shutdown(t.Context()))
}

// unusable returns directories in which no state can be stored, by reason.
func unusable(t *testing.T) map[string]string {
	t.Helper()
	dir := t.TempDir()
	all := map[string]string{"not permitted": "/proc/self/state"}
	in := func(name string) string {
		at := filepath.Join(dir, name)
		require.NoError(t, os.Mkdir(at, 0o700))
		all[name] = at
		return at
	}
	require.NoError(t, os.MkdirAll(filepath.Join(stateOf(in("a directory with a file in place of the state")), "file"), 0o700))
	require.NoError(t, os.Mkdir(stateOf(in("a directory in place of the lock"))+".lock", 0o700))
	require.NoError(t, os.MkdirAll(filepath.Join(stateOf(in("a directory in place of the new state"))+".new", "file"), 0o700))
	all["a file in place of the directory"] = filepath.Join(dir, "file")
	require.NoError(t, os.WriteFile(all["a file in place of the directory"], nil, 0o600))
	for name, options := range map[string]string{"a read-only directory": "", "a full directory": "size=4k"} {
		at := in(name)
		if err := unix.Mount("tmpfs", at, "tmpfs", 0, options); err != nil {
			t.Logf("%s is left out: %v", name, err)
			delete(all, name)
			continue
		}
		t.Cleanup(func() { require.NoError(t, unix.Unmount(at, 0)) })
		if options == "" {
			require.NoError(t, unix.Mount("", at, "", unix.MS_REMOUNT|unix.MS_RDONLY, ""))
			continue
		}
		require.NoError(t, os.WriteFile(filepath.Join(at, "other"), bytes.Repeat([]byte{1}, 4096), 0o600))
	}
	return all
}

func TestAnUnusableDirectoryCostsTheStateAlone(t *testing.T) {
	for name, directory := range unusable(t) {
		n := fileNode(t, directory)
		for range 3 {
			n.run(300*joule, map[int]int64{1: 10})
		}
		assert.InDelta(t, 900, n.one("hw.energy").value, 1e-6, name)
		logged := n.logged()
		assert.Contains(t, logged, "Degraded storage", name)
		assert.NotContains(t, logged, "Recovered storage", name)
		assert.LessOrEqual(t, len(logged), 2, "%s: once for reading, once for storing", name)
		assert.Equal(t, componentstatus.StatusRecoverableError, n.status[len(n.status)-1].Status(), name)
		require.NoError(t, n.s.shutdown(t.Context()), name)
	}
}

func TestAStateIsUsedByOneCollectorAtATime(t *testing.T) {
	directory := t.TempDir()
	first := fileNode(t, directory)
	first.run(300*joule, nil)
	stored, err := os.ReadFile(stateOf(directory))
	require.NoError(t, err)

	second := fileNode(t, directory)
	assert.Equal(t, []string{"Degraded storage"}, second.logged())
	assert.ErrorContains(t, second.status[0].Err(), "another collector may use it")
	second.run(300*joule, nil)
	assert.InDelta(t, 300, second.one("hw.energy").value, 1e-6)
	again, err := os.ReadFile(stateOf(directory))
	require.NoError(t, err)
	assert.Equal(t, stored, again)

	require.NoError(t, first.s.shutdown(t.Context()))
	second.run(300*joule, nil)
	assert.Equal(t, []string{"Degraded storage", "Recovered storage"}, slices.Compact(second.logged()))
	require.NoError(t, second.s.shutdown(t.Context()))
}

func TestAnEmbeddedReceiverRestoresModelsOfARunningCollector(t *testing.T) {
	directory := t.TempDir()
	n := fileNode(t, directory)
	n.run(300*joule, map[int]int64{1: 10})
	cfg := *n.s.cfg
	cfg.Storage = stateOf(directory)
	e, err := Embed(&cfg, EmbeddedOptions{Logger: n.s.set.Logger})
	require.NoError(t, err)
	e.scraper.now = n.host.Now
	require.NoError(t, e.Start(t.Context()))
	assert.Equal(t, n.s.state.Training.Trained.Zones["package"], e.scraper.state.Training.Trained.Zones["package"])
	before, err := os.Stat(stateOf(directory))
	require.NoError(t, err)
	n.host.Run(10*time.Second, map[int]int64{10: 500})
	require.NoError(t, n.host.Render())
	_, err = e.Collect(t.Context())
	require.NoError(t, err)
	require.NoError(t, e.Shutdown(t.Context()))
	after, err := os.Stat(stateOf(directory))
	require.NoError(t, err)
	assert.True(t, os.SameFile(before, after), "an embedded receiver stores nothing")
	assert.Empty(t, n.logged())
	require.NoError(t, n.s.shutdown(t.Context()))
}

func TestTheStateOfAnotherUserIsOneCondition(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can act as another user")
	}
	directory := t.TempDir()
	n := fileNode(t, directory)
	n.run(300*joule, nil)
	require.NoError(t, n.s.shutdown(t.Context()))
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	_, err := unix.SetfsuidRetUid(65534)
	require.NoError(t, err)
	_, readErr := state.ReadOnlyFile(stateOf(directory)).Get(t.Context(), state.Key)
	_, openErr := state.OpenFile(stateOf(directory))
	_, err = unix.SetfsuidRetUid(0)
	require.NoError(t, err)
	require.ErrorIs(t, readErr, fs.ErrPermission)
	require.ErrorIs(t, openErr, fs.ErrPermission)
}
