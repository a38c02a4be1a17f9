// SPDX-License-Identifier: Apache-2.0

package energyreceiver

import (
	"go.opentelemetry.io/collector/receiver"

	"github.com/energyreceiver/energyreceiver/receiver/internal/attributor"
	"github.com/energyreceiver/energyreceiver/receiver/internal/machine"
	"github.com/energyreceiver/energyreceiver/receiver/internal/simulated"
)

// Simulate returns a receiver of a simulated machine. The configuration must be valid. Collections
// count as delivered.
func Simulate(cfg *Config, set receiver.Settings, m machine.Machine) (*simulated.Receiver, error) {
	s, err := newEnergyScraper(cfg, set, m, attributor.Embedded{})
	if err != nil {
		return nil, err
	}
	return &simulated.Receiver{
		Windows: &s.windows, Training: s.state.Training, Attributor: func() *attributor.Attributor { return s.attributor },
		Start: s.start, Sample: s.sample, Collect: (&Embedded{scraper: s}).Collect, Shutdown: s.shutdown,
	}, nil
}
