// SPDX-License-Identifier: Apache-2.0

package energyreceiver

import (
	"context"
	"sync/atomic"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/receiver"
	"go.opentelemetry.io/collector/scraper"
	"go.opentelemetry.io/collector/scraper/scraperhelper"

	"github.com/energyreceiver/energyreceiver/receiver/internal/config"
	"github.com/energyreceiver/energyreceiver/receiver/internal/metadata"
)

// NewFactory returns the factory of the energy receiver.
func NewFactory() receiver.Factory {
	return receiver.NewFactory(metadata.Type, createDefaultConfig,
		receiver.WithMetrics(createMetrics, metadata.MetricsStability))
}

func createDefaultConfig() component.Config { return config.Default() }

// createMetrics touches nothing of the machine: validating a configuration calls it too.
func createMetrics(_ context.Context, set receiver.Settings, cfg component.Config, next consumer.Metrics) (receiver.Metrics, error) {
	s, err := newEnergyScraper(cfg.(*Config), set)
	if err != nil {
		return nil, err
	}
	m, err := scraper.NewMetrics(s.scrape, scraper.WithStart(s.startCollector), scraper.WithShutdown(s.shutdown))
	if err != nil {
		return nil, err
	}
	shut := new(atomic.Bool)
	s.output.next = nextConsumer{gate{next, shut}, s.delivered}
	controller, err := scraperhelper.NewMetricsController(&s.cfg.ControllerConfig, set, s.output.next,
		scraperhelper.AddMetricsScraper(metadata.Type, m))
	if err != nil {
		return nil, err
	}
	return promptReceiver{controller, s, shut}, nil
}
