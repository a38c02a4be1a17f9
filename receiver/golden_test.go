// SPDX-License-Identifier: Apache-2.0

package energyreceiver

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/open-telemetry/opentelemetry-collector-contrib/pkg/golden"
	"github.com/open-telemetry/opentelemetry-collector-contrib/pkg/pdatatest/pmetrictest"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component"
	"golang.org/x/tools/txtar"

	"github.com/energyreceiver/energyreceiver/internal/power"
	"github.com/energyreceiver/energyreceiver/internal/usage/cpu"
	"github.com/energyreceiver/energyreceiver/receiver/internal/config"
	"github.com/energyreceiver/energyreceiver/receiver/internal/config/configtest"
	"github.com/energyreceiver/energyreceiver/receiver/internal/emit/emittest"
	"github.com/energyreceiver/energyreceiver/receiver/internal/meters"
)

var update = flag.Bool("update", false, "write the expected metrics of the recorded hosts")

const hostsDir = "../testdata/hosts"

// recorded runs the receiver on a host of testdata (see the README there) and returns it after the
// last scrape. A host whose meter polls needs a synctest bubble.
func recorded(t *testing.T, name string, edit ...func(*Config)) *testNode {
	t.Helper()
	dir := filepath.Join(hostsDir, name)
	settings, err := os.ReadFile(filepath.Join(dir, "config.yaml"))
	require.NoError(t, err)
	n := newTestNode(t, func(c *Config) {
		root := c.RootPath
		c.Series = config.Default().Series
		configtest.Load(t, c, string(settings))
		c.RootPath = root
		if c.Meters.Powercap.Path != "" {
			c.Meters.Powercap.Path = filepath.Join(root, c.Meters.Powercap.Path)
		}
		for _, f := range edit {
			f(c)
		}
	})
	n.machine.Now = func() time.Time { return clockOf(t, n.host.Root()) }
	require.NoError(t, unpack(filepath.Join(dir, "0.txtar"), n.host.Root()))
	// In the synctest bubble: a guest's tree and sensors are polled.
	polls := n.cfg.Meters.Powercap.Path != "" || isDir(filepath.Join(n.host.Root(), "sys/class/hwmon"))
	if polls {
		n.machine.OpenMeters = openPolled
	}
	n.startAsIs()
	for i := 1; ; i++ {
		err := unpack(filepath.Join(dir, fmt.Sprint(i, ".txtar")), n.host.Root())
		if os.IsNotExist(err) && i > 1 {
			return n
		}
		require.NoError(t, err)
		if polls {
			time.Sleep(10 * time.Second)
			synctest.Wait()
		}
		n.md, err = n.s.scrape(t.Context())
		require.NoError(t, err)
		require.NoError(t, emittest.Duplicate(n.md))
		n.accept()
		n.balance()
	}
}

// openPolled opens the meters and waits for their first polls, so that the zones in the baseline do
// not depend on scheduling.
func openPolled(ctx context.Context, cfg *Config, host component.Host, settings component.TelemetrySettings) (*power.Set, error) {
	set, err := meters.Open(ctx, cfg, host, settings)
	if err == nil {
		set.Read(ctx, power.Sample{At: time.Now()})
		synctest.Wait()
	}
	return set, err
}

// removeAll removes a tree. Its files are emptied first, so that a descriptor of one has nothing to
// read, as that of a kernel's file.
func removeAll(root string) error {
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			err = os.Truncate(path, 0)
		}
		return err
	})
	return errors.Join(err, os.RemoveAll(root))
}

func isDir(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

// unpack applies an archive to a tree.
func unpack(archive, root string) error {
	a, err := txtar.ParseFile(archive)
	if err != nil {
		return err
	}
	for _, f := range a.Files {
		if !fs.ValidPath(f.Name) {
			return fmt.Errorf("%s: %s leads elsewhere", archive, f.Name)
		}
		name := filepath.Join(root, filepath.FromSlash(f.Name))
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			return err
		}
		target, isLink := bytes.CutPrefix(f.Data, []byte("-> "))
		switch {
		case string(f.Data) == "gone\n":
			err = removeAll(name)
		case isLink:
			if err = os.RemoveAll(name); err == nil {
				err = os.Symlink(strings.TrimSuffix(string(target), "\n"), name)
			}
		case path.Base(f.Name) == "cmdline":
			err = os.WriteFile(name, bytes.ReplaceAll(f.Data, []byte("\n"), []byte{0}), 0o600)
		default:
			err = os.WriteFile(name, f.Data, 0o600)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// clockOf returns the time of a tree according to its files.
func clockOf(t *testing.T, root string) time.Time {
	t.Helper()
	booted, err := cpu.BootTime(root)
	require.NoError(t, err)
	text, err := os.ReadFile(filepath.Join(root, "proc/uptime"))
	require.NoError(t, err)
	seconds, _, _ := strings.Cut(string(text), " ")
	uptime, err := time.ParseDuration(seconds + "s")
	require.NoError(t, err)
	return booted.Add(uptime)
}

func TestHosts(t *testing.T) {
	hosts, err := os.ReadDir(hostsDir)
	require.NoError(t, err)
	require.NotEmpty(t, hosts)
	for _, h := range hosts {
		inBubble(t, h.Name(), func(t *testing.T) {
			n := recorded(t, h.Name())
			file := filepath.Join(hostsDir, h.Name(), "expected.yaml")
			if *update {
				require.NoError(t, golden.WriteMetricsToFile(file, n.md, golden.SkipMetricTimestampNormalization()))
				require.NoError(t, os.Chmod(file, 0o644))
			}
			want, err := golden.ReadMetrics(file)
			require.NoError(t, err)
			// The order has no meaning. Everything else is compared, including timestamps.
			require.NoError(t, pmetrictest.CompareMetrics(want, n.md, pmetrictest.IgnoreResourceMetricsOrder(),
				pmetrictest.IgnoreMetricsOrder(), pmetrictest.IgnoreMetricDataPointsOrder()))
		})
	}
}

// inBubble runs a subtest in a synctest bubble.
func inBubble(t *testing.T, name string, test func(*testing.T)) {
	t.Run(name, func(t *testing.T) { synctest.Test(t, test) })
}

// Facts of the specification that the expected metrics must hold after every update.

func TestTwoSocketsAreOneNode(t *testing.T) {
	n := recorded(t, "two-sockets")
	first, second := n.one("hw.energy", "hw.id=intel-rapl:0").value, n.one("hw.energy", "hw.id=intel-rapl:1").value
	assert.InDelta(t, 812.345678+799, first, 1e-9)
	assert.InDelta(t, 640+641.000001, second, 1e-9, "across its range")
	sum := n.sum("system.energy", attrs{"energy.zone": "package"})
	assert.InDelta(t, first+second, sum, 1e-6)
	t.Attr("sockets", fmt.Sprintf("%.6f J of %.6f and %.6f J", sum, first, second))
	assert.Empty(t, n.points("hw.energy", nil, "hw.id=intel-rapl:0:1"), "not read at the last moment")
	assert.Len(t, n.points("hw.energy", attrs{"hw.name": "package-0"}), 1, "the memory-mapped registers repeat it")
	assert.Len(t, n.points("process.energy", attrs{"process.pid": "9001", "energy.zone": "package"}), 2, "a script, and a shell with its pid")
	assert.Len(t, n.points("process.energy", attrs{"process.pid": "4711", "energy.zone": "package"}), 2, "two programs of the batch job")
	assert.Contains(t, n.logged(), "Degraded energy zones")
}

func TestAPodHasTheEnergyOfItsContainers(t *testing.T) {
	n := recorded(t, "kubernetes")
	for uid, class := range map[string]string{
		"1f0c8a4e-7c1b-4f2e-9d3a-5b6c7d8e9f00": "Guaranteed",
		"2a1d9b5f-8d2c-403f-8e4b-6c7d8e9f0a11": "Burstable",
		"3b2eac60-9e3d-4140-9f5c-7d8e9fa0b122": "BestEffort",
		"667a97b4d1ee0b2845627f9cb9d6f3102d4a6784a1bedbf815324f6c89a6c3e0/5d40ce82-b05f-4362-b17e-9fa0b1c2d344": "Burstable", // kind's
	} {
		pod := n.one("k8s.pod.energy", "k8s.pod.uid="+uid, "k8s.pod.qos_class="+class).value
		assert.InDelta(t, pod, n.sum("container.energy", attrs{"k8s.pod.uid": uid}), 1e-6)
		assert.Positive(t, pod)
	}
	assert.Len(t, n.points("k8s.pod.energy", nil), 5, "and the job's final value")
	web := attrs{"k8s.pod.uid": "2a1d9b5f-8d2c-403f-8e4b-6c7d8e9f0a11"}
	assert.InDelta(t, 3+0.6-0.02, n.sum("container.cpu.time", web), 1e-9, "its children, less the rounding of its process's time")
	assert.InDelta(t, 0.35, n.one("container.cpu.time", "container.runtime.name=docker").value, 1e-9, "the pod of kind is not in kind's container")
}

func TestAGuestAttributesTheEnergyThatItsHypervisorReports(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := recorded(t, "guest")
		of := func(zone string) attrs { return attrs{"energy.zone": zone, "energy.method": "reported"} }
		assert.InDelta(t, 31.5, n.one("system.energy", "energy.zone=package", "energy.state=active", "energy.method=reported").value, 1e-9)
		assert.Zero(t, n.one("system.energy", "energy.zone=package", "energy.state=idle", "energy.method=reported").value)
		for zone, joules := range map[string]float64{"package": 31.5, "dram": 1.500001} {
			assert.InDelta(t, joules, n.sum("process.energy", of(zone))+n.sum("system.unattributed.energy", of(zone)), 1e-9, "to the microjoule")
		}
		assert.Len(t, n.points("system.energy", nil), 4, "nothing is measured or modeled")
		assert.InDelta(t, 61, n.one("hw.energy", "energy.zone=psys", "energy.method=reported").value, 1e-9, "its share of the whole host")
		assert.Positive(t, n.one("container.energy", "energy.zone=package").value)
		assert.Empty(t, n.logged())
		t.Attr("guest", fmt.Sprintf("%.6f J", n.sum("process.energy", of("package"))+n.sum("system.unattributed.energy", of("package"))))
	})
}

func TestTwoGraphicsCardsHaveUsersOfTheirOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := recorded(t, "two-gpus")
		// The power of the AMD card is integrated at 1 Hz, up to 50 ms before the end of the
		// interval: 60, 200, 220 and 120 W. The Intel card counts its energy.
		const amd, intel = 1923.5 + 2190 + 1250, 600 + 500.000123 + 300
		assert.InDelta(t, amd, n.one("hw.energy", "hw.vendor=AMD", "hw.type=gpu").value, 1e-9)
		assert.InDelta(t, intel, n.one("hw.energy", "hw.vendor=Intel", "hw.type=gpu").value, 1e-9)
		of := attrs{"energy.zone": "gpu"}
		active := n.one("system.energy", "energy.zone=gpu", "energy.state=active").value
		assert.InDelta(t, amd+intel, n.sum("system.energy", of), 1e-9)
		assert.InDelta(t, active, n.sum("process.energy", of)+n.sum("system.unattributed.energy", of), 1e-9, "to the microjoule")

		// The busiest engine class worked for 6.9, 7 and 2.8 of 10 s on one card, and for 7.5, 7.5
		// and 1 s on the other.
		assert.InDelta(t, 0.69*1923.5+0.7*2190+0.28*1250+0.75*1100.000123+0.1*300, active, 1e-5)
		shell := n.one("process.energy", pid(2100), "energy.zone=gpu").value
		assert.InDelta(t, 0.69*1923.5*0.9/7+0.7*2190/8+0.28*1250*0.8/3.3, shell, 1e-5, "no energy of the card that it only opened")
		assert.InDelta(t, 0.75*1100.000123+0.1*300, n.one("container.energy", "energy.zone=gpu").value, 1e-5)
		assert.InDelta(t, 0.25*1100.000123, n.one("process.energy", pid(4100), "energy.zone=gpu").value, 1e-5, "its own client")
		assert.Empty(t, n.logged())
	})
}
