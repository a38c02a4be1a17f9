// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/energyreceiver/energyreceiver/cmd/energy/internal/golden"
	"github.com/energyreceiver/energyreceiver/internal/test/hostsim"
	energyreceiver "github.com/energyreceiver/energyreceiver/receiver"
)

const podPath = "0::/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod6f9619ff_8b86_4011_b42d_00c04fc964ff.slice/cri-containerd-"

// aHost is a simulated machine with a process in a pod and one in a container.
func aHost(t *testing.T) *hostsim.Host {
	t.Helper()
	h := hostsim.New(t.TempDir())
	h.Processes[70] = &hostsim.Process{Comm: "go", Exe: "/usr/local/go/bin/go", Parent: 1}
	h.Processes[71] = &hostsim.Process{Comm: "web", Exe: "/web", Parent: 1, Cgroup: podPath + strings.Repeat("a1", 32) + ".scope"}
	h.Processes[72] = &hostsim.Process{Comm: "db", Exe: "/db", Parent: 1, Cgroup: "0::/system.slice/docker-" + strings.Repeat("b2", 32) + ".scope"}
	return h
}

func configOf(t *testing.T, h *hostsim.Host, model string) *energyreceiver.Config {
	t.Helper()
	cfg, _, err := localConfig(t.Context(), &options{model: model, interval: time.Second})
	require.NoError(t, err)
	cfg.RootPath, cfg.CPUTime = h.Root(), "procfs"
	return cfg
}

// tableOf returns what top shows of a host after it ran for the first window.
func tableOf(t *testing.T, h *hostsim.Host, cfg *energyreceiver.Config) (text string, err error) {
	t.Helper()
	require.NoError(t, h.Render())
	synctest.Test(t, func(t *testing.T) {
		go func() {
			time.Sleep(firstWindow / 2)
			h.Run(firstWindow, map[int]int64{70: 25, 71: 10, 72: 5})
			for _, z := range h.Zones {
				z.Energy += 12_000_000
			}
			assert.NoError(t, h.Render())
		}()
		o := onceOptions(defaultEndpoint)
		o.interval = time.Second
		var out bytes.Buffer
		err = follow(t.Context(), o, func(ctx context.Context, _ options) (*source, error) {
			s, err := openReceiver(ctx, cfg)
			if err == nil {
				s.first = firstWindow
			}
			return s, err
		}, &printer{options: o, to: &out})
		text = out.String()
	})
	return text, err
}

func TestTableOfThisMachine(t *testing.T) {
	for name, zones := range map[string]map[string]*hostsim.Zone{
		"local_measured": {"intel-rapl:0": {Name: "package-0", Max: 262_143_328_850, Energy: 5_000_000}},
		"local_modeled":  {},
	} {
		t.Run(name, func(t *testing.T) {
			h := aHost(t)
			maps.Copy(h.Zones, zones)
			got, err := tableOf(t, h, configOf(t, h, "auto"))
			require.NoError(t, err)
			host, _ := os.Hostname()
			got = strings.Replace(got, "  "+host+"  ", "  HOST  ", 1)
			golden.Equal(t, name+".golden", strings.ReplaceAll(got, h.Root(), ""))
		})
	}
}

func TestNoSensorAndNoModelIsAnError(t *testing.T) {
	h := aHost(t)
	_, err := tableOf(t, h, configOf(t, h, "none"))
	require.ErrorContains(t, err, "no figures from this machine")
	require.ErrorContains(t, err, "energy sensor:", "what the receiver says of it")
	require.ErrorContains(t, err, "--model auto")
}

func TestAnEndpointThatWasGivenIsNotReplaced(t *testing.T) {
	endpoint := "http://" + freeAddress(t) + "/metrics"
	o, err := parsed[options]([]string{"--once", "--wait", "0", "--endpoint", endpoint})
	require.NoError(t, err)
	require.ErrorContains(t, run(t.Context(), o, &bytes.Buffer{}), "no process listens on 127.")

	o.given = false // as if it were the default
	require.NoError(t, run(t.Context(), o, &bytes.Buffer{}))
}

func TestConfigurationOfATable(t *testing.T) {
	file := filepath.Join(t.TempDir(), "config.yaml")
	require.NoError(t, os.WriteFile(file, []byte("energy: {series: {processes: {max: 7}}, model: auto, meters: {gpu: {extensions: [nvml]}}}"), 0o600))
	for name, tt := range map[string]struct {
		options
		max   int
		model bool
	}{
		"nothing said":          {options{}, 500, true},
		"no model":              {options{model: "none"}, 500, false},
		"a file":                {options{config: file}, 7, true},
		"a file without model":  {options{config: file, model: "none"}, 7, false},
		"the powers of a model": {options{model: "35-120"}, 500, true},
	} {
		t.Run(name, func(t *testing.T) {
			tt.interval = time.Second
			cfg, without, err := localConfig(t.Context(), &tt.options)
			require.NoError(t, err)
			assert.Equal(t, tt.max, cfg.Series.Processes.Max)
			assert.Equal(t, tt.model, cfg.Model.HasValue())
			assert.Equal(t, tt.config != "", slices.Contains(without, "meters::gpu::extensions"))
			assert.Equal(t, time.Second, cfg.CollectionInterval)
		})
	}
	_, _, err := localConfig(t.Context(), &options{model: "nope", interval: time.Second})
	require.ErrorContains(t, err, "--model")
}
