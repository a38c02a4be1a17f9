// SPDX-License-Identifier: Apache-2.0

package energyreceiver

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/config/configoptional"
	"go.opentelemetry.io/collector/consumer/consumertest"
	"go.opentelemetry.io/collector/pipeline"
	"go.opentelemetry.io/collector/receiver/receivertest"

	"github.com/energyreceiver/energyreceiver/receiver/internal/config"
	"github.com/energyreceiver/energyreceiver/receiver/internal/metadata"
)

func TestFactoryCreatesAReceiverOfMetricsOnly(t *testing.T) {
	factory := NewFactory()
	set, cfg := receivertest.NewNopSettings(metadata.Type), factory.CreateDefaultConfig()
	r, err := factory.CreateMetrics(t.Context(), set, cfg, consumertest.NewNop())
	require.NoError(t, err)
	assert.NoError(t, r.Shutdown(t.Context()), "without a start")
	_, err = factory.CreateLogs(t.Context(), set, cfg, consumertest.NewNop())
	require.ErrorIs(t, err, pipeline.ErrSignalNotSupported)
	_, err = factory.CreateTraces(t.Context(), set, cfg, consumertest.NewNop())
	assert.ErrorIs(t, err, pipeline.ErrSignalNotSupported)
}

func TestAnInvalidPowerCurveIsRejectedAtStart(t *testing.T) {
	factory := NewFactory()
	cfg := factory.CreateDefaultConfig().(*Config)
	cfg.Model = configoptional.Some(config.ModelConfig{IdlePower: 120, MaxPower: 40})
	r, err := factory.CreateMetrics(t.Context(), receivertest.NewNopSettings(metadata.Type), cfg, consumertest.NewNop())
	require.NoError(t, err)
	require.ErrorContains(t, r.Start(t.Context(), componenttest.NewNopHost()), "open meter model: ")
	assert.NoError(t, r.Shutdown(t.Context()))
}
