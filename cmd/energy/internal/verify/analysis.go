// SPDX-License-Identifier: Apache-2.0

package verify

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"gonum.org/v1/gonum/stat"

	"github.com/energyreceiver/energyreceiver/internal/power"
)

// Status is the result of a check.
type Status string

// The results.
const (
	OK        Status = "ok"
	Note      Status = "note" // the meter and the receiver are right, with a hint for the reader
	Fault     Status = "fault"
	Unchecked Status = "not checked"
)

// Verdict is the result of one check in plain words.
type Verdict struct {
	Check  string `json:"check"`
	Status Status `json:"status"`
	Text   string `json:"text"`
}

// analysis derives verdicts from an observation.
type analysis struct {
	*Observation
	verdicts []Verdict
	// blamed holds zones and classes with a fault, which later checks skip so that each fault is
	// reported once, and steps that cannot be evaluated.
	blamed map[any]bool
}

// Check sets the figures of each zone and returns the verdict of every check.
func Check(o *Observation) []Verdict {
	a := &analysis{Observation: o, blamed: map[any]bool{}}
	nan := math.NaN()
	for _, z := range o.Zones {
		z.Figures = Figures{nan, nan, period(z.Points), nan, nan, nan, nan}
	}
	for i := range checks {
		a.run(&checks[i])
	}
	for _, z := range o.Zones {
		z.Idle, z.Full = a.rest(z), a.mean(a.full(), z)
	}
	return a.verdicts
}

// check is a row of the table of checks.
type check struct {
	name  string
	meter bool // it needs a meter
	on    func(*analysis) []*judgment
	// judge compares figures of a subject with their bounds.
	judge func(*judgment)
	// ok is the sentence if all figures are within their bounds, otherwise if there was no figure.
	ok, otherwise string
}

// judgment is the result of a check for one subject: the machine, zones, a class or a GPU.
type judgment struct {
	*analysis
	name  string
	zones []*Zone     // of one meter and kind
	class power.Class // of the receiver's energy
	other *judgment   // to compare with
	gpu   string      // ID

	check  string
	listed string // in the list of subjects without a fault
	known  bool   // a figure could be compared
	failed bool
}

// keys returns the parts of a subject that a fault makes unusable: its zones and its class.
func (j *judgment) keys() (keys []any) {
	for _, z := range j.zones {
		keys = append(keys, z)
	}
	if j.class != (power.Class{}) {
		keys = append(keys, j.class)
	}
	return keys
}

func (a *analysis) isBlamed(j *judgment) bool {
	return slices.ContainsFunc(j.keys(), func(key any) bool { return a.blamed[key] })
}

// between adds a fault if a figure is out of bounds, unless it is NaN. The first fault of a subject
// counts.
func (j *judgment) between(figure, least, most float64, words string, args ...any) {
	j.known = j.known || !math.IsNaN(figure)
	if figure < least || figure > most {
		j.fail(Fault, words, args...)
	}
}

func (j *judgment) atLeast(figure, least float64, words string, args ...any) {
	j.between(figure, least, math.Inf(1), words, args...)
}

func (j *judgment) atMost(figure, most float64, words string, args ...any) {
	j.between(figure, math.Inf(-1), most, words, args...)
}

// fail adds a verdict. Later checks skip the subject.
func (j *judgment) fail(status Status, words string, args ...any) {
	if j.failed {
		return
	}
	j.failed = true
	for _, key := range j.keys() {
		j.blamed[key] = true
	}
	j.say(status, words, args...)
}

// say adds a verdict. Later checks still include the subject.
func (j *judgment) say(status Status, words string, args ...any) {
	j.verdicts = append(j.verdicts, Verdict{j.check, status, fmt.Sprintf(words, args...)})
}

// list sets the text of the subject in the list of subjects without a fault.
func (j *judgment) list(format string, args ...any) { j.listed = fmt.Sprintf(format, args...) }

// noMeter is the text of checks that need a meter on a machine without one.
const noMeter = "This machine has no meter that can be read, so only the receiver is checked"

// mostListed is the maximum number of subjects in a verdict.
const mostListed = 4

// run adds the verdicts of a check.
func (a *analysis) run(c *check) {
	before := len(a.verdicts)
	var done []string
	for _, j := range c.on(a) {
		if a.isBlamed(j) {
			continue
		}
		j.analysis, j.check, j.listed = a, c.name, j.name
		c.judge(j)
		if j.known && !j.failed {
			done = append(done, j.listed)
		}
	}
	if most := min(len(done), mostListed); len(done) > most+1 {
		done = append(done[:most], fmt.Sprintf("%d more", len(done)-most))
	}
	added := a.verdicts[before:]
	switch {
	case slices.ContainsFunc(added, func(v Verdict) bool { return v.Status == Fault }):
	case len(done) > 0:
		a.verdicts = append(a.verdicts, Verdict{c.name, OK, fmt.Sprintf("%s (%s)", c.ok, strings.Join(done, ", "))})
	case len(added) == 0 && c.meter && !slices.ContainsFunc(a.Zones, isMeasured):
		a.verdicts = append(a.verdicts, Verdict{c.name, Unchecked, noMeter})
	case len(added) == 0:
		a.verdicts = append(a.verdicts, Verdict{c.name, Unchecked, cmp.Or(c.otherwise, "No meter was read")})
	}
}

// groups returns the zones of each meter that reads a kind without a fault, the receiver's choice
// first.
func (a *analysis) groups(kind power.Kind) (groups []*judgment) {
	for _, z := range a.Zones {
		if !isMeasured(z) || z.Kind != kind {
			continue
		}
		name := fmt.Sprintf("%s %s", z.Meter, kind)
		i := slices.IndexFunc(groups, func(g *judgment) bool { return g.name == name })
		if i < 0 {
			i = len(groups)
			groups = append(groups, &judgment{name: name})
		}
		groups[i].zones = append(groups[i].zones, z)
	}
	groups = slices.DeleteFunc(groups, a.isBlamed)
	if i := slices.IndexFunc(groups, func(g *judgment) bool { return g.zones[0].Chosen }); i > 0 {
		groups[0], groups[i] = groups[i], groups[0]
	}
	return groups
}

// preferred returns the preferred group of a kind, if there is one.
func (a *analysis) preferred(kind power.Kind) []*judgment {
	groups := a.groups(kind)
	return groups[:min(len(groups), 1)]
}

// settle is the time after a change of load that is not evaluated.
const settle = 1.5

// watts returns the power of zones in a step, NaN if the step is too short for one of them. A value
// may show the power of any moment since the previous one.
func (a *analysis) watts(s *Step, zones ...*Zone) (sum float64) {
	for _, z := range zones {
		lag, update := orZero(z.Lag), orZero(z.Update)
		from := s.From + lag + max(settle, update+orZero(z.Average))
		to := min(s.To+lag-update, lastAt(z.Points))
		if !(to-from >= 1) {
			return math.NaN()
		}
		sum += rate(z.Points, from, to)
	}
	return sum
}

// orZero returns a figure, or 0 for NaN.
func orZero(v float64) float64 {
	if math.IsNaN(v) {
		return 0
	}
	return v
}

// powers returns the power of zones in each step that is long enough.
func (a *analysis) powers(steps []*Step, zones ...*Zone) []float64 {
	watts, _ := a.both(steps, zones, nil)
	return watts
}

// both returns the powers of two groups of zones in each step that is long enough for both.
func (a *analysis) both(steps []*Step, x, y []*Zone) (xs, ys []float64) {
	for _, s := range steps {
		if wx, wy := a.watts(s, x...), a.watts(s, y...); !math.IsNaN(wx + wy) {
			xs, ys = append(xs, wx), append(ys, wy)
		}
	}
	return xs, ys
}

// mean returns the mean power of zones over steps, NaN if no step is long enough.
func (a *analysis) mean(steps []*Step, zones ...*Zone) float64 {
	return stat.Mean(a.powers(steps, zones...), nil)
}

// rest returns the lowest power of zones in a step at rest, NaN without such a step.
func (a *analysis) rest(zones ...*Zone) float64 {
	watts := a.powers(a.steps(Idle), zones...)
	if len(watts) == 0 {
		return math.NaN()
	}
	return slices.Min(watts)
}

// steps returns the steps with one of these loads that can be evaluated.
func (a *analysis) steps(loads ...Load) (steps []*Step) {
	for _, s := range a.Steps {
		if !a.blamed[s] && slices.Contains(loads, s.Load) {
			steps = append(steps, s)
		}
	}
	return steps
}

// full returns the steps that keep all CPUs spinning.
func (a *analysis) full() []*Step {
	return slices.DeleteFunc(a.steps(Spin), func(s *Step) bool { return len(s.CPUs) < len(a.Machine.CPUs) })
}

// busy returns the share of time that CPUs were busy in a step, NaN if it was not recorded.
func (a *analysis) busy(s *Step, cpus []int) (share float64) {
	for _, cpu := range cpus {
		share += rate(a.Busy[cpu], s.From+settle, s.To) / float64(len(cpus))
	}
	return share
}
