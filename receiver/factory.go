// SPDX-License-Identifier: Apache-2.0

package energyreceiver

import (
	"context"
	"slices"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/config/configoptional"
	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/receiver"
	"go.opentelemetry.io/collector/scraper"
	"go.opentelemetry.io/collector/scraper/scraperhelper"

	"github.com/energyreceiver/energyreceiver/internal/power"
	"github.com/energyreceiver/energyreceiver/internal/usage/cpu"
	"github.com/energyreceiver/energyreceiver/receiver/internal/metadata"
)

// NewFactory returns the factory of the energy receiver.
func NewFactory() receiver.Factory {
	return receiver.NewFactory(metadata.Type, createDefaultConfig,
		receiver.WithMetrics(createMetrics, metadata.MetricsStability))
}

func createDefaultConfig() component.Config {
	controller := scraperhelper.NewDefaultControllerConfig()
	controller.CollectionInterval = 10 * time.Second
	return &Config{
		ControllerConfig:     controller,
		MetricsBuilderConfig: metadata.NewDefaultMetricsBuilderConfig(),
		RootPath:             "/",
		Zones:                []power.Kind{power.Package, power.DRAM, power.GPU},
		Meters: MetersConfig{
			Use:     slices.Clone(localMeters),
			Hwmon:   HwmonConfig{CorrectionConfig: uncorrected},
			IPMI:    IPMIConfig{PollConfig: PollConfig{PollInterval: minIPMIInterval}, CorrectionConfig: uncorrected},
			GPU:     GPUConfig{PollConfig: PollConfig{PollInterval: defaultGPUInterval}},
			Redfish: configoptional.Default(defaultRedfishConfig()),
		},
		Model:   configoptional.Some(defaultModelConfig()),
		CPUTime: cpu.Auto,
		Series: SeriesConfig{
			Processes:  ProcessSeriesConfig{Max: defaultMaxProcesses, MinEnergy: defaultMinEnergy, minAge: defaultMinAge},
			Containers: EntitySeriesConfig{Max: 2000},
			Pods:       EntitySeriesConfig{Max: 1000},
			VMs:        EntitySeriesConfig{Max: 500},
		},
	}
}

// createMetrics touches nothing of the machine: validating a configuration calls it too.
func createMetrics(_ context.Context, set receiver.Settings, cfg component.Config, next consumer.Metrics) (receiver.Metrics, error) {
	s, err := newEnergyScraper(cfg.(*Config), set)
	if err != nil {
		return nil, err
	}
	m, err := scraper.NewMetrics(s.scrape, scraper.WithStart(s.start), scraper.WithShutdown(s.shutdown))
	if err != nil {
		return nil, err
	}
	shut := new(atomic.Bool)
	s.next = nextConsumer{gate{next, shut}, s.delivered}
	controller, err := scraperhelper.NewMetricsController(&s.cfg.ControllerConfig, set, s.next,
		scraperhelper.AddMetricsScraper(metadata.Type, m))
	if err != nil {
		return nil, err
	}
	return promptReceiver{controller, s, shut}, nil
}
