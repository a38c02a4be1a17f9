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
// fitted to the measured energy of a zone kind of the node. Until the model is fitted, a Model has
// no weights.
type Model struct {
	*ByRate // whose source the Model is
	events  *Events
	model   calibrated.Model
	fit     *calibrated.Fit // of the interval, or nil

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

// NewModel returns a Model that is fitted to these events. It fails if one of the events cannot be
// counted on the whole machine. The last Model that is closed closes the counters.
func NewModel(events *Events, tree *cgroup.Tree) (*Model, error) {
	if err := events.acquire(tree); err != nil {
		return nil, err
	}
	m := &Model{events: events}
	m.ByRate = newByRate(m)
	return m, nil
}

// Calibrate sets the total energy of the zone kind, and the time when it was measured. It is called
// before Weigh. A total below the previous total belongs to other zones, and the model is not
// fitted to the difference.
func (m *Model) Calibrate(total units.Energy, at time.Time) { m.energy = energyAt{total, at} }

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
func (e *Events) begin(now time.Time, shares []*Share) {
	if now.Equal(e.now) {
		return
	}
	e.now = now
	for _, c := range e.of {
		c.begin(now, shares)
	}
}

const (
	// layerWidth is the difference of the clock rates of two layers, in cycles per second.
	layerWidth = 100e6
	// maxLayer is the layer of all higher rates, which no CPU has. Cycles per CPU time are higher
	// if most of the node's CPU time is spent in interrupts, or is not in the shares yet. The
	// maximum bounds the number of layers, and their memory.
	maxLayer = 100
)

func (m *Model) begin(now time.Time, shares []*Share) {
	m.events.begin(now, shares)
	for i, c := range m.events.of {
		m.counted[i] += float64(c.all.counted)
		m.incomplete = m.incomplete || !c.all.known
	}
	for _, s := range shares {
		m.cpu = units.AddSaturating(m.cpu, s.CPU)
	}
	if m.energy.at.After(m.last.at) {
		m.learn()
	}
}

// learn adds the sample since the last one to the model, and selects the fit of its clock rate.
func (m *Model) learn() {
	seconds := m.energy.at.Sub(m.last.at).Seconds()
	usable := !m.incomplete && !m.last.at.IsZero() && m.energy.total >= m.last.total
	s := calibrated.Sample{Watts: float64(m.energy.total-m.last.total) / float64(units.Joule) / seconds}
	if m.cpu > 0 {
		s.Layer = int(math.Round(min(m.counted[0]/m.cpu.Seconds()/layerWidth, maxLayer)))
	}
	for i, n := range m.counted {
		s.Rates[i] = n / seconds
	}
	m.last, m.counted, m.cpu, m.incomplete = m.energy, calibrated.Rates{}, 0, false
	if usable {
		m.model.Observe(s)
		m.fit = m.model.At(s.Layer)
	}
}

// rate returns the estimated power of the CPU time, in watts per CPU.
func (m *Model) rate(s *Share) (uint64, bool) {
	if m.fit == nil {
		return 0, false
	}
	var perSecond calibrated.Rates
	for i, c := range m.events.of {
		rate, ok := c.rate(s)
		if !ok {
			return 0, false
		}
		perSecond[i] = float64(rate) / one * float64(units.Second)
	}
	return uint64(min(m.fit.Active(&perSecond), maxWatts) * one), true
}

// maxWatts is more than a CPU uses.
const maxWatts = 1 << 20

func (m *Model) counts(n *cgroup.Node, yield func(Event, uint64)) {
	for _, c := range m.events.of {
		c.counts(n, yield)
	}
}

func (m *Model) forget() {
	for _, c := range m.events.of {
		c.forget()
	}
	m.incomplete = true
}

// trouble returns why an event is not counted. A model is fitted without instructions or cache
// misses if these do not occur: some virtual machines count cycles only.
func (m *Model) trouble() error {
	for i, c := range m.events.of {
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

func (m *Model) name() string {
	return fmt.Sprintf("the power of %s, %s and %s by perf events", Cycles, Instructions, CacheMisses)
}

func (m *Model) close() error { return m.events.release() }
