// SPDX-License-Identifier: Apache-2.0

//go:build linux

package energyguests

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/confmap"
	"go.opentelemetry.io/collector/extension/extensiontest"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/energyreceiver/energyreceiver/extension/energyguests/internal/metadata"
	"github.com/energyreceiver/energyreceiver/feed"
)

func TestConfig(t *testing.T) {
	for conf, want := range map[string]string{
		"":                          "path: must be set if vsock is not",
		"path: trees":               `path: must be an absolute path, is "trees"`,
		"path: /trees":              "",
		"vsock: {port: 9480}":       "",
		"vsock: {}":                 "vsock::port: must be set to a port between 1 and 4294967294",
		"vsock: {port: 4294967295}": "vsock::port: must be between 1 and 4294967294, is 4294967295",
		"{path: /trees, vsock: {port: 1}, receiver: energy/2}": "",
	} {
		cfg := createDefaultConfig().(*Config)
		retrieved, err := confmap.NewRetrievedFromYAML([]byte(conf))
		require.NoError(t, err)
		m, err := retrieved.AsConf()
		require.NoError(t, err)
		require.NoError(t, m.Unmarshal(cfg))
		if err := cfg.Validate(); want == "" {
			assert.NoError(t, err, conf)
		} else {
			assert.EqualError(t, err, want)
		}
	}
}

// host is an extension with the feed of a receiver that no one runs.
type host struct {
	*guests
	t    *testing.T
	logs *observer.ObservedLogs
	at   time.Time
}

func newHost(t *testing.T, cfg *Config, listen func(uint32) (net.Listener, error)) *host {
	cfg.Receiver = component.NewIDWithName(component.MustNewType("energy"), t.Name())
	set := extensiontest.NewNopSettings(metadata.Type)
	core, logs := observer.New(zap.InfoLevel)
	set.Logger = zap.New(core)
	h := &host{guests: newGuests(cfg, set), t: t, logs: logs, at: time.Now()}
	h.listen = listen
	require.NoError(t, h.Start(t.Context(), nil))
	return h
}

// collects ends a collection with these machines, in zones package (measured and modeled) and dram, which is not read.
func (h *host) collects(vms ...feed.VM) {
	h.at = h.at.Add(10 * time.Second)
	for i := range vms {
		vms[i].Start = h.at.Truncate(24 * time.Hour)
		vms[i].Present = []bool{true, false, false}
	}
	feed.Of(h.cfg.Receiver).Begin()
	feed.Of(h.cfg.Receiver).Publish(&feed.Window{
		End: h.at, EndsCollection: true, VMs: vms,
		Kinds: []feed.Kind{{Zone: "package", Method: "measured"}, {Zone: "package", Method: "modeled"}, {Zone: "dram", Method: "measured"}},
	})
	feed.Of(h.cfg.Receiver).Publish(&feed.Window{End: h.at.Add(time.Second)}) // it ends no collection
	synctest.Wait()
}

func (h *host) logged() (messages []string) {
	for _, e := range h.logs.All() {
		messages = append(messages, e.Message)
	}
	return messages
}

func TestATreeHasAMachinesEnergyByAllMethods(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		h := newHost(t, &Config{Path: dir}, nil)
		h.collects(feed.VM{ID: "a", Name: "web", Energy: []uint64{300, 40, 0}}, feed.VM{ID: "b", Energy: []uint64{5, 0, 0}})
		h.collects(feed.VM{ID: "a", Name: "web", Energy: []uint64{400, 40, 0}, Ended: true})
		require.NoError(t, h.Shutdown(t.Context()))
		for tree, want := range map[string]string{"web": "440", "b": "5"} {
			energy, err := os.ReadFile(filepath.Join(dir, tree, "intel-rapl:0", "energy_uj"))
			require.NoError(t, err)
			assert.Equal(t, want, strings.TrimSpace(string(energy)))
			assert.NoDirExists(t, filepath.Join(dir, tree, "intel-rapl:0", "intel-rapl:0:0"), "dram is not read")
		}
		feed.Of(h.cfg.Receiver).Publish(&feed.Window{EndsCollection: true}) // the extension has closed its feed
		assert.Empty(t, h.logged())
	})
}

func TestAReceiverThatDoesNotRunIsAnError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHost(t, &Config{Path: t.TempDir()}, nil)
		assert.EqualError(t, h.Ready(),
			`receiver: "energy/TestAReceiverThatDoesNotRunIsAnError" is not an energy receiver in a pipeline of this collector`)
		feed.Of(h.cfg.Receiver).Serve(func(context.Context) {})
		assert.NoError(t, h.Ready())
		require.NoError(t, h.Shutdown(t.Context()))
	})
}

func TestWhatKeepsMachinesFromTheirEnergyIsReportedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := filepath.Join(t.TempDir(), "file")
		require.NoError(t, os.WriteFile(dir, nil, 0o600))
		cfg := &Config{Path: dir}
		cfg.Vsock.GetOrInsertDefault().Port = 9480
		h := newHost(t, cfg, func(uint32) (net.Listener, error) { return nil, errors.New("no vsock") })
		for range 3 {
			h.collects(feed.VM{ID: "a", Energy: []uint64{1, 0, 0}})
		}
		assert.ErrorContains(t, h.conditions.Err("trees"), dir+": not a directory")
		assert.EqualError(t, h.conditions.Err("vsock"), "vsock port 9480: no vsock")
		assert.Len(t, h.logged(), 2)
		require.NoError(t, os.Remove(dir))
		h.collects(feed.VM{ID: "a", Energy: []uint64{2, 0, 0}})
		h.collects(feed.VM{ID: "a", Energy: []uint64{3, 0, 0}})
		assert.NoError(t, h.conditions.Err("trees"), "it is written now")
		require.NoError(t, h.Shutdown(t.Context()))
	})
}
