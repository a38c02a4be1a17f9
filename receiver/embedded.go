// SPDX-License-Identifier: Apache-2.0

package energyreceiver

import (
	"context"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/receiver"
	"go.uber.org/zap"

	"github.com/energyreceiver/energyreceiver/internal/claims"
	"github.com/energyreceiver/energyreceiver/internal/usage/cpu"
	"github.com/energyreceiver/energyreceiver/receiver/internal/metadata"
)

// Embedded is the receiver in a program that is no collector. It measures when it is asked, and has no schedule of its own.
//
// Start takes the baseline, Collect returns what was used since then, and Shutdown ends it. An Embedded is not safe for
// concurrent use.
type Embedded struct {
	scraper *energyScraper
	host    component.Host
}

// EmbeddedOptions are what an Embedded has in place of a collector.
type EmbeddedOptions struct {
	// Logger takes what the receiver has to say. It must be set.
	Logger *zap.Logger
	// CPU, if set, is the only CPU time source: the energy of all that it does not show is unattributed. It is closed by
	// Shutdown.
	CPU cpu.Source
	// StaticPower is what is known of the static power of zone kinds, in watts, all sockets together. It takes the place of the rule
	// utilization.
	StaticPower map[claims.Kind]float64
}

// DefaultConfig returns the receiver's configuration with its defaults.
func DefaultConfig() *Config { return createDefaultConfig().(*Config) }

// Embed returns an Embedded with a configuration that is valid. It touches nothing of the machine.
func Embed(cfg *Config, o EmbeddedOptions) (*Embedded, error) {
	telemetry := componenttest.NewNopTelemetrySettings()
	telemetry.Logger = o.Logger
	s, err := newEnergyScraper(cfg, receiver.Settings{ID: component.NewID(metadata.Type), TelemetrySettings: telemetry})
	if err != nil {
		return nil, err
	}
	s.staticPower = o.StaticPower
	if o.CPU != nil {
		s.open = func(open cpu.Options) (reader *cpu.Reader, rejected, err error) {
			return cpu.NewReader(o.CPU, open), nil, nil
		}
	}
	return &Embedded{scraper: s, host: componenttest.NewNopHost()}, nil
}

// Start opens the meters and takes the baseline.
func (e *Embedded) Start(ctx context.Context) error { return e.scraper.start(ctx, e.host) }

// Collect measures, and returns the ledger as metrics. The metrics count as delivered.
func (e *Embedded) Collect(ctx context.Context) (pmetric.Metrics, error) {
	md, err := e.scraper.scrape(ctx)
	e.scraper.delivered(delivery{all: err == nil, some: err == nil})
	return md, err
}

// Shutdown closes what Start opened.
func (e *Embedded) Shutdown(ctx context.Context) error { return e.scraper.shutdown(ctx) }
