// SPDX-License-Identifier: Apache-2.0

package config

import (
	"cmp"
	"slices"
	"time"

	"go.opentelemetry.io/collector/config/configoptional"
	"go.opentelemetry.io/collector/scraper/scraperhelper"

	"github.com/energyreceiver/energyreceiver/internal/drivers"
	"github.com/energyreceiver/energyreceiver/internal/power"
	"github.com/energyreceiver/energyreceiver/internal/usage/cpu"
	"github.com/energyreceiver/energyreceiver/receiver/internal/metadata"
)

var defaultZones = []power.Kind{power.Package, power.DRAM, power.GPU}

// Default returns the configuration with its defaults.
func Default() *Config {
	controller := scraperhelper.NewDefaultControllerConfig()
	controller.CollectionInterval = 10 * time.Second
	return &Config{
		ControllerConfig:     controller,
		MetricsBuilderConfig: metadata.NewDefaultMetricsBuilderConfig(),
		RootPath:             "/",
		Zones:                slices.Clone(defaultZones),
		Meters:               drivers.Default(),
		Model:                configoptional.Some(defaultModelConfig()),
		CPUTime:              cpu.Auto,
		Series: SeriesConfig{
			Processes:  ProcessSeriesConfig{Max: defaultMaxProcesses, MinEnergy: defaultMinEnergy, minAge: defaultMinAge},
			Containers: EntitySeriesConfig{Max: 2000},
			Pods:       EntitySeriesConfig{Max: 1000},
			VMs:        EntitySeriesConfig{Max: 500},
		},
		Attribution: AttributionConfig{SmartWatts: defaultSmartWatts},
	}
}

// ShowContainer changes the settings so that the only container has its own series with all of its
// energy.
func (c *Config) ShowContainer() {
	c.Window = cmp.Or(c.Window, c.CollectionInterval)
	c.Series.Containers.Max = max(c.Series.Containers.Max, 2) // the container, and other
	c.Metrics.ContainerEnergy.Enabled = true
	c.Metrics.SystemEnergy.Enabled = true
	c.Metrics.SystemUnattributedEnergy.Enabled = true
	c.ResourceAttributes.ContainerID.Enabled = true
	c.Attribution.Scope = ScopeNode
	c.Attribution.Exclude = ExcludeConfig{}
	c.Names.Disable()
}
