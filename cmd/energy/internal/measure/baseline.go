// SPDX-License-Identifier: Apache-2.0

package measure

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/energyreceiver/energyreceiver/cmd/energy/internal/command"
	"github.com/energyreceiver/energyreceiver/internal/power"
	"github.com/energyreceiver/energyreceiver/internal/units"
	energyreceiver "github.com/energyreceiver/energyreceiver/receiver"
)

// emptyGroup is a group without processes.
type emptyGroup struct{}

// Used implements command.Members.
func (emptyGroup) Used() (units.CPUTime, error) { return 0, nil }

// Processes implements command.Members.
func (emptyGroup) Processes(func(pid int32)) error { return nil }

// Baseline holds the measurement of the machine before a command.
type Baseline struct {
	watts       map[power.Class]float64 // of measured zones
	unknown     []power.Class           // zones without a new reading
	utilization float64                 // NaN if it is not available
}

// measureBaseline measures the node's mean power before the command: the static power of its
// measured zones.
//
// The power of other programs is a part of it, because their dynamic power is not available.
func measureBaseline(ctx context.Context, o *Options, cfg *energyreceiver.Config) (b *Baseline, err error) {
	m, err := openMeter(ctx, o, meterOptions{cfg: cfg, source: command.NewSource(cfg.RootPath, emptyGroup{})})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, m.close()) }()
	if o.Wait > 0 {
		m.await(ctx, o.Wait, func() bool { return !m.waits })
	}
	if err := m.restart(ctx); err != nil {
		return nil, err
	}
	if !m.waits && len(m.attributed) > 0 && !slices.ContainsFunc(m.attributed, m.lacksStatic) {
		o.say("the baseline is skipped: the static power of each zone is available without it")
		return &Baseline{watts: map[power.Class]float64{}}, nil
	}
	o.say("measuring the node for %v before the command", o.Baseline)
	before, from := m.attributed, m.at
	select {
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	case <-time.After(o.Baseline):
	}
	if err := m.measure(ctx); err != nil {
		return nil, err
	}
	b = &Baseline{utilization: m.busy / m.at.Sub(from).Seconds()}
	b.watts, b.unknown = watts(before, m.attributed)
	return b, nil
}

// lacksStatic reports whether the static power of a zone is available only by a baseline.
func (m *meter) lacksStatic(r power.Reading) bool { return m.staticOf(kindOf(r.Zone)) == StaticUnknown }

// watts returns the mean power of each kind of measured zones since the readings before, and the
// kinds without new readings.
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
