// SPDX-License-Identifier: Apache-2.0

package energyreceiver

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/component/componentstatus"
	"go.opentelemetry.io/collector/extension/xextension/storage"
)

// brokenStorage is a storage extension whose calls fail.
type brokenStorage struct {
	*memoryStorage
	open, get, set func() error
}

func (s *brokenStorage) GetClient(context.Context, component.Kind, component.ID, string) (storage.Client, error) {
	return s, s.open()
}

func (s *brokenStorage) Get(ctx context.Context, key string) ([]byte, error) {
	value, _ := s.memoryStorage.Get(ctx, key)
	return value, s.get()
}

func (s *brokenStorage) Set(ctx context.Context, key string, value []byte) error {
	return errors.Join(s.memoryStorage.Set(ctx, key, value), s.set())
}

// learner is a node whose static power model learns and is stored. It runs long enough to store the model twice.
func learner(t *testing.T, edit func(*testNode)) *testNode {
	n := sharedNode(t, func(c *AttributionConfig) { c.Split = SplitMinimum })
	edit(n)
	require.NoError(t, n.s.cfg.Validate())
	require.NoError(t, n.host.Render())
	require.NoError(t, n.s.start(t.Context(), n))
	for range 62 {
		n.run(300*joule, map[int]int64{1: 10})
		require.InDelta(t, 30, n.sum("system.power", nil), 1e-6)
	}
	return n
}

func TestABrokenStorageExtensionLosesOnlyTheLearnedModel(t *testing.T) {
	fine := func() error { return nil }
	fails := func() error { return errors.New("database not open") }
	panics := func() error { panic("page 4 already freed") }
	const degraded, recovered = "Degraded storage", "Recovered storage"
	for name, c := range map[string]struct {
		s      brokenStorage
		logged []string
		last   componentstatus.Status
	}{
		"opening fails":   {brokenStorage{nil, fails, fine, fine}, []string{degraded}, componentstatus.StatusRecoverableError},
		"opening panics":  {brokenStorage{nil, panics, fine, fine}, []string{degraded}, componentstatus.StatusRecoverableError},
		"reading fails":   {brokenStorage{nil, fine, fails, fine}, []string{degraded, recovered}, componentstatus.StatusOK},
		"reading panics":  {brokenStorage{nil, fine, panics, fine}, []string{degraded}, componentstatus.StatusRecoverableError},
		"storing fails":   {brokenStorage{nil, fine, fine, fails}, []string{degraded}, componentstatus.StatusRecoverableError},
		"storing panics":  {brokenStorage{nil, fine, fine, panics}, []string{degraded}, componentstatus.StatusRecoverableError},
		"nothing is done": {brokenStorage{nil, fine, fine, fine}, nil, componentstatus.StatusOK},
	} {
		t.Run(name, func(t *testing.T) {
			c.s.memoryStorage = &memoryStorage{stored: map[string][]byte{}}
			n := learner(t, func(n *testNode) {
				n.s.cfg.Storage = &storageID
				n.extensions = map[component.ID]component.Component{storageID: &c.s}
			})
			// A storage that cannot be opened can be neither read nor written: one condition with two texts.
			assert.Equal(t, c.logged, slices.Compact(n.logged()))
			if c.logged != nil {
				assert.Equal(t, c.last, n.status[len(n.status)-1].Status())
			}
			require.NoError(t, n.s.shutdown(t.Context()))
		})
	}
}

func TestAStorageExtensionThatPanickedIsNotUsedAgain(t *testing.T) {
	s := &brokenStorage{memoryStorage: &memoryStorage{stored: map[string][]byte{}}}
	s.open, s.get = func() error { return nil }, func() error { return nil }
	sets := 0
	s.set = func() error { sets++; panic("assertion failed") }
	n := learner(t, func(n *testNode) {
		n.s.cfg.Storage = &storageID
		n.extensions = map[component.ID]component.Component{storageID: s}
	})
	require.NoError(t, n.s.shutdown(t.Context()))
	assert.Equal(t, 1, sets)
	assert.Zero(t, s.closed, "the extension may hold a lock")
	assert.Equal(t, []string{"Degraded storage"}, n.logged())
}

func TestStorageIsOpenedAgainOnceItCanBe(t *testing.T) {
	tries := 0
	s := &brokenStorage{memoryStorage: &memoryStorage{stored: map[string][]byte{}}}
	s.get, s.set = func() error { return nil }, func() error { return nil }
	s.open = func() error {
		if tries++; tries == 1 {
			return fs.ErrPermission
		}
		return nil
	}
	n := learner(t, func(n *testNode) {
		n.s.cfg.Storage = &storageID
		n.extensions = map[component.ID]component.Component{storageID: s}
	})
	assert.Equal(t, []string{"Degraded storage", "Recovered storage"}, n.logged())
	assert.Equal(t, 2, s.sets)
	require.NoError(t, n.s.shutdown(t.Context()))
}

// inFile makes a node keep its learned model in a file.
func inFile(file string) func(*testNode) {
	return func(n *testNode) { n.s.cfg.Attribution.StateFile = file }
}

func TestALearnedModelSurvivesARestartInAFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "learned")
	n := learner(t, inFile(file))
	require.NoError(t, n.s.shutdown(t.Context()))
	assert.Empty(t, n.logged())
	written, err := os.ReadDir(filepath.Dir(file))
	require.NoError(t, err)
	assert.Len(t, written, 1, "nothing temporary is left")
	info, err := os.Stat(file)
	require.NoError(t, err)
	assert.Equal(t, fs.FileMode(0o600), info.Mode())

	again := sharedNode(t, func(c *AttributionConfig) { c.Split = SplitMinimum })
	inFile(file)(again)
	again.start()
	again.run(600*joule, map[int]int64{10: 500})
	assert.InDelta(t, 1, again.one("system.energy.split.learned").value, 0)
	assert.Empty(t, again.logged())
}

// TestABrokenStateFileLosesOnlyTheLearnedModel also checks that the file is replaced when the model is stored next.
func TestABrokenStateFileLosesOnlyTheLearnedModel(t *testing.T) {
	file := filepath.Join(t.TempDir(), "learned")
	require.NoError(t, learner(t, inFile(file)).s.shutdown(t.Context()))
	good, err := os.ReadFile(file)
	require.NoError(t, err)
	flipped := func(i int) []byte {
		bad := append([]byte{}, good...)
		bad[i] ^= 1
		return bad
	}
	for name, content := range map[string][]byte{
		"random bytes":              []byte("\x8a\x01\xff{\"Hardware\":\x00\n"),
		"a bit of the checksum":     flipped(0),
		"a digit of a number":       flipped(len(good) - 12),
		"a bit in the middle":       flipped(len(good) / 2),
		"the second half lost":      good[:len(good)/2],
		"JSON that is something":    seal([]byte("[1,2]")),
		"nothing, as after a crash": {},
	} {
		require.NoError(t, os.WriteFile(file, content, 0o600))
		n := learner(t, inFile(file))
		assert.Equal(t, []string{"Degraded learned static power", "Recovered learned static power"}, n.logged(), name)
		assert.Equal(t, componentstatus.StatusRecoverableError, n.status[0].Status(), name)
		assert.ErrorContains(t, n.status[0].Err(), "attribution::state_file: what was learned of the static power cannot be read", name)
		require.NoError(t, n.s.shutdown(t.Context()))
	}
}

func TestAnUnwritableStateFileLosesOnlyTheLearnedModel(t *testing.T) {
	for name, file := range unwritable(t) {
		n := learner(t, inFile(file))
		logged := n.logged()
		assert.Contains(t, logged, "Degraded learned static power", name)
		assert.NotContains(t, logged, "Recovered learned static power", name)
		assert.LessOrEqual(t, len(logged), 2, "%s: once for reading, once for storing", name)
		assert.Equal(t, componentstatus.StatusRecoverableError, n.status[len(n.status)-1].Status(), name)
		require.NoError(t, n.s.shutdown(t.Context()), name)
	}
}

func TestAMissingDirectoryOfTheStateFileIsReportedAtStart(t *testing.T) {
	n := sharedNode(t, func(c *AttributionConfig) {
		c.Split, c.StateFile = SplitMinimum, filepath.Join(t.TempDir(), "missing", "learned")
	})
	n.start()
	assert.Equal(t, []string{"Degraded learned static power"}, n.logged())
	assert.ErrorContains(t, n.status[0].Err(), "no such file or directory")
	require.NoError(t, n.s.shutdown(t.Context()))
}

// FuzzStateFile starts the receiver with arbitrary content in its state file.
func FuzzStateFile(f *testing.F) {
	f.Add([]byte("00000000\n{}"))
	f.Add(seal([]byte(`{"Hardware":["x"],"Zones":{"package":{"Rule":"minimum 0.05"}}}`)))
	f.Add(bytes.Repeat([]byte("9"), maxState+1))
	f.Fuzz(func(t *testing.T, content []byte) {
		file := filepath.Join(t.TempDir(), "learned")
		require.NoError(t, os.WriteFile(file, content, 0o600))
		n := sharedNode(t, func(c *AttributionConfig) { c.Split, c.StateFile = SplitMinimum, file })
		n.start()
		n.run(300*joule, map[int]int64{1: 10})
		require.InDelta(t, 30, n.sum("system.power", nil), 1e-6)
	})
}
