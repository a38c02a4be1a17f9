// SPDX-License-Identifier: Apache-2.0

package energyspans

import (
	"context"
	"sync"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/connector"
	"go.opentelemetry.io/collector/connector/xconnector"
	"go.opentelemetry.io/collector/consumer"

	"github.com/energyreceiver/energyreceiver/connector/energyspans/internal/metadata"
)

// NewFactory returns the factory of the connector.
func NewFactory() xconnector.Factory {
	s := &shared{of: map[component.Config]*energySpans{}}
	return xconnector.NewFactory(metadata.Type, createDefaultConfig,
		xconnector.WithTracesToMetrics(func(_ context.Context, set connector.Settings, cfg component.Config, next consumer.Metrics) (connector.Traces, error) {
			e, err := s.get(cfg, set, next)
			return traces{e}, err
		}, metadata.TracesToMetricsStability),
		xconnector.WithProfilesToMetrics(func(_ context.Context, set connector.Settings, cfg component.Config, next consumer.Metrics) (xconnector.Profiles, error) {
			e, err := s.get(cfg, set, next)
			return profiles{e}, err
		}, metadata.ProfilesToMetricsStability))
}

// shared has the connector of each configuration: the collector creates one component for traces and one
// for profiles, which work on the same spans.
type shared struct {
	mu sync.Mutex
	of map[component.Config]*energySpans
}

func (s *shared) get(cfg component.Config, set connector.Settings, next consumer.Metrics) (*energySpans, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := s.of[cfg]; e != nil {
		return e, nil
	}
	e, err := newEnergySpans(cfg.(*Config), set, next)
	if err != nil {
		return nil, err
	}
	e.release = func() { s.release(cfg) }
	s.of[cfg] = e
	return e, nil
}

// release removes a connector that shuts down.
func (s *shared) release(cfg component.Config) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.of, cfg)
}
