// SPDX-License-Identifier: Apache-2.0

package meters

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/config/configoptional"
	"go.uber.org/zap"

	"github.com/energyreceiver/energyreceiver/internal/power"
	"github.com/energyreceiver/energyreceiver/receiver/internal/config"
)

// A graphics card does not keep it from that: it would be all that is attributed on a server whose only other meter is
// its BMC's.
func TestAZoneOfTheWholeMachineStandsInForAMissingPackage(t *testing.T) {
	zone := func(kind power.Kind) power.Reading {
		return power.Reading{Zone: &power.Zone{Kind: kind, Method: power.Measured}, At: time.Unix(1, 0)}
	}
	for _, tt := range []struct{ configured, read, attributed []power.Kind }{
		{[]power.Kind{power.Package, power.GPU}, []power.Kind{power.Platform, power.GPU}, []power.Kind{power.Platform, power.GPU}},
		{[]power.Kind{power.Package, power.GPU}, []power.Kind{power.PSys, power.GPU}, []power.Kind{power.PSys, power.GPU}},
		{[]power.Kind{power.Package}, []power.Kind{power.Platform, power.GPU}, []power.Kind{power.Platform}},
		{[]power.Kind{power.Package, power.GPU}, []power.Kind{power.Package, power.Platform, power.GPU}, []power.Kind{power.Package, power.GPU}},
		{[]power.Kind{power.Package, power.GPU}, []power.Kind{power.GPU}, []power.Kind{power.Package, power.GPU}},
		{[]power.Kind{power.Package}, []power.Kind{power.PSys}, []power.Kind{power.PSys}},
		{[]power.Kind{power.Package}, []power.Kind{power.PSys, power.Package}, []power.Kind{power.Package}},
		{[]power.Kind{power.Package}, []power.Kind{power.PSys, power.Platform}, []power.Kind{power.Platform}},
		{[]power.Kind{power.DRAM}, []power.Kind{power.PSys}, []power.Kind{power.DRAM}},
		{[]power.Kind{power.PSys, power.Package}, []power.Kind{power.PSys}, []power.Kind{power.PSys, power.Package}},
	} {
		cfg := simpleConfig()
		cfg.Zones = tt.configured
		m := New(cfg, zap.NewNop(), power.NewSet(), nil)
		var readings []power.Reading
		for _, kind := range tt.read {
			readings = append(readings, zone(kind))
		}
		m.updateAttributed(readings)
		assert.Equal(t, tt.attributed, m.Attributed(), "%v of %v", tt.configured, tt.read)
	}
}

// simpleConfig returns a configuration without a power model, with the rules of Kepler.
func simpleConfig() *config.Config {
	cfg := config.Default()
	cfg.Attribution.Preset, cfg.Model = config.PresetKepler, configoptional.None[config.ModelConfig]()
	return cfg
}

func write(t *testing.T, path, content string) {
	t.Helper()
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
	require.NoError(t, os.WriteFile(path, []byte(content), 0o600))
}

// cloudCPU is in the catalog.
const cloudCPU = "Intel(R) Xeon(R) Platinum 8259CL CPU @ 2.50GHz"
