// SPDX-License-Identifier: Apache-2.0

package energyreceiver

import (
	"go.opentelemetry.io/collector/receiver"

	"github.com/energyreceiver/energyreceiver/receiver/internal/simulated"
)

// Simulate returns a receiver for a simulator of this repository, which replaces the machine and the
// clock. The configuration must be valid. Collections count as delivered.
func Simulate(cfg *Config, set receiver.Settings) (*simulated.Receiver, error) {
	s, err := newEnergyScraper(cfg, set)
	if err != nil {
		return nil, err
	}
	return &simulated.Receiver{
		Now: &s.now, Node: s.node, Meters: s.meters, Windows: &s.windows, Training: s.state.Training, Ledger: s.ledger,
		Start: s.start, Sample: s.sample, Collect: (&Embedded{scraper: s}).Collect, Shutdown: s.shutdown,
	}, nil
}
