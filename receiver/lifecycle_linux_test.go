// SPDX-License-Identifier: Apache-2.0

package energyreceiver

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/consumer/consumertest"
	"go.opentelemetry.io/collector/receiver/receivertest"
	"golang.org/x/sys/unix"

	"github.com/energyreceiver/energyreceiver/internal/test/hostsim"
	"github.com/energyreceiver/energyreceiver/receiver/internal/config"
	"github.com/energyreceiver/energyreceiver/receiver/internal/metadata"
)

func TestTheFactorysReceiverLeavesNothingOpen(t *testing.T) {
	host := hostsim.New(treeDir(t))
	host.Zones["intel-rapl:0"] = &hostsim.Zone{Name: "package-0", Max: 1e12}
	require.NoError(t, host.Render())
	for name, edit := range map[string]func(*Config){
		"auto": withMeter(config.LocalMeters...), "powercap": withMeter(config.MeterPowercap), "model": withMeter(),
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
				r, err := NewFactory().CreateMetrics(t.Context(), receivertest.NewNopSettings(metadata.Type), cfg, sink)
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

func TestDescriptorsDoNotGrowWithTheSwitchToTheSensor(t *testing.T) {
	n := newTestNode(t, withModel(10, 20))
	n.host.Zones["intel-rapl:0"].Content = "not yet\n"
	require.NoError(t, n.host.Render())
	before := descriptors(t)
	require.NoError(t, n.s.start(t.Context(), n))
	n.run(joule, map[int]int64{1: 100})
	n.host.Zones["intel-rapl:0"].Content = ""
	n.run(joule, map[int]int64{1: 100})
	n.run(joule, map[int]int64{1: 100})
	require.NotEmpty(t, n.points("hw.energy", attrs{"energy.method": "measured"}))
	require.NoError(t, n.s.shutdown(t.Context()))
	assert.LessOrEqual(t, descriptors(t), before)
}

func descriptors(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	require.NoError(t, err)
	return len(entries)
}

// watch returns a function that returns the files below a directory that were opened since.
func watch(t *testing.T, root string) func() []string {
	t.Helper()
	fd, err := unix.InotifyInit1(unix.IN_NONBLOCK | unix.IN_CLOEXEC)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, unix.Close(fd)) })
	var dirs []string
	require.NoError(t, filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() {
			dirs = append(dirs, path)
		}
		return err
	}))
	for _, dir := range dirs { // after the walk, which opens them
		_, err := unix.InotifyAddWatch(fd, dir, unix.IN_OPEN)
		require.NoError(t, err)
	}
	return func() []string {
		var opened []string
		buf := make([]byte, 64<<10)
		for {
			n, err := unix.Read(fd, buf)
			if errors.Is(err, unix.EAGAIN) {
				return opened
			}
			require.NoError(t, err)
			for b := buf[:n]; len(b) >= unix.SizeofInotifyEvent; {
				length := binary.NativeEndian.Uint32(b[unix.SizeofInotifyEvent-4:]) // of the name, the last field
				name := b[unix.SizeofInotifyEvent:][:length]
				opened = append(opened, string(bytes.TrimRight(name, "\x00")))
				b = b[unix.SizeofInotifyEvent+int(length):]
			}
		}
	}
}

func TestCreatingTheReceiverOpensNothing(t *testing.T) {
	n := newTestNode(t)
	require.NoError(t, n.host.Render())
	opened := watch(t, n.host.Root())
	before := descriptors(t)
	cfg := simpleConfig()
	cfg.RootPath = n.host.Root()
	set := receivertest.NewNopSettings(metadata.Type)
	r, err := NewFactory().CreateMetrics(t.Context(), set, cfg, consumertest.NewNop())
	require.NoError(t, err)
	assert.LessOrEqual(t, descriptors(t), before)
	require.NoError(t, r.Shutdown(t.Context()), "a collector may shut down what it never started")
	assert.Empty(t, n.logs.All())
	assert.Empty(t, opened())
}

func TestMeterModelNeverReadsPowercap(t *testing.T) {
	n := newTestNode(t, withMeter(), withModel(40, 120))
	n.start()
	n.host.Run(10*time.Second, map[int]int64{1: 1000})
	require.NoError(t, n.host.Render())
	sensor, proc := watch(t, filepath.Join(n.host.Root(), "sys")), watch(t, filepath.Join(n.host.Root(), "proc"))
	n.host.Uptime -= 10 * time.Second
	n.scrapeAsIs()
	assert.InDelta(t, 1200, n.one("process.energy", pid(1), "energy.method=modeled").value, 1e-5)
	assert.Empty(t, sensor())
	assert.Contains(t, proc(), "stat")
}
