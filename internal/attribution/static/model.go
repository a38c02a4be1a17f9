// SPDX-License-Identifier: Apache-2.0

package static

import (
	"math"
	"time"

	"github.com/energyreceiver/energyreceiver/internal/attribution"
	"github.com/energyreceiver/energyreceiver/internal/units"
)

// Model estimates the static power of the zones of one kind from the portions that it divides,
// separately for each domain. The active energy of a zone is max(0, energy - static power * time).
// Before the first estimate of the static power, the model divides by utilization. A model of
// NewCurve divides by its prior before the first sample, and has a provisional estimate from the
// first sample on. Trained reports whether the estimate is exact enough.
//
// The zero Model is not usable; call NewMinimum, NewResting, NewBase, NewRegression or NewCurve. A
// Model is used by one Sharer, and is not safe for concurrent use.
type Model struct {
	newEstimator func() estimator
	standIn      func(attribution.Portion) units.Energy // divides portions before the first sample
	sampleLength time.Duration
	meter        meter
	domains      []domainModel
}

var _ attribution.TrainedModel = (*Model)(nil)

// estimator estimates the static power of the zones of a kind in one domain.
type estimator interface {
	// observe adds a sample.
	observe(sample)
	// estimate returns the estimate of the static power.
	estimate() estimate
	// state returns the trained state as finite numbers.
	state() []float64
	// restore restores a result of state. It returns false if the state is invalid or belongs to
	// another method. In that case the estimator must not be used any more.
	restore([]float64) bool
}

// estimate is an estimator's estimate of the static power.
type estimate struct {
	watts float64
	// standardError is the standard error of watts, negative if not available.
	standardError float64
	// usable reports whether watts is better than no estimate. trained reports whether it is exact
	// enough to count as trained.
	usable, trained bool
	// provisional reports whether watts is a provisional estimate, from too few samples.
	provisional bool
	// stepped reports whether a step of the static power was found since the last sample.
	stepped bool
}

// sample is the average power of all zones of a kind in a domain over a period.
type sample struct {
	utilization float64 // 0 to 1
	watts       float64
	seconds     float64
}

// domainModel holds the training state of one domain.
type domainModel struct {
	estimator     estimator // nil before the first sample
	zones         int       // number of zones that the estimator was trained on
	gathered      gathering
	inUse         bool    // there is an estimate
	applied       float64 // static power in use in watts, once there is an estimate
	standardError float64 // of applied, in watts; negative if not available
	trained       bool
	// provisional reports whether applied is a provisional estimate.
	provisional bool
}

// gathering is a sample that is not complete yet.
type gathering struct {
	energy      units.Energy
	busy, total units.CPUTime
	elapsed     time.Duration
}

const (
	// usualSample is the length of samples if windows are shorter. A sample ends with the window
	// whose end is nearest to this length, because the length of windows varies slightly (0.9998
	// s). It covers at least two thirds of this length.
	usualSample = time.Second
	// maxSampleLength is the maximum length of a window that is used as a sample. The average power
	// over a longer gap is not meaningful.
	maxSampleLength = 5 * time.Minute
	// adoption is the time constant of the static power in use, which follows the estimate.
	adoption = 10 * time.Minute
)

func newModel(newEstimator func() estimator) *Model {
	return &Model{newEstimator: newEstimator, standIn: attribution.ByUtilization, sampleLength: usualSample}
}

// TakeShortSamples makes each window of a tenth of a second a sample. Short samples show idle
// moments, which longer samples average with load. Models of NewCurve benefit most. The energy and
// the utilization of a portion must cover the same time, to a few milliseconds. If power sensors
// read the zones before, the training starts over.
func (m *Model) TakeShortSamples() { m.take(promptCounter, shortSample) }

// TakePowerSensors declares that power sensors, for example of the whole machine, read the zones.
// Models of NewCurve then never count as trained, because the idle power that such sensors read
// depends on the previous workload. If prompt counters read the zones before, the training starts
// over with samples of the usual length.
func (m *Model) TakePowerSensors() { m.take(powerSensor, usualSample) }

// take sets the meter and the length of samples. Estimates from the samples of another meter are
// discarded.
func (m *Model) take(meter meter, sampleLength time.Duration) {
	if m.meter != meter {
		clear(m.domains)
	}
	m.meter, m.sampleLength = meter, sampleLength
}

// Provisional reports whether a domain has no estimate yet, or a provisional one.
func (m *Model) Provisional(domain int) bool {
	d := m.domain(domain)
	return !d.inUse || d.provisional
}

// domain returns the model of a domain.
func (m *Model) domain(i int) *domainModel {
	for len(m.domains) <= i {
		m.domains = append(m.domains, domainModel{})
	}
	return &m.domains[i]
}

// Active returns the active part of a portion, and uses the portion for training.
func (m *Model) Active(p attribution.Portion) units.Energy {
	d := m.domain(p.Domain)
	m.gather(d, p)
	if !d.inUse || p.Of == 0 {
		return m.standIn(p)
	}
	static := d.applied * float64(p.Zones) / float64(max(p.Of, d.zones)) * p.Elapsed.Seconds() * float64(units.Joule)
	return p.Above(units.Energy(math.Round(min(static, math.MaxInt64))))
}

// gather adds a portion to the current sample. The portion must cover all zones of its kind and
// domain, including zones that have not been read since a restart.
func (m *Model) gather(d *domainModel, p attribution.Portion) {
	if c, ok := d.estimator.(*curve); ok && p.Elapsed > maxSampleLength {
		c.pass(p.Elapsed.Seconds())
	}
	if p.Partial || p.Zones != p.Of || p.Of < d.zones || p.Elapsed <= 0 || p.Elapsed > maxSampleLength {
		return
	}
	if d.zones != p.Of {
		*d = domainModel{zones: p.Of} // the training state belongs to other zones
	}
	if d.estimator == nil {
		d.estimator = m.newEstimator()
	}
	g := &d.gathered
	g.energy += p.Energy
	g.busy += min(p.Busy, p.Total)
	g.total += p.Total
	g.elapsed += p.Elapsed
	if g.elapsed+p.Elapsed/2 < m.sampleLength {
		return
	}
	seconds := g.elapsed.Seconds()
	d.estimator.observe(sample{
		utilization: float64(g.busy) / float64(g.total),
		watts:       g.energy.Joules() / seconds,
		seconds:     seconds,
	})
	*g = gathering{}
	d.follow(seconds)
}

// follow moves the static power in use towards the estimate. The first estimate, an estimate that
// replaces a provisional one, the first trained estimate, and an estimate after a step take effect
// at once.
func (d *domainModel) follow(seconds float64) {
	e := d.estimator.estimate()
	switch {
	case !e.usable, e.provisional && d.inUse && !d.provisional:
	case !d.inUse, d.provisional, e.trained && !d.trained, e.stepped:
		d.inUse, d.applied, d.provisional = true, e.watts, e.provisional
	default:
		d.applied += (e.watts - d.applied) * -math.Expm1(-seconds/adoption.Seconds())
	}
	d.assess(e)
}

// assess updates the standard error and the training state of the static power in use from an
// estimate.
func (d *domainModel) assess(e estimate) {
	d.trained = d.inUse && e.trained
	if e.usable {
		if d.standardError = e.standardError; e.standardError >= 0 {
			d.standardError = math.Hypot(e.standardError, d.applied-e.watts)
		}
	}
}

// Trained reports whether the static power of a domain is trained: its estimate is exact enough.
func (m *Model) Trained(domain int) bool { return m.domain(domain).trained }

// StaticPower returns the static power in use for a domain in watts, or 0 before the first
// estimate.
func (m *Model) StaticPower(domain int) float64 { return m.domain(domain).applied }

// StandardError returns the standard error of a domain's static power in watts, including
// provisional estimates. It is negative before the first estimate, and if the method has no
// standard error.
func (m *Model) StandardError(domain int) float64 {
	if d := m.domain(domain); d.inUse {
		return d.standardError
	}
	return -1
}

// State is the trained state of a Model in one domain.
type State struct {
	// Zones is the number of zones of the kind that the domain had.
	Zones int
	// Static is the static power in use in watts, if InUse.
	Static float64
	InUse  bool
	// Provisional reports whether Static is a provisional estimate.
	Provisional bool
	// Estimator is the state of the method.
	Estimator []float64
}

// State returns the trained state of a domain; ok is false if the domain has no state.
func (m *Model) State(domain int) (state State, ok bool) {
	d := m.domain(domain)
	if d.estimator == nil {
		return State{}, false
	}
	return State{
		Zones: d.zones, Static: d.applied, InUse: d.inUse, Provisional: d.provisional, Estimator: d.estimator.state(),
	}, true
}

// Restore restores a result of State. It returns false, and does not change the model, if the state
// is invalid or belongs to another method.
func (m *Model) Restore(domain int, state State) bool {
	e := m.newEstimator()
	if state.Zones <= 0 || !plausible(maxWatts, state.Static) || !e.restore(state.Estimator) {
		return false
	}
	d := m.domain(domain)
	*d = domainModel{
		estimator: e, zones: state.Zones, applied: state.Static, inUse: state.InUse, standardError: -1, provisional: state.Provisional,
	}
	d.assess(e.estimate())
	return true
}

// maxWatts exceeds the power of any machine.
const maxWatts = 1e6

// plausible reports whether all numbers are between 0 and most. It returns false for NaN.
func plausible(most float64, numbers ...float64) bool {
	for _, n := range numbers {
		if !(n >= 0 && n <= most) {
			return false
		}
	}
	return true
}
