// SPDX-License-Identifier: Apache-2.0

package energyreceiver

import (
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

	"github.com/energyreceiver/energyreceiver/receiver/internal/config"
	"github.com/energyreceiver/energyreceiver/receiver/internal/metadata"
	"github.com/energyreceiver/energyreceiver/receiver/internal/state"
	"github.com/energyreceiver/energyreceiver/receiver/internal/training"
)

// brokenStorage is a storage extension whose calls fail.
type brokenStorage struct {
	*memoryStorage
	open, get, set, remove error
}

func (s *brokenStorage) GetClient(context.Context, component.Kind, component.ID, string) (storage.Client, error) {
	return s, s.open
}

func (s *brokenStorage) Get(ctx context.Context, key string) ([]byte, error) {
	value, _ := s.memoryStorage.Get(ctx, key)
	return value, s.get
}

func (s *brokenStorage) Set(ctx context.Context, key string, value []byte) error {
	if s.set != nil {
		return s.set
	}
	return s.memoryStorage.Set(ctx, key, value)
}

func (s *brokenStorage) Delete(ctx context.Context, key string) error {
	if s.remove != nil {
		return s.remove
	}
	return s.memoryStorage.Delete(ctx, key)
}

func TestAFailingStorageExtensionIsOneConditionUntilItWorks(t *testing.T) {
	fails := errors.New("database not open")
	for name, c := range map[string]struct {
		s      brokenStorage
		logged []string
	}{
		"opening fails": {brokenStorage{open: fails}, []string{"Degraded storage", "Recovered storage"}},
		"reading fails": {brokenStorage{get: fails}, []string{"Degraded storage", "Recovered storage"}},
		"storing fails": {brokenStorage{set: fails}, []string{"Degraded storage", "Recovered storage"}},
		"nothing fails": {brokenStorage{}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			n, s := keptNode(t)
			c.s.memoryStorage = s
			n.extensions[storageID] = &c.s
			n.start()
			for range 3 {
				n.run(300*joule, map[int]int64{10: 500})
			}
			c.s.open, c.s.get, c.s.set = nil, nil, nil
			n.run(300*joule, map[int]int64{10: 500})
			assert.Equal(t, c.logged, slices.Compact(n.logged()), "a second error has another text")
			assert.InDelta(t, 1200, n.one("hw.energy").value, 1e-6)
			assert.NotEmpty(t, s.stored[state.Key])
			if c.logged != nil {
				assert.Equal(t, componentstatus.StatusRecoverableError, n.status[0].Status())
			}
		})
	}
}

// fileNode returns a node that stores its totals and a trained model in a directory.
func fileNode(t *testing.T, directory string) *testNode {
	n := sharedNode(t, func(c *config.AttributionConfig) { c.StaticPower = allStatic(config.StaticMinimum) })
	n.s.cfg.Storage = directory
	n.s.state.KernelClocks = n.kernelClocks
	require.NoError(t, n.s.cfg.Validate())
	require.NoError(t, n.host.Render())
	require.NoError(t, n.s.start(t.Context(), n))
	return n
}

// stateOf returns the path of the state file of test nodes.
func stateOf(directory string) string {
	return state.Path(directory, "energy")
}

func TestTotalsAndTrainedModelsAreRestoredFromADirectory(t *testing.T) {
	directory := filepath.Join(t.TempDir(), "lib", "otelcol-energy")
	n := fileNode(t, directory)
	n.run(300*joule, map[int]int64{1: 10})
	require.NoError(t, n.s.shutdown(t.Context()))
	info, err := os.Stat(directory)
	require.NoError(t, err)
	assert.Equal(t, fs.FileMode(0o700), info.Mode().Perm())
	written, err := os.ReadDir(directory)
	require.NoError(t, err)
	assert.Len(t, written, 2, "the state and its lock")
	info, err = os.Stat(stateOf(directory))
	require.NoError(t, err)
	assert.Equal(t, fs.FileMode(0o600), info.Mode())
	assert.Equal(t, []string{"No state stored: totals start at 0"}, n.messages())

	n.startAgain()
	n.run(600*joule, map[int]int64{10: 500})
	assert.Equal(t, []string{"Totals continue"}, n.messages())
	assert.True(t, n.trained())
	assert.InDelta(t, 900, n.one("hw.energy").value, 1e-6)
	require.NoError(t, n.s.shutdown(t.Context()))
}

func TestModelsAreRestoredWhereTotalsAreNot(t *testing.T) {
	directory := t.TempDir()
	n := fileNode(t, directory)
	n.run(300*joule, map[int]int64{1: 10})
	require.NoError(t, n.s.shutdown(t.Context()))
	n.host.Files[bootIDFile] = "second\n"
	clear(n.finals)
	n.startAgain()
	n.run(600*joule, map[int]int64{10: 500})
	assert.Equal(t, []string{"State of another boot: totals start at 0"}, n.messages())
	assert.True(t, n.trained())
	assert.InDelta(t, 600, n.one("hw.energy").value, 1e-6)
	require.NoError(t, n.s.shutdown(t.Context()))
}

func TestModelsOutliveAConfigurationThatTrainsNone(t *testing.T) {
	n, s := keptNode(t, func(c *Config) { c.Attribution.StaticPower = allStatic(config.StaticMinimum) })
	n.start()
	n.run(300*joule, map[int]int64{10: 10})
	trained := n.s.state.Training.Trained
	require.NotEmpty(t, trained.Zones)
	n.restart(func(c *Config) { c.Attribution.StaticPower = allStatic(config.StaticUtilization) })
	clear(n.finals)
	n.run(300*joule, map[int]int64{10: 10})
	var again training.Models
	require.NoError(t, state.Decode(s.stored[state.Key], &again, nil, state.Moment{}))
	assert.Equal(t, trained, again)
}

func TestReceiversOfOneDirectoryHaveFilesOfTheirOwn(t *testing.T) {
	for name, file := range map[string]string{
		"":              "/dir/energy.state",
		"rack 1":        "/dir/energy%2Frack%201.state",
		"../../etc/x":   "/dir/energy%2F..%2F..%2Fetc%2Fx.state",
		"%2F..":         "/dir/energy%2F%252F...state",
		"node.state.id": "/dir/energy%2Fnode.state.id.state",
	} {
		assert.Equal(t, filepath.FromSlash(file), state.Path("/dir", component.NewIDWithName(metadata.Type, name).String()))
	}
}
