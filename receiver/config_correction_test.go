// SPDX-License-Identifier: Apache-2.0

package energyreceiver

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/energyreceiver/energyreceiver/internal/power"
	"github.com/energyreceiver/energyreceiver/receiver/internal/metadatatest"
)

// The BMC shows 100 W of 122 W.
func TestACorrectionIsAppliedLoggedAndCounted(t *testing.T) {
	n, tel := observedNode(t, func(cfg *Config) {
		cfg.Zones = []power.Kind{power.Platform}
		cfg.Meters.IPMI.Factor, cfg.Meters.IPMI.Offset = 1.25, -3
	})
	m := newPolledMeter(n, 5*time.Second, 0, 100)
	n.start()
	for range 10 {
		m.pass(10*time.Second, map[int]int64{1: 500})
		n.scrape()
	}
	assert.InDelta(t, 12_200, n.one("hw.host.energy").value, 1e-6)
	assert.InDelta(t, 12_200, n.sum("system.energy", nil), 1e-6)
	assert.InDelta(t, 122, n.one("hw.host.power").value, 1e-6)
	metadatatest.AssertEqualReceiverEnergyZoneFactor(t, tel, []metricdata.DataPoint[float64]{observed(1.25, "hw.id", "bmc")}, whenever)
	logged := n.logs.FilterMessage("Meter corrected").All()
	require.Len(t, logged, 1)
	assert.Equal(t, map[string]any{"meter": "ipmi", "zone": "bmc", "lag": time.Duration(0), "factor": 1.25, "offset": -3.0}, logged[0].ContextMap())
	assert.Empty(t, n.logged())
}
