// SPDX-License-Identifier: Apache-2.0

package redfish

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/energyreceiver/energyreceiver/internal/fetch"
	"github.com/energyreceiver/energyreceiver/internal/power"
	"github.com/energyreceiver/energyreceiver/internal/units"
)

const (
	// maxMisses is the number of consecutive polls without the selected figure after which another
	// figure is selected.
	maxMisses = 3
	// stale is the maximum duration without a change of the time that a resource reports.
	stale = 10 * time.Minute
	// supplyChoice is the minimum time between two searches for power supplies. If a search takes
	// long, the time is supplyPatience times its duration. A power supply that is added between two
	// searches is not included.
	supplyChoice   = time.Hour
	supplyPatience = 100
)

var (
	errGone  = errors.New("the resource is gone")
	errStale = errors.New("the timestamp of the reading is no longer updated")
	errZero  = errors.New("it reads 0 or less, which no running machine uses")
	errRange = errors.New("it reads more than any machine uses")
)

// source reads the machine's energy or power: from one resource, or from one resource of each power
// supply.
type source struct {
	name    string // for errors
	paths   []string
	related []string // the paths of the machine's system and chassis
	expires time.Time
	zone    power.Zone // without Name

	counters [len(figures)]counter
	figure   int         // index of the selected figure, or -1
	current  *power.Zone // zone of the figure
	misses   int         // number of consecutive polls without the figure

	stamp   string    // the last time that the resource reported
	stamped time.Time // when the resource first reported stamp
}

// choose finds the machine and returns its first source that has a reading, with this reading.
func (s *Sensor) choose(ctx context.Context) (*source, power.Shown, error) {
	sys, err := s.findSystem(ctx)
	if err != nil {
		return nil, power.Shown{}, err
	}
	ch, err := s.findChassis(ctx, sys)
	if err != nil {
		return nil, power.Shown{}, err
	}
	var tried []string
	for _, find := range []func(context.Context, *chassis) (*source, error){
		func(_ context.Context, c *chassis) (*source, error) { return s.single(c.Environment) },
		s.supplies,
		func(_ context.Context, c *chassis) (*source, error) { return s.single(c.Power) },
	} {
		candidate, err := find(ctx, ch)
		if candidate == nil && err == nil {
			continue
		}
		var shown power.Shown
		if err == nil {
			candidate.begin(sys, ch, s.source)
			shown, err = candidate.first(ctx, &s.service)
		}
		if err == nil {
			return candidate, shown, nil
		}
		if !isAbout(err) {
			return nil, power.Shown{}, err
		}
		tried = append(tried, err.Error())
	}
	if len(tried) == 0 {
		return nil, power.Shown{}, fmt.Errorf("%s has no EnvironmentMetrics, PowerSubsystem or Power", name(ch.path))
	}
	return nil, power.Shown{}, fmt.Errorf("%s has no power that can be read: %s", name(ch.path), strings.Join(tried, "; "))
}

// isAbout reports whether an error concerns a single resource, so that another resource may work.
func isAbout(err error) bool {
	switch fetch.Status(err) {
	case http.StatusBadRequest, http.StatusForbidden, http.StatusNotFound, http.StatusMethodNotAllowed, http.StatusGone,
		http.StatusInternalServerError, http.StatusNotImplemented:
		return true
	}
	for _, e := range []error{fetch.ErrNotJSON, fetch.ErrTooLarge, errResource, fetch.ErrNoValue, fetch.ErrNotNumber, errZero, errRange, errGone} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// single returns the resource of a link as a source, or nil if the link is empty.
func (s *Sensor) single(l link) (*source, error) {
	if l.Path == "" {
		return nil, nil
	}
	return &source{name: name(l.Path), paths: []string{clean(l.Path)}}, nil
}

// supplies returns the power supplies of a chassis as a source, or nil if it has no power supplies.
func (s *Sensor) supplies(ctx context.Context, c *chassis) (*source, error) {
	if c.PowerSubsystem.Path == "" {
		return nil, nil
	}
	began := time.Now()
	var subsystem struct{ PowerSupplies link }
	if _, err := s.service.get(ctx, c.PowerSubsystem.Path, &subsystem); err != nil {
		return nil, fmt.Errorf("%s: %w", name(c.PowerSubsystem.Path), err)
	}
	if subsystem.PowerSupplies.Path == "" {
		return nil, nil
	}
	members, err := s.service.members(ctx, subsystem.PowerSupplies.Path)
	if err != nil {
		return nil, err
	}
	found := &source{name: name(subsystem.PowerSupplies.Path)}
	for _, p := range members {
		var supply struct {
			Metrics link
			Status  struct{ State string }
		}
		if _, err := s.service.get(ctx, p, &supply); err != nil {
			return nil, fmt.Errorf("%s: %w", name(p), err)
		}
		switch {
		case slices.Contains([]string{"Absent", "Disabled", "UnavailableOffline"}, supply.Status.State):
		case supply.Metrics.Path == "":
			return nil, fmt.Errorf("%s has no Metrics: %w", name(p), fetch.ErrNoValue)
		default:
			found.paths = append(found.paths, clean(supply.Metrics.Path))
		}
	}
	if len(found.paths) == 0 {
		return nil, nil
	}
	now := time.Now()
	found.expires = now.Add(max(supplyChoice, supplyPatience*now.Sub(began)))
	return found, nil
}

// begin sets the zone of the machine. If the source equals the previous source, begin resumes its
// state.
func (s *source) begin(sys *system, ch *chassis, before *source) {
	machine := strings.ToLower(strings.TrimSpace(sys.UUID))
	if !isUUID(machine) {
		machine = id(sys.path)
	}
	if fetch.ID(machine) != machine {
		machine = fmt.Sprintf("%.8x", sha256.Sum256([]byte(sys.path)))
	}
	s.related = []string{sys.path, ch.path}
	s.figure = -1
	s.zone = power.Zone{
		ID: "redfish:" + machine, Kind: power.Platform, Method: power.Measured, Domain: units.NodeCPUs, MaxWatts: power.MaxPlatformWatts,
	}
	if before != nil && before.name == s.name && before.zone.ID == s.zone.ID && slices.Equal(before.paths, s.paths) {
		s.counters, s.figure, s.current = before.counters, before.figure, before.current
		s.stamp, s.stamped = before.stamp, before.stamped
	}
}

// due reports whether a source must be chosen again.
func (s *source) due() bool {
	return s.misses >= maxMisses || !s.expires.IsZero() && time.Now().After(s.expires)
}

// first reads a source for the first time. A missing reading is an error.
func (s *source) first(ctx context.Context, from *service) (power.Shown, error) {
	all, err := s.fetch(ctx, from)
	if err != nil {
		return power.Shown{}, err
	}
	if err := s.pick(&all); err != nil {
		return power.Shown{}, fmt.Errorf("%s: %w", s.name, err)
	}
	return s.show(&all), nil
}

// read returns the current reading. The error is errGone if the resource no longer exists.
func (s *source) read(ctx context.Context, from *service) (power.Shown, error) {
	all, err := s.fetch(ctx, from)
	if err != nil {
		return power.Shown{}, err
	}
	if err := all.readings[s.figure].err; err != nil {
		s.misses++
		return power.Shown{Zone: s.current, Err: fmt.Errorf("%s: %w", s.current.Name, err)}, nil
	}
	s.misses = 0
	if err := s.pick(&all); err != nil {
		return power.Shown{}, err
	}
	return s.show(&all), nil
}

// fetch reads all resources and adds up their readings.
func (s *source) fetch(ctx context.Context, from *service) (totals, error) {
	var all totals
	for i, p := range s.paths {
		var m metrics
		at, err := from.get(ctx, p, &m)
		switch fetch.Status(err) {
		case http.StatusNotFound, http.StatusGone:
			return totals{}, fmt.Errorf("%s: %w", name(p), errGone)
		}
		if err != nil {
			return totals{}, fmt.Errorf("%s: %w", name(p), err)
		}
		all.add(i == 0, &m, s.related, at)
	}
	all.check()
	return all, nil
}

// pick selects the property to read: the first property that is a power, or a counter that
// increases and has a sufficient resolution. If there is no such property, pick selects the first
// counter.
func (s *source) pick(all *totals) error {
	best, bestFine := -1, false
	watts := all.watts()
	for i := range figures {
		r := &all.readings[i]
		if r.err != nil {
			continue
		}
		fine := !figures[i].energy || s.counters[i].isFine(r, watts, all.at)
		if best < 0 || fine && !bestFine {
			best, bestFine = i, fine
		}
	}
	if best < 0 {
		return all.err()
	}
	if best != s.figure {
		zone := s.zone
		zone.Name = s.name + " " + figures[best].name
		s.figure, s.current = best, &zone
		s.stamp = ""
	}
	return nil
}

// show returns the zone with its reading. If the BMC's time of a power has not changed, the power
// is the previous reading, and keeps its time.
func (s *source) show(all *totals) power.Shown {
	r := &all.readings[s.figure]
	shown := power.Shown{Zone: s.current, At: all.at}
	if figures[s.figure].energy {
		shown.Counter = units.Energy(r.value)
		return shown
	}
	shown.IsPower, shown.Power, shown.Average = true, int64(r.value), r.average
	if r.stamp == "" {
		return shown
	}
	if r.stamp != s.stamp {
		s.stamp, s.stamped = r.stamp, all.at
	}
	if all.at.Sub(s.stamped) > stale {
		shown.Err = fmt.Errorf("%s: %w", s.current.Name, errStale)
	}
	shown.At = s.stamped
	return shown
}
