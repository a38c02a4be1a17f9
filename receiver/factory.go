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

	"github.com/energyreceiver/energyreceiver/receiver/internal/attributor"
	"github.com/energyreceiver/energyreceiver/receiver/internal/config"
	"github.com/energyreceiver/energyreceiver/receiver/internal/machine"
	"github.com/energyreceiver/energyreceiver/receiver/internal/metadata"
)

// NewFactory returns the factory of the energy receiver.
func NewFactory() receiver.Factory { return NewFactoryOn(machine.Local()) }

// NewFactoryOn returns the factory of receivers that measure a machine. Only packages of this
// module, such as simulators, can name the type.
func NewFactoryOn(m machine.Machine) receiver.Factory {
	return receiver.NewFactory(metadata.Type, createDefaultConfig,
		receiver.WithMetrics(createMetricsOn(m), metadata.MetricsStability))
}

func createDefaultConfig() component.Config { return config.Default() }

// createMetricsOn returns the constructor of receivers that measure a machine. The constructor does
// not access the machine, because it is also called to validate a configuration.
func createMetricsOn(m machine.Machine) receiver.CreateMetricsFunc {
	return func(_ context.Context, set receiver.Settings, cfg component.Config, next consumer.Metrics) (receiver.Metrics, error) {
		s, err := newEnergyScraper(cfg.(*Config), set, m, attributor.Embedded{})
		if err != nil {
			return nil, err
		}
		return newReceiver(s, next)
	}
}

// newReceiver returns the receiver of a scraper.
func newReceiver(s *energyScraper, next consumer.Metrics) (receiver.Metrics, error) {
	m, err := scraper.NewMetrics(s.scrape, scraper.WithStart(s.startCollector), scraper.WithShutdown(s.shutdown))
	if err != nil {
		return nil, err
	}
	shut := new(atomic.Bool)
	s.output.next = nextConsumer{gate{next, shut}, s.delivered}
	controller, err := scraperhelper.NewMetricsController(&s.cfg.ControllerConfig, s.set, s.output.next,
		scraperhelper.AddMetricsScraper(metadata.Type, m))
	if err != nil {
		return nil, err
	}
	return promptReceiver{controller, s, shut}, nil
}
