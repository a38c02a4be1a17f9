// SPDX-License-Identifier: Apache-2.0

// Package library reads the energy and the users of GPUs through the libraries of their vendors.
// Each library is called on its own goroutine, so that a hanging call does not delay collections.
package library

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/energyreceiver/energyreceiver/extension/gpulibrary"
	"github.com/energyreceiver/energyreceiver/internal/power"
	"github.com/energyreceiver/energyreceiver/internal/units"
	"github.com/energyreceiver/energyreceiver/internal/usage/gpu"
	"github.com/energyreceiver/energyreceiver/internal/usage/proc"
)

// Options configure a Meter.
type Options struct {
	// Root is the root directory of the host. The cgroups of GPU users are read below it.
	Root string
	// Every is the time from one poll of a library to the next.
	Every time.Duration
}

// Library is a library, and its name in errors.
type Library struct {
	Name string
	// Open returns the reader of the library. The first poll calls it.
	Open func() gpulibrary.Reader
}

// Meter is a power.Meter that reads GPUs through libraries. Usage returns the gpu.Source of the
// same GPUs.
//
// Energy and usage of a poll are in the same interval: the source returns the usage of a poll after
// Read has returned the GPU's energy until that poll. While Read returns no new energy of a GPU,
// because its counter does not change or its library hangs, its usage is deferred like the energy.
// Usage that is deferred for a long time is merged, and loses no GPU time.
//
// If several libraries report a GPU, the library that reported it first reads it.
//
// The zero Meter is not usable; call New. One goroutine uses a Meter and its source.
type Meter struct {
	polled   []*polled
	readings []power.Reading
	usage    []gpu.Usage
	owners   map[units.Domain]*polled
}

const (
	timeout    = 10 * time.Second // of a poll
	maxBackoff = time.Minute      // so that a driver that is loaded later is found
	// standsStill is the maximum time without a change of an energy counter. An idle GPU uses a few
	// watts, and counters have a resolution of about 1 mJ.
	standsStill = 5 * time.Minute
)

// New returns a meter of the libraries. It does not call them.
func New(libraries []Library, o Options) *Meter {
	m := &Meter{owners: map[units.Domain]*polled{}}
	for _, l := range libraries {
		m.polled = append(m.polled, newPolled(l, o))
	}
	return m
}

// Read returns the results of the last polls. It does not wait for polls, and does not allocate
// memory unless one fails.
func (m *Meter) Read(ctx context.Context, s power.Sample) ([]power.Reading, error) {
	m.readings = m.readings[:0]
	var missing, failed error
	for _, p := range m.polled {
		readings, err := p.poller.Read(ctx, s)
		for i := range readings {
			if m.owns(p, readings[i].Zone.Domain) {
				m.readings = append(m.readings, readings[i])
			}
		}
		p.returned(readings)
		switch {
		case err == nil || len(readings) > 0: // its zones have the error
		case errors.Is(err, fs.ErrNotExist) || errors.Is(err, power.ErrNoZones):
			missing = joined(missing, err)
		default:
			failed = joined(failed, err)
		}
	}
	if failed == nil && len(m.readings) == 0 {
		return m.readings, missing
	}
	return m.readings, failed
}

// owns reports whether a library was the first to report a GPU.
func (m *Meter) owns(p *polled, domain units.Domain) bool {
	owner, ok := m.owners[domain]
	if !ok {
		m.owners[domain] = p
	}
	return !ok || owner == p
}

// Usage returns the source of the GPUs' usage. Its Close has no effect: close the Meter instead.
func (m *Meter) Usage() gpu.Source { return source{m} }

// source is the gpu.Source of a Meter.
type source struct{ *Meter }

// Read returns the usage of each GPU until the last reading that the meter returned. The usage of a
// GPU without a new reading is zero.
func (s source) Read(time.Time, *proc.Table) ([]gpu.Usage, error) {
	m := s.Meter
	m.usage = m.usage[:0]
	var failed error
	for _, p := range m.polled {
		p.mu.Lock()
		for _, d := range p.devices {
			if m.owners[d.zone.Domain] == p {
				m.usage = append(m.usage, d.handOut())
			}
		}
		if p.unknown != nil {
			failed = joined(failed, p.unknown)
		}
		p.mu.Unlock()
	}
	return m.usage, failed
}

func (source) Close() error { return nil }

// Close closes all libraries at the same time. It waits up to three seconds for a library that
// hangs.
func (m *Meter) Close() error {
	pollers := make([]*power.Poller, len(m.polled))
	for i, p := range m.polled {
		pollers[i] = p.poller
	}
	return power.ClosePollers(pollers...)
}

// joined joins two errors on one line. The first may be nil.
func joined(a, b error) error {
	if a == nil {
		return b
	}
	return fmt.Errorf("%w; %w", a, b)
}
