// SPDX-License-Identifier: Apache-2.0

package power

import (
	"context"
	"fmt"
	"time"

	"github.com/energyreceiver/energyreceiver/internal/units"
)

// Several is the Meter of several devices, such as two plugs of two power supplies. Each is one
// zone with a Poller, so that a device that does not answer delays no other. The zero Several is
// ready to use.
type Several struct {
	zones    []*Zone
	pollers  []*Poller
	readings []Reading
}

// NewDevice returns the zone of a device that a user named. Its ID is the name of the meter, a
// colon and the name. If the name of a graphics card is its PCI address as sysfs writes it, the
// zone is that card; otherwise, it may be any card. The device may be all sockets or cards
// together.
func NewDevice(meter, name string, kind Kind) *Zone {
	domain := units.NodeCPUs
	if kind == GPU {
		domain = units.GPU(name)
	}
	return &Zone{
		ID: meter + ":" + name, Name: name, Kind: kind, Method: Measured, Domain: domain, MaxWatts: MaxPlatformWatts,
	}
}

// deviceStandsStill is how long the counter of a machine may stand still. A small computer of 6 W
// uses 1 kWh in this time.
const deviceStandsStill = 7 * 24 * time.Hour

// Add adds a device with a zone, before the first Read.
func (m *Several) Add(zone *Zone, source Source, options PollOptions) {
	if zone.Kind == Platform { // parts may be off
		options.StandsStill = deviceStandsStill
	}
	m.zones, m.pollers = append(m.zones, zone), append(m.pollers, Poll(source, options))
}

// Read returns the readings of the last polls. A device has no reading before its first answer. The
// error reports the failures of devices without a reading.
func (m *Several) Read(ctx context.Context, s Sample) ([]Reading, error) {
	m.readings = m.readings[:0]
	var failed error
	for i, p := range m.pollers {
		readings, err := p.Read(ctx, s)
		switch {
		case len(readings) > 0 || err == nil:
			m.readings = append(m.readings, readings...)
		case failed == nil:
			failed = fmt.Errorf("%s: %w", m.zones[i].ID, err)
		default:
			failed = fmt.Errorf("%w; %s: %w", failed, m.zones[i].ID, err)
		}
	}
	return m.readings, failed
}

// Close ends all polls. It may be called again; Read may not.
func (m *Several) Close() error { return ClosePollers(m.pollers...) }
