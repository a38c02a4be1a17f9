// SPDX-License-Identifier: Apache-2.0

package power

import (
	"context"
	"fmt"
	"time"

	"github.com/energyreceiver/energyreceiver/internal/units"
)

// Several is the Meter of several devices, such as the smart plugs of two power supplies. Each
// device is one zone with its own Poller, so a device that does not respond does not delay the
// others. The zero Several is ready to use.
type Several struct {
	zones    []*Zone
	pollers  []*Poller
	readings []Reading
}

// NewDevice returns the zone of a device with a name from the configuration. The ID of the zone is
// meter:name. If kind is GPU and the name is a PCI address in the format of sysfs, the zone is the
// graphics card with this address. Otherwise the zone may be any card, or all sockets or cards.
func NewDevice(meter, name string, kind Kind) *Zone {
	domain := units.NodeCPUs
	if kind == GPU {
		domain = units.GPU(name)
	}
	return &Zone{
		ID: meter + ":" + name, Name: name, Kind: kind, Method: Measured, Domain: domain, MaxWatts: MaxPlatformWatts,
	}
}

// deviceMaxUnchanged is the time after which an unchanged counter of a machine is an error. A small
// computer of 6 W uses 1 kWh in this time, which is the resolution of some counters.
const deviceMaxUnchanged = 7 * 24 * time.Hour

// Add adds a device. It must be called before the first Read.
func (m *Several) Add(zone *Zone, source Source, options PollOptions) {
	if zone.Kind == Platform { // other zones may use no energy, such as a graphics card that is off
		options.MaxUnchanged = deviceMaxUnchanged
	}
	m.zones, m.pollers = append(m.zones, zone), append(m.pollers, Poll(source, options))
}

// Read returns the readings of the last polls. A device has no reading before its first successful
// poll. The error joins the errors of all devices without a reading.
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

// Close stops all pollers. Close may be called again. Read must not be called after Close.
func (m *Several) Close() error { return ClosePollers(m.pollers...) }
