// SPDX-License-Identifier: Apache-2.0

package weigh

import (
	"errors"
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/energyreceiver/energyreceiver/internal/cgroup"
	"github.com/energyreceiver/energyreceiver/internal/power/model/calibrated"
	"github.com/energyreceiver/energyreceiver/internal/units"
)

// modelEvents are the events of a calibrated.Model, in the order of calibrated.Rates.
var modelEvents = [len(calibrated.Rates{})]Event{Cycles, Instructions, CacheMisses}

// Model weighs CPU time by the power that a model of hardware events estimates for it. The model is
// fitted to the measured energy of a zone kind of the node. Until the model is fitted, a Model has no
// weights.
type Model struct {
	*ByRate
	fitted *fitted
}

// NewModel returns a Model that is fitted to these events. It fails if one of the events cannot be
// counted on the whole machine. The last Model that is closed closes the counters.
func NewModel(events *Events, tree *cgroup.Tree) (*Model, error) {
	if err := events.acquire(tree); err != nil {
		return nil, err
	}
	f := &fitted{events: events}
	return &Model{newByRate(f), f}, nil
}

// Calibrate sets the total energy of the zone kind, and the time when it was measured. It is called
// before Weigh. A total below the previous total belongs to other zones, and the model is not fitted
// to the difference.
func (m *Model) Calibrate(total units.Energy, at time.Time) { m.fitted.energy = energyAt{total, at} }

// Events counts the hardware events that Models are fitted to, for all of them. The zero Events is
// ready for use.
type Events struct {
	mu    sync.Mutex // guards users and of: a Model may be opened while others are used
	users int
	of    [len(modelEvents)]*counters               // in the order of modelEvents, nil while there are no users
	now   time.Time                                 // of the last interval
	open  func(*cgroup.Tree, Event) (counts, error) // openPerf if nil
}

func (e *Events) acquire(tree *cgroup.Tree) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	open := e.open
	if open == nil {
		open = openPerf
	}
	for i, event := range modelEvents {
		if e.users > 0 {
			break
		}
		kernel, err := open(tree, event)
		if err != nil {
			return errors.Join(err, e.close())
		}
		e.of[i] = newCounters(kernel, tree, event)
	}
	e.users++
	return nil
}

func (e *Events) release() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.users--; e.users > 0 {
		return nil
	}
	return e.close()
}

func (e *Events) close() error {
	var errs []error
	for i, c := range e.of {
		if c != nil {
			errs = append(errs, c.close())
		}
		e.of[i] = nil
	}
	e.now = time.Time{}
	return errors.Join(errs...)
}

// begin starts an interval, once for all Models.
func (e *Events) begin(now time.Time, shares []Share) {
	if now.Equal(e.now) {
		return
	}
	e.now = now
	for _, c := range e.of {
		c.begin(now, shares)
	}
}

// fitted is the source of a Model.
type fitted struct {
	events *Events
	model  calibrated.Model
	fit    *calibrated.Fit // of the interval, or nil

	energy, last energyAt // last belongs to the last sample
	// counted and cpu are the events and the CPU time since then. They are incomplete if an
	// interval was not counted.
	counted    calibrated.Rates
	cpu        units.CPUTime
	incomplete bool
}

// energyAt is a total of energy at a time.
type energyAt struct {
	total units.Energy
	at    time.Time
}

const (
	// layerWidth is the difference of the clock rates of two layers, in cycles per second.
	layerWidth = 100e6
	// maxLayer is the layer of all higher rates, which no CPU has. Cycles per CPU time are higher if
	// most of the node's CPU time is spent in interrupts, or is not in the shares yet. The maximum
	// bounds the number of layers, and their memory.
	maxLayer = 100
)

func (f *fitted) begin(now time.Time, shares []Share) {
	f.events.begin(now, shares)
	for i, c := range f.events.of {
		f.counted[i] += float64(c.all.counted)
		f.incomplete = f.incomplete || !c.all.known
	}
	for i := range shares {
		f.cpu = units.AddSaturating(f.cpu, shares[i].CPU)
	}
	if f.energy.at.After(f.last.at) {
		f.learn()
	}
}

// learn adds the sample since the last one to the model, and selects the fit of its clock rate.
func (f *fitted) learn() {
	seconds := f.energy.at.Sub(f.last.at).Seconds()
	usable := !f.incomplete && !f.last.at.IsZero() && f.energy.total >= f.last.total
	s := calibrated.Sample{Watts: float64(f.energy.total-f.last.total) / float64(units.Joule) / seconds}
	if f.cpu > 0 {
		s.Layer = int(math.Round(min(f.counted[0]/f.cpu.Seconds()/layerWidth, maxLayer)))
	}
	for i, n := range f.counted {
		s.Rates[i] = n / seconds
	}
	f.last, f.counted, f.cpu, f.incomplete = f.energy, calibrated.Rates{}, 0, false
	if usable {
		f.model.Observe(s)
		f.fit = f.model.At(s.Layer)
	}
}

// rate returns the estimated power of the CPU time, in watts per CPU.
func (f *fitted) rate(s *Share) (uint64, bool) {
	if f.fit == nil {
		return 0, false
	}
	var perSecond calibrated.Rates
	for i, c := range f.events.of {
		rate, ok := c.rate(s)
		if !ok {
			return 0, false
		}
		perSecond[i] = float64(rate) / one * float64(units.Second)
	}
	return uint64(min(f.fit.Active(&perSecond), maxWatts) * one), true
}

// maxWatts is more than a CPU uses.
const maxWatts = 1 << 20

func (f *fitted) counts(n *cgroup.Node, yield func(Event, uint64)) {
	for _, c := range f.events.of {
		c.counts(n, yield)
	}
}

func (f *fitted) forget() {
	for _, c := range f.events.of {
		c.forget()
	}
	f.incomplete = true
}

// trouble returns why an event is not counted. A model is fitted without instructions or cache
// misses if these do not occur: some virtual machines count cycles only.
func (f *fitted) trouble() error {
	for i, c := range f.events.of {
		err := c.trouble()
		if errors.Is(err, errCountless) && modelEvents[i] != Cycles {
			continue
		}
		if err != nil {
			return fmt.Errorf("%s: %w", c.event, err)
		}
	}
	return nil
}

func (f *fitted) name() string {
	return fmt.Sprintf("the power of %s, %s and %s by perf events", Cycles, Instructions, CacheMisses)
}

func (f *fitted) close() error { return f.events.release() }

// CountsEvents returns why one of the events cannot be counted, or nil if all can.
func CountsEvents(tree *cgroup.Tree, events ...Event) error {
	for _, e := range events {
		if _, err := openPerf(tree, e); err != nil {
			return err
		}
	}
	return nil
}
