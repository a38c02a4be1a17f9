// SPDX-License-Identifier: Apache-2.0

package energyspans

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"go.opentelemetry.io/collector/component"
)

// Config is the configuration of the connector.
type Config struct {
	// Wait is how long a span is stored, and how long energy waits for the names of its span.
	Wait time.Duration `mapstructure:"wait"`
	// MemoryLimitMiB is the maximum memory of spans, waiting energy and series, in MiB.
	MemoryLimitMiB int `mapstructure:"memory_limit_mib"`
	// MaxSeries is the maximum number of series without overflow series, at least 4. A service has
	// at most half of them. At most MaxSeries/4 services have their own series. The other services
	// share an overflow series.
	MaxSeries int `mapstructure:"max_series"`
	// Labels lists the sample labels that become attributes of the series, such as labels that Go programs set with
	// runtime/pprof. A label is a sample attribute process.context.label.NAME.
	Labels []string `mapstructure:"labels"`
	// FlushInterval is the time between two points of a series.
	FlushInterval time.Duration `mapstructure:"metrics_flush_interval"`
	// Expiration is the time without energy after which a series ends. If its work uses energy again, a new series
	// starts at 0.
	Expiration time.Duration `mapstructure:"metrics_expiration"`

	_ struct{}
}

func createDefaultConfig() component.Config {
	return &Config{
		Wait: time.Minute, MemoryLimitMiB: 32, MaxSeries: 1000, FlushInterval: 15 * time.Second, Expiration: 15 * time.Minute,
	}
}

// Validate implements xconfmap.Validator.
func (c *Config) Validate() error {
	switch {
	case c.Wait < 0:
		return errors.New("wait: must not be negative")
	case c.MemoryLimitMiB < 1 || c.MemoryLimitMiB > 1024:
		return errors.New("memory_limit_mib: must be from 1 to 1024")
	case c.MaxSeries < 4:
		return errors.New("max_series: must be at least 4")
	case c.FlushInterval < 0:
		return errors.New("metrics_flush_interval: must not be negative")
	case c.Expiration <= 0:
		return errors.New("metrics_expiration: must be positive")
	}
	for i, label := range c.Labels {
		switch {
		case label == "":
			return errors.New("labels: a name is empty")
		case slices.Contains([]string{"service.name", "span.name", "otel.metric.overflow"}, label):
			return fmt.Errorf("labels: %q is already an attribute of all series", label)
		case slices.Contains(c.Labels[:i], label):
			return fmt.Errorf("labels: %q is listed twice", label)
		}
	}
	return nil
}
