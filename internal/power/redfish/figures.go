// SPDX-License-Identifier: Apache-2.0

package redfish

import (
	"encoding/json"
	"errors"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/energyreceiver/energyreceiver/internal/fetch"
	"github.com/energyreceiver/energyreceiver/internal/power"
)

// figures lists the properties that report energy or power, in order of preference.
var figures = [...]struct {
	name   string
	energy bool
	unit   float64 // µJ or µW
	of     func(*metrics) excerpt
}{
	{"EnergyJoules", true, 1e6, func(m *metrics) excerpt { return m.EnergyJoules }},
	{"EnergykWh", true, 3.6e12, func(m *metrics) excerpt { return m.EnergykWh }},
	{"PowerWatts", false, 1e6, func(m *metrics) excerpt { return m.PowerWatts }},
	{"InputPowerWatts", false, 1e6, func(m *metrics) excerpt { return m.InputPowerWatts }},
	{"OutputPowerWatts, without the supplies' losses", false, 1e6, func(m *metrics) excerpt { return m.OutputPowerWatts }},
	{"PowerConsumedWatts", false, 1e6, func(m *metrics) excerpt { return excerpt{Reading: m.control.PowerConsumedWatts} }},
	{"AverageConsumedWatts", false, 1e6, func(m *metrics) excerpt { return m.control.average() }},
}

// metrics are the properties of EnvironmentMetrics, PowerSupplyMetrics and Power that are read.
type metrics struct {
	DateTime                                                               text
	EnergyJoules, EnergykWh, PowerWatts, InputPowerWatts, OutputPowerWatts excerpt
	PowerControl                                                           []powerControl

	control powerControl // the machine's
}

// excerpt is a figure of a sensor.
type excerpt struct {
	Reading     json.RawMessage
	ReadingTime text
	average     time.Duration // the averaging time of Reading, 0 if not available
}

// UnmarshalJSON also accepts a number instead of an object.
func (e *excerpt) UnmarshalJSON(b []byte) error {
	if len(b) > 0 && b[0] == '{' {
		type object excerpt
		return json.Unmarshal(b, (*object)(e))
	}
	e.Reading = slices.Clone(b)
	return nil
}

// text is a string, or empty if the value has another type.
type text string

// UnmarshalJSON never returns an error.
func (t *text) UnmarshalJSON(b []byte) error {
	var s string
	if json.Unmarshal(b, &s) == nil {
		*t = text(s)
	}
	return nil
}

// powerControl is a member of Power.PowerControl.
type powerControl struct {
	PowerConsumedWatts json.RawMessage
	PowerMetrics       struct{ AverageConsumedWatts, IntervalInMin json.RawMessage }
	RelatedItem        []link
}

// maxAverage is the maximum averaging time of a power. A longer average does not show the current
// power.
const maxAverage = 5 * time.Minute

// average returns the average power. It is used only without another figure, and only if it covers
// the last minutes.
func (c *powerControl) average() excerpt {
	minutes, err := fetch.Number(c.PowerMetrics.IntervalInMin)
	if over := time.Duration(minutes * float64(time.Minute)); err == nil && minutes > 0 && minutes <= maxAverage.Minutes() {
		return excerpt{Reading: c.PowerMetrics.AverageConsumedWatts, average: over}
	}
	return excerpt{}
}

// controlOf returns the member of PowerControl that is related to the machine. If no member is
// related to it, controlOf returns the first. Other members describe parts, such as processors.
func controlOf(all []powerControl, related []string) powerControl {
	for _, c := range all {
		if slices.ContainsFunc(c.RelatedItem, func(l link) bool { return slices.Contains(related, clean(l.Path)) }) {
			return c
		}
	}
	if len(all) > 0 {
		return all[0]
	}
	return powerControl{}
}

// totals are the figures of a source at one moment.
type totals struct {
	at       time.Time // of the last answer
	readings [len(figures)]reading
}

// reading is one figure of a source.
type reading struct {
	value   float64 // µJ or µW
	step    float64 // the smallest difference that its digits can show, in the same unit
	average time.Duration
	stamp   string
	err     error
}

// add adds the figures of a resource. A figure that one resource lacks is missing in the totals.
func (t *totals) add(isFirst bool, m *metrics, related []string, at time.Time) {
	m.control = controlOf(m.PowerControl, related)
	t.at = at
	for i := range figures {
		e := figures[i].of(m)
		r := readingOf(&e, figures[i].unit)
		r.stamp = string(m.DateTime) + string(e.ReadingTime)
		if !isFirst {
			sum := t.readings[i]
			r.value += sum.value
			r.step = max(r.step, sum.step)
			r.stamp += sum.stamp
			if sum.err != nil {
				r.err = sum.err
			}
		}
		t.readings[i] = r
	}
}

// check marks sums that are impossible.
func (t *totals) check() {
	for i := range figures {
		r := &t.readings[i]
		most := float64(power.MaxPlatformWatts * 1e6)
		if figures[i].energy {
			most = 1 << 62 // a thousand GWh
		}
		switch {
		case r.err != nil:
		case !(r.value > 0):
			r.err = errZero
		case r.value > most:
			r.err = errRange
		}
	}
}

// watts returns the power that the resources report in addition to their energy, or 0.
func (t *totals) watts() float64 {
	for i := range figures {
		if !figures[i].energy && t.readings[i].err == nil {
			return t.readings[i].value / figures[i].unit
		}
	}
	return 0
}

// err returns the reason if there is no figure.
func (t *totals) err() error {
	for i := range figures {
		if err := t.readings[i].err; !errors.Is(err, fetch.ErrNoValue) {
			return err
		}
	}
	return fetch.ErrNoValue
}

// readingOf returns a figure in µJ or µW.
func readingOf(e *excerpt, unit float64) reading {
	digits, err := fetch.NumberText(e.Reading)
	if err != nil {
		return reading{err: err}
	}
	value, err := strconv.ParseFloat(digits, 64)
	switch {
	case err != nil:
		return reading{err: errRange}
	case value < 0:
		return reading{err: errZero}
	}
	return reading{value: value * unit, step: step(digits, value) * unit, average: e.average}
}

// step returns the value of the last digit of a number. More than six decimals are digits of a
// binary fraction, not of the sensor.
func step(digits string, value float64) float64 {
	mantissa, exponent, _ := strings.Cut(strings.ToLower(digits), "e")
	_, decimals, _ := strings.Cut(mantissa, ".")
	power, _ := strconv.Atoi(exponent)
	places := len(decimals) - power
	if places > 6 {
		_, decimals, _ = strings.Cut(strconv.FormatFloat(value, 'f', 6, 64), ".")
		places = len(strings.TrimRight(decimals, "0"))
	}
	return math.Pow10(-max(places, 0))
}

const (
	// fineStep is the maximum step of a counter that is preferred to power, in µJ. A step of 0.001
	// kWh, which takes 12 s at 300 W, is smaller.
	fineStep = 4e9
	// standstill is the maximum time without a change of a counter while the power is at least
	// standstillWatts. The energy in this time is more than three fine steps.
	standstill      = 10 * time.Minute
	standstillWatts = 20
)

// counter holds the observed properties of an energy counter.
type counter struct {
	step   float64   // the smallest step of all readings, in µJ: a number that ends in zeros has fewer digits
	value  float64   // the last value, in µJ
	moved  time.Time // when the value last changed
	frozen bool      // the value did not change while the machine used energy
}

// isFine records a reading, and reports whether the counter is preferable to power: its steps are
// small, and its value changes.
func (c *counter) isFine(r *reading, watts float64, at time.Time) bool {
	if c.step == 0 || r.step < c.step {
		c.step = r.step
	}
	if c.moved.IsZero() || c.value != r.value {
		c.value, c.moved = r.value, at
	}
	if watts >= standstillWatts && at.Sub(c.moved) > standstill {
		c.frozen = true
	}
	return c.step <= fineStep && !c.frozen
}
