// SPDX-License-Identifier: Apache-2.0

package emissions

import (
	"context"
	"time"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/config/configoptional"
	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/processor"
	"go.opentelemetry.io/collector/processor/processorhelper"

	"github.com/energyreceiver/energyreceiver/processor/emissions/internal/metadata"
)

// NewFactory returns the factory of the emissions processor.
func NewFactory() processor.Factory {
	return processor.NewFactory(metadata.Type, createDefaultConfig,
		processor.WithMetrics(createMetrics, metadata.MetricsStability))
}

func createDefaultConfig() component.Config {
	return &Config{
		MetricsBuilderConfig: metadata.NewDefaultMetricsBuilderConfig(),
		Intensity:            configoptional.Default(createDefaultIntensity()),
		PUE:                  1,
		Embodied:             configoptional.Default(EmbodiedConfig{Share: 1}),
		MaxSeries:            50_000,
		MaxStaleness:         time.Hour,
	}
}

// createMetrics sends no requests: validating a configuration calls it too.
func createMetrics(ctx context.Context, set processor.Settings, cfg component.Config, next consumer.Metrics) (processor.Metrics, error) {
	p, err := newEmissionsProcessor(cfg.(*Config), set)
	if err != nil {
		return nil, err
	}
	return processorhelper.NewMetrics(ctx, set, cfg, next, p.process,
		processorhelper.WithStart(p.start), processorhelper.WithShutdown(p.shutdown),
		processorhelper.WithCapabilities(consumer.Capabilities{MutatesData: true}))
}
