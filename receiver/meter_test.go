// SPDX-License-Identifier: Apache-2.0

package energyreceiver

import (
	"context"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component"

	"github.com/energyreceiver/energyreceiver/internal/kernfs"
	"github.com/energyreceiver/energyreceiver/internal/power"
	"github.com/energyreceiver/energyreceiver/receiver/internal/meters"
)

// hwmon sets the energy counters of a POWER9 chip, by label.
func (n *testNode) hwmon(counters map[string]uint64) {
	n.t.Helper()
	dir := filepath.Join(n.host.Root(), "sys/class/hwmon/hwmon0")
	require.NoError(n.t, os.MkdirAll(dir, 0o700))
	write := func(name, text string) {
		require.NoError(n.t, os.WriteFile(filepath.Join(dir, name), []byte(text+"\n"), 0o600))
	}
	write("name", "ibmpowernv")
	for i, label := range []string{"Chip 0", "Chip 0 Memory", "System"} {
		if energy, ok := counters[label]; ok {
			write("energy"+strconv.Itoa(i+1)+"_label", label)
			write("energy"+strconv.Itoa(i+1)+"_input", strconv.FormatUint(energy, 10))
		}
	}
}

// The zone of hwmon that has ended does not halve the static power of the one that powercap reads instead.
func TestAZoneOfAPreferredMeterHasTheWholeStaticPowerOfItsKind(t *testing.T) {
	n := newTestNode(t, func(c *Config) {
		c.Attribution.StaticPower = fixedPower(map[power.Kind]float64{power.Package: 10, power.DRAM: 0})
	})
	zone := n.host.Zones["intel-rapl:0"]
	delete(n.host.Zones, "intel-rapl:0")
	n.hwmon(map[string]uint64{"Chip 0": 5 * joule})
	n.start()
	n.hwmon(map[string]uint64{"Chip 0": 505 * joule})
	n.run(0, map[int]int64{1: 500})
	assert.InDelta(t, 100, n.one("system.energy", "energy.zone=package", "energy.state=idle").value, 1e-6)
	n.host.Zones["intel-rapl:0"] = zone
	n.run(0, map[int]int64{1: 500}) // the baseline
	n.run(500*joule, map[int]int64{1: 500})
	assert.InDelta(t, 200, n.one("system.energy", "energy.zone=package", "energy.state=idle").value, 1e-6)
	assert.InDelta(t, 800, n.one("system.energy", "energy.zone=package", "energy.state=active").value, 1e-6)
}

func TestAPermissionIsMissedOnlyForAMeterThatWouldBeUsed(t *testing.T) {
	for name, c := range map[string]struct {
		rapl bool
		want []string
	}{
		"of no use beside powercap": {true, nil},
		"that a model replaces":     {false, []string{"Degraded energy sensor"}},
	} {
		t.Run(name, func(t *testing.T) {
			n := newTestNode(t, withModel(40, 120))
			if !c.rapl {
				delete(n.host.Zones, "intel-rapl:0")
			}
			n.hwmon(map[string]uint64{"Chip 0": 5 * joule})
			require.NoError(t, n.host.Render())
			defer kernfs.InjectFaults(func(path string, got []byte, err error) ([]byte, error) {
				if strings.HasSuffix(path, "_label") {
					return nil, fs.ErrPermission
				}
				return got, err
			})()
			n.start()
			n.run(10*joule, map[int]int64{1: 1000})
			assert.Equal(t, c.want, n.logged())
			if c.want != nil {
				assert.ErrorContains(t, n.status[0].Err(), "CAP_DAC_READ_SEARCH")
			}
		})
	}
}

func TestABMCIsNotAskedForWhatAPreferredMeterReads(t *testing.T) {
	n := newTestNode(t)
	set, err := meters.Open(t.Context(), n.cfg, n, n.set.TelemetrySettings)
	require.NoError(t, err)
	defer func() { require.NoError(t, set.Close()) }()
	only := map[string]power.Kind{}
	for _, meter := range set.Status() {
		only[meter.Name] = meter.Only
	}
	assert.Equal(t, power.Platform, only["ipmi"])
	assert.Empty(t, only["hwmon"])
}

// fakeMeter returns what the test sets.
type fakeMeter struct {
	readings []power.Reading
	err      error
}

func (m *fakeMeter) Read(context.Context, power.Sample) ([]power.Reading, error) {
	return m.readings, m.err
}

func (*fakeMeter) Close() error { return nil }

var plugID = component.MustNewIDWithName("http", "a")
