// SPDX-License-Identifier: Apache-2.0

// Package httpmeter reads power and energy from JSON documents on the network: plugs, power
// distribution units and Prometheus' query API. Each source is one number at one address, and one
// zone.
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

// Source is a number in a JSON document, and its meaning.
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

// New returns a meter of the sources. Several sources may have the same zone kind. New sends no
// request.
func New(sources []Source) *power.Several {
	m := new(power.Several)
	for i := range sources {
		s := newReader(&sources[i])
		m.Add(s.zone, s, power.PollOptions{Name: "http", Every: s.Every, Timeout: s.Timeout})
	}
	return m
}

// reader is the power.Source of one Source.
type reader struct {
	*Source
	client *fetch.Client
	zone   *power.Zone
}

func newReader(s *Source) *reader {
	return &reader{Source: s, client: fetch.New(s.Client), zone: power.NewDevice("http", s.Name, s.Kind)}
}

// Answer sends one request.
func (s *reader) Answer(ctx context.Context, _ power.Sample) (power.Answer, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, s.URL, nil)
	if err != nil {
		return power.Answer{}, errURL // the text of err quotes the address
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
	shown := power.Shown{Zone: s.zone, At: answer.At, IsPower: s.Unit.IsPower}
	if shown.IsPower {
		shown.Power = int64(micro)
	} else {
		shown.Counter = units.Energy(micro)
	}
	return power.Answer{Shown: []power.Shown{shown}}, nil
}

var errURL = errors.New("endpoint is not a URL")

func (s *reader) Close() error {
	s.Client.CloseIdleConnections()
	return nil
}
