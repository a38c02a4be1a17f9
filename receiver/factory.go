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
	"github.com/energyreceiver/energyreceiver/internal/workload"
	"github.com/energyreceiver/energyreceiver/receiver/internal/metadata"
)

// NewFactory returns the factory of the energy receiver.
func NewFactory() receiver.Factory {
	return receiver.NewFactory(metadata.Type, createDefaultConfig,
		receiver.WithMetrics(createMetrics, metadata.MetricsStability))
}

// initialDelay is the time from the baseline to the first collection: some updates of a RAPL counter, which come every millisecond.
// The pipeline is started before its receivers, so it is not waited for.
const initialDelay = 50 * time.Millisecond

func createDefaultConfig() component.Config {
	controller := scraperhelper.NewDefaultControllerConfig()
	controller.CollectionInterval = 10 * time.Second
	controller.InitialDelay = initialDelay
	return &Config{
		ControllerConfig:     controller,
		MetricsBuilderConfig: metadata.NewDefaultMetricsBuilderConfig(),
		RootPath:             "/",
		Meter:                MeterAuto,
		IPMI:                 IPMIConfig{Interval: minIPMIInterval},
		Zones:                []power.Kind{power.Package, power.DRAM, power.GPU},
		Phases:               configoptional.Default(PhasesConfig{Max: defaultMaxPhases}),
		GPU:                  GPUConfig{Interval: defaultGPUInterval},
		CPUTime:              cpu.Auto,
		Processes:            ProcessesConfig{SeriesConfig: SeriesConfig{MinEnergy: 1, Max: defaultMaxProcesses}},
		Containers:           SeriesConfig{Max: 2000},
		Pods:                 SeriesConfig{Max: 1000},
		VMs:                  SeriesConfig{Max: 500},
		ZeroPoints:           true,
		Names:                NamesConfig{From: slices.Clone(workload.NameSources)},
		Attribution:          defaultAttribution(),
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
