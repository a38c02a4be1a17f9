// SPDX-License-Identifier: Apache-2.0

// Package httpmeter reads power and energy from JSON documents on the network: plugs, power distribution units and
// Prometheus' query API. Each source is one number at one address, and one zone.
package httpmeter

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/energyreceiver/energyreceiver/internal/fetch"
	"github.com/energyreceiver/energyreceiver/internal/power"
	"github.com/energyreceiver/energyreceiver/internal/units"
)

// Source is a number in a JSON document, and what it measures.
type Source struct {
	// Name identifies the source. The ID of its zone is "http:" and the name. The name of a
	// graphics card's source may be the card's PCI address as sysfs writes it: then the zone is
	// that card, and otherwise it may be any card.
	Name    string
	Client  *http.Client
	URL     string
	Pointer Pointer
	Unit    Unit
	// Kind is Platform, Package, DRAM or GPU.
	Kind power.Kind
	// Every is the time from one request to the next, and Timeout how long one may take.
	Every   time.Duration
	Timeout time.Duration
}

// Meter is the power.Meter of some sources, several of which may be of one kind: two plugs on two
// power supplies. Each has a power.Poller of its own, so that one that does not answer delays no
// other.
//
// The zero Meter is not usable; call New.
type Meter struct {
	pollers  []*power.Poller
	ids      []string // of the pollers' zones
	readings []power.Reading
}

// New returns a meter of the sources. It asks none of them.
func New(sources []Source) *Meter {
	m := new(Meter)
	for i := range sources {
		s := newReader(&sources[i])
		options := power.PollOptions{Name: "http", Every: s.Every, Timeout: s.Timeout}
		if s.Kind == power.Platform { // parts may be off
			options.StandsStill = standsStill
		}
		m.ids = append(m.ids, s.zone.ID)
		m.pollers = append(m.pollers, power.Poll(s, options))
	}
	return m
}

// standsStill is how long the counter of a machine may stand still. At 6 W, a small computer's, 1 kWh takes that long.
const standsStill = 7 * 24 * time.Hour

// Read returns what the last requests found. A source has no zone before it has answered once. The
// read error of a source with a zone is in the zone's reading; the returned error reports those of
// other sources.
func (m *Meter) Read(ctx context.Context, s power.Sample) ([]power.Reading, error) {
	m.readings = m.readings[:0]
	var failed error
	for i, p := range m.pollers {
		readings, err := p.Read(ctx, s)
		switch {
		case len(readings) > 0 || err == nil:
			m.readings = append(m.readings, readings...)
		case failed == nil:
			failed = fmt.Errorf("%s: %w", m.ids[i], err)
		default:
			failed = fmt.Errorf("%w; %s: %w", failed, m.ids[i], err)
		}
	}
	return m.readings, failed
}

// Close ends the requests that are under way. It may be called again; Read may not.
func (m *Meter) Close() error {
	return power.ClosePollers(m.pollers...)
}

// reader is the power.Source of one Source.
type reader struct {
	*Source
	client *fetch.Client
	zone   power.Zone
}

func newReader(s *Source) *reader {
	domain := units.NodeCPUs
	if s.Kind == power.GPU {
		domain = units.GPU(s.Name)
	}
	return &reader{Source: s, client: fetch.New(s.Client), zone: power.Zone{
		ID: "http:" + s.Name, Name: s.Name, Kind: s.Kind,
		Method: power.Measured, Domain: domain, MaxWatts: power.MaxPlatformWatts, // of all sockets together, or all cards
	}}
}

// Answer asks once.
func (s *reader) Answer(ctx context.Context, _ power.Sample) (power.Answer, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, s.URL, nil)
	if err != nil {
		return power.Answer{}, errURL // its text quotes the address
	}
	request.Header.Set("Accept", "application/json")
	answer, err := s.client.Do(request)
	if err != nil {
		return power.Answer{}, err
	}
	var document json.RawMessage
	if err := answer.JSON(&document); err != nil {
		return power.Answer{}, err
	}
	value, err := s.Pointer.Find(document)
	var micro uint64
	if err == nil {
		micro, err = s.Unit.Micro(value)
	}
	if err != nil {
		return power.Answer{}, fmt.Errorf("pointer %q: %w", s.Pointer, err)
	}
	shown := power.Shown{Zone: &s.zone, At: answer.At, IsPower: s.Unit.IsPower}
	if shown.IsPower {
		shown.Power = int64(micro)
	} else {
		shown.Counter = units.Energy(micro)
	}
	return power.Answer{Shown: []power.Shown{shown}}, nil
}

var errURL = errors.New("endpoint is no address")

func (s *reader) Close() error {
	s.Client.CloseIdleConnections()
	return nil
}
