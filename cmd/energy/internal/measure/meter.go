// SPDX-License-Identifier: Apache-2.0

package measure

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/energyreceiver/energyreceiver/cmd/energy/internal/notes"
	"github.com/energyreceiver/energyreceiver/internal/power"
	"github.com/energyreceiver/energyreceiver/internal/units"
	"github.com/energyreceiver/energyreceiver/internal/usage/cpu"
	energyreceiver "github.com/energyreceiver/energyreceiver/receiver"
)

// container is the ID of the container that all processes of a command are in.
const container = "command"

// poll is how often a meter is looked at that has still to answer.
const poll = 50 * time.Millisecond

// meter is the receiver, measuring one group of processes.
type meter struct {
	*receiver
	cfg      *energyreceiver.Config
	static   map[power.Class]float64 // of measured zones, in watts
	last     totals
	programs programTotals
	at       time.Time // right before the last measurement
	read     map[*power.Zone]time.Time
}

// openMeter takes the first readings. static is the static power of measured zones in watts, nil
// where energy need not be split. It closes source if it fails.
func openMeter(ctx context.Context, o *Options, cfg *energyreceiver.Config, static map[power.Class]float64, source cpu.Source, n *notes.Notes) (*meter, error) {
	e, err := energyreceiver.Embed(cfg, energyreceiver.EmbeddedOptions{
		Logger: n.Logger(), CPU: source, Container: container, StaticPower: static, Extensions: o.Extensions,
	})
	if err != nil {
		return nil, errors.Join(err, source.Close())
	}
	m := &meter{receiver: &receiver{embedded: e, ctx: ctx}, cfg: cfg, static: static, at: time.Now(), read: map[*power.Zone]time.Time{}, programs: programTotals{}}
	if err := m.start(); err != nil {
		return nil, errors.Join(err, m.close())
	}
	m.note()
	return m, nil
}

// measure brings the ledger up to date. It returns the zone kinds whose meters have reported energy
// since the last measurement.
func (m *meter) measure(ctx context.Context) (reported func(power.Class) bool, err error) {
	m.at = time.Now()
	md, err := m.collect(ctx)
	if err != nil {
		return nil, err
	}
	m.last = totalsOf(md)
	m.programs.add(md)
	return m.note(), nil
}

// note records when the zones were read, and returns the kinds of which all zones have reported
// energy since the last note.
func (m *meter) note() (reported func(power.Class) bool) {
	silent := map[power.Class]bool{}
	for _, r := range m.attributed {
		if !r.At.After(m.read[r.Zone]) {
			silent[kindOf(r.Zone)] = true
		}
		m.read[r.Zone] = r.At
	}
	return func(k power.Class) bool { return !silent[k] }
}

func kindOf(z *power.Zone) power.Class { return power.Class{Zone: z.Kind, Method: z.Method} }

// pending returns, for each kind whose energy is not complete until the end, the time until which
// its zones have reported energy.
func (m *meter) pending(end time.Time) map[power.Class]time.Time {
	pending := map[power.Class]time.Time{}
	for _, r := range m.attributed {
		kind := kindOf(r.Zone)
		if until, ok := pending[kind]; r.At.Before(end) && (!ok || r.At.Before(until)) {
			pending[kind] = r.At
		}
	}
	return pending
}

// answers reports whether one of these kinds has a zone that can be read.
func (m *meter) answers(kinds map[power.Class]time.Time) bool {
	return !m.hangs() && slices.ContainsFunc(m.attributed, func(r power.Reading) bool {
		_, ok := kinds[kindOf(r.Zone)]
		return ok && r.Err == nil
	})
}

// await measures until done reports so, or the time is over, or ctx ends. It reports whether done did.
func (m *meter) await(ctx context.Context, most time.Duration, done func() bool) bool {
	deadline := time.NewTimer(most)
	defer deadline.Stop()
	ticker := time.NewTicker(poll)
	defer ticker.Stop()
	for !done() {
		select {
		case <-ctx.Done():
			return false
		case <-deadline.C:
			return false
		case <-ticker.C:
			_, _ = m.measure(ctx) // the next one covers what it missed
		}
	}
	return true
}

// isKnown reports whether any energy is measured or modeled.
func (m *meter) isKnown() bool {
	return slices.ContainsFunc(m.attributed, func(r power.Reading) bool { return !r.At.IsZero() })
}

// staticOf returns what the static power of a zone kind is known from.
func (m *meter) staticOf(z *Zone) Static {
	kind := zoneKind(z)
	return staticOf(m.cfg, m.static, kind, m.trained[kind])
}

// isAttributed reports whether a zone of a kind is attributed now.
func (m *meter) isAttributed(kind power.Class) bool {
	return slices.ContainsFunc(m.attributed, func(r power.Reading) bool { return kindOf(r.Zone) == kind })
}

// watts returns the mean power of each kind of measured zones since the readings before, and the
// kinds of which it is not known.
func watts(before, after []power.Reading) (known map[power.Class]float64, unknown []power.Class) {
	known = map[power.Class]float64{}
	for _, r := range after {
		if r.Zone.Method != power.Measured {
			continue
		}
		kind := kindOf(r.Zone)
		i := slices.IndexFunc(before, func(b power.Reading) bool { return b.Zone == r.Zone && !b.At.IsZero() })
		if i < 0 || !r.At.After(before[i].At) {
			unknown = append(unknown, kind)
			continue
		}
		known[kind] += units.Watts(units.Advance(before[i].Total, r.Total), r.At.Sub(before[i].At))
	}
	for _, kind := range unknown {
		delete(known, kind)
	}
	return known, slices.Compact(unknown) // zones of a kind follow each other
}
