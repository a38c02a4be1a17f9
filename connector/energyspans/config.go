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
	// Wait is how long a span is remembered, and how long energy waits for the names of its span.
	Wait time.Duration `mapstructure:"wait"`
	// MaxSpans is the maximum number of spans that are remembered, and of spans whose names are waited for.
	MaxSpans int `mapstructure:"max_spans"`
	// MaxSeries is the maximum number of series. Further energy is in one with otel.metric.overflow.
	MaxSeries int `mapstructure:"max_series"`
	// Labels lists labels of samples by which energy without a span is summed, such as those that Go
	// programs set with runtime/pprof. A label is a sample attribute process.context.label.NAME.
	Labels []string `mapstructure:"labels"`
	// FlushInterval is the time between two points of a series.
	FlushInterval time.Duration `mapstructure:"metrics_flush_interval"`

	_ struct{}
}

func createDefaultConfig() component.Config {
	return &Config{Wait: time.Minute, MaxSpans: 100_000, MaxSeries: 1000, FlushInterval: 15 * time.Second}
}

// Validate implements xconfmap.Validator.
func (c *Config) Validate() error {
	switch {
	case c.Wait < 0:
		return errors.New("wait: must not be negative")
	case c.MaxSpans < 1:
		return errors.New("max_spans: must be at least 1")
	case c.MaxSeries < 1:
		return errors.New("max_series: must be at least 1")
	case c.FlushInterval < 0:
		return errors.New("metrics_flush_interval: must not be negative")
	}
	for i, label := range c.Labels {
		switch {
		case slices.Contains([]string{"service.name", "span.name", "otel.metric.overflow"}, label):
			return fmt.Errorf("labels: %q is an attribute of its own", label)
		case slices.Contains(c.Labels[:i], label):
			return fmt.Errorf("labels: %q is there twice", label)
		}
	}
	return nil
}
