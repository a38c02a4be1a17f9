// SPDX-License-Identifier: Apache-2.0

package energyreceiver

import (
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/consumer/consumertest"
	"go.opentelemetry.io/collector/receiver/receivertest"

	"github.com/energyreceiver/energyreceiver/internal/drivers"
	"github.com/energyreceiver/energyreceiver/internal/test/hostsim"
	"github.com/energyreceiver/energyreceiver/receiver/internal/machine"
	"github.com/energyreceiver/energyreceiver/receiver/internal/metadata"
	"github.com/energyreceiver/energyreceiver/receiver/internal/windows"
)

func TestTheFactorysReceiverLeavesNothingOpen(t *testing.T) {
	host := hostsim.New(treeDir(t))
	host.Zones["intel-rapl:0"] = &hostsim.Zone{Name: "package-0", Max: 1e12}
	require.NoError(t, host.Render())
	for name, edit := range map[string]func(*Config){
		"auto": withMeter(drivers.Local()...), "powercap": withMeter("powercap"), "model": withMeter(),
		"in short windows": func(c *Config) { c.Window = time.Second },
	} {
		t.Run(name, func(t *testing.T) {
			cfg := simpleConfig()
			cfg.RootPath = host.Root()
			withModel(10, 20)(cfg)
			edit(cfg)
			before := descriptors(t)
			synctest.Test(t, func(t *testing.T) { // fails if a goroutine remains
				sink := new(consumertest.MetricsSink)
				m := machine.Local()
				m.NewMetronome = windows.NewTicking // follows the clock of the bubble
				r, err := NewFactoryOn(m).CreateMetrics(t.Context(), receivertest.NewNopSettings(metadata.Type), cfg, sink)
				require.NoError(t, err)
				require.NoError(t, r.Start(t.Context(), componenttest.NewNopHost()))
				time.Sleep(35 * time.Second) // of the clock of the synctest bubble
				assert.Greater(t, descriptors(t), before, "the receiver is running")
				require.NoError(t, r.Shutdown(t.Context()))
				assert.Len(t, sink.AllMetrics(), 5, "at the start, at every interval and at the shutdown")
			})
			assert.LessOrEqual(t, descriptors(t), before)
		})
	}
}

func descriptors(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	require.NoError(t, err)
	return len(entries)
}
