// SPDX-License-Identifier: Apache-2.0

package meters

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"go.uber.org/zap"

	"github.com/energyreceiver/energyreceiver/internal/power"
)

// Without the rule a graphics card would be all that is attributed on a server whose only other meter is its BMC's.
func TestAGraphicsCardDoesNotKeepThePlatformFromStandingIn(t *testing.T) {
	zone := func(kind power.Kind) power.Reading {
		return power.Reading{Zone: &power.Zone{Kind: kind, Source: power.Measured}, At: time.Unix(1, 0)}
	}
	for _, tt := range []struct{ configured, read, attributed []power.Kind }{
		{[]power.Kind{power.Package, power.GPU}, []power.Kind{power.Platform, power.GPU}, []power.Kind{power.Platform, power.GPU}},
		{[]power.Kind{power.Package, power.GPU}, []power.Kind{power.PSys, power.GPU}, []power.Kind{power.PSys, power.GPU}},
		{[]power.Kind{power.Package}, []power.Kind{power.Platform, power.GPU}, []power.Kind{power.Platform}},
		{[]power.Kind{power.Package, power.GPU}, []power.Kind{power.Package, power.Platform, power.GPU}, []power.Kind{power.Package, power.GPU}},
		{[]power.Kind{power.Package, power.GPU}, []power.Kind{power.GPU}, []power.Kind{power.Package, power.GPU}},
	} {
		cfg := simpleConfig()
		cfg.Zones = tt.configured
		m := New(cfg, zap.NewNop())
		var readings []power.Reading
		for _, kind := range tt.read {
			readings = append(readings, zone(kind))
		}
		m.updateAttributed(readings)
		assert.Equal(t, tt.attributed, m.Attributed(), "%v of %v", tt.configured, tt.read)
	}
}
