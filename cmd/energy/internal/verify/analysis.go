// SPDX-License-Identifier: Apache-2.0

package verify

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/energyreceiver/energyreceiver/internal/power"
)

// Status is the result of a check.
type Status string

// The results.
const (
	OK        Status = "ok"
	Note      Status = "note" // nothing is wrong with the meter or the receiver, but the reader should know
	Fault     Status = "fault"
	Unchecked Status = "not checked"
)

// Verdict is the result of one check in plain words.
type Verdict struct {
	Check  string `json:"check"`
	Status Status `json:"status"`
	Text   string `json:"text"`
}

// Figures are the properties of a zone that the run measured. A field is NaN if it is unknown.
type Figures struct {
	Idle, Full float64 // power at rest and with all CPUs busy
	Update     float64 // seconds between two values
	Unit       float64 // joules of one count
	Lag        float64 // seconds
	Average    float64 // seconds over which the meter averages
	Noise      float64 // standard deviation under a constant load, relative
}

// analysis derives verdicts from an observation. The checks run in the order of the table checks:
// a zone with a fault is not used by later checks, so that each fault has one name.
type analysis struct {
	*Observation
	check    string
	verdicts []Verdict
	figures  map[*Zone]*Figures
	blamed   map[*Zone]bool
	unusable map[*Step]bool
	kinds    map[string]bool // classes whose totals have a fault
}

// checks are all checks, those first that others depend on.
var checks = []struct {
	name string
	run  func(*analysis)
}{
	{"permissions", (*analysis).permissions},
	{"backend", (*analysis).backend},
	{"load", (*analysis).load},
	{"reads", (*analysis).reads},
	{"zero", (*analysis).zero},
	{"standstill", (*analysis).standstill},
	{"unit", (*analysis).unit},
	{"temperature", (*analysis).temperature},
	{"wrap", (*analysis).wrap},
	{"lag", (*analysis).lag},
	{"load following", (*analysis).following},
	{"noise", (*analysis).noise},
	{"sockets", (*analysis).sockets},
	{"agreement", (*analysis).agreement},
	{"parts and whole", (*analysis).parts},
	{"dram", (*analysis).dram},
	{"closure", (*analysis).closure},
	{"sums", (*analysis).sums},
	{"totals", (*analysis).totals},
	{"symmetry", (*analysis).symmetry},
	{"static power", (*analysis).static},
	{"standard error", (*analysis).standardError},
	{"cpu time", (*analysis).cpuTime},
	{"gpu", (*analysis).gpu},
}

// Check returns the verdict of every check, and the figures of each zone.
func Check(o *Observation) ([]Verdict, map[*Zone]*Figures) {
	a := &analysis{
		Observation: o, figures: map[*Zone]*Figures{}, blamed: map[*Zone]bool{}, unusable: map[*Step]bool{}, kinds: map[string]bool{},
	}
	for _, z := range o.Zones {
		nan := math.NaN()
		a.figures[z] = &Figures{Idle: nan, Full: nan, Unit: nan, Lag: nan, Average: nan, Noise: nan, Update: period(z.Points)}
	}
	for _, c := range checks {
		a.check = c.name
		c.run(a)
	}
	for _, z := range o.Zones {
		f := a.figures[z]
		f.Idle, f.Full = a.lowest(z), a.mean(a.stepsOf(a.isFull), z)
	}
	return a.verdicts, a.figures
}

func (a *analysis) add(status Status, format string, args ...any) {
	a.verdicts = append(a.verdicts, Verdict{a.check, status, fmt.Sprintf(format, args...)})
}

// blame reports a fault of zones.
func (a *analysis) blame(zones []*Zone, format string, args ...any) {
	for _, z := range zones {
		a.blamed[z] = true
	}
	a.add(Fault, format, args...)
}

// mostListed is how much of what was checked a verdict lists.
const mostListed = 4

// conclude adds the verdict of a check that has found no fault.
func (a *analysis) conclude(done []string, ok, otherwise string) {
	switch {
	case slices.ContainsFunc(a.verdicts, func(v Verdict) bool { return v.Check == a.check && v.Status == Fault }):
	case len(done) > mostListed+1:
		a.add(OK, "%s (%s and %d more)", ok, strings.Join(done[:mostListed], ", "), len(done)-mostListed)
	case len(done) > 0:
		a.add(OK, "%s (%s)", ok, strings.Join(done, ", "))
	default:
		a.add(Unchecked, "%s", otherwise)
	}
}

// measured returns the zones without a fault.
func (a *analysis) measured() (zones []*Zone) {
	for _, z := range a.Zones {
		if z.Method == power.Measured && !a.blamed[z] {
			zones = append(zones, z)
		}
	}
	return zones
}

// group is all zones of a kind that one meter reads.
type group struct {
	meter string
	kind  power.Kind
	zones []*Zone
}

func (g *group) String() string { return fmt.Sprintf("%s %s", g.meter, g.kind) }

// groups returns the groups of a kind that have no fault, the receiver's choice first.
func (a *analysis) groups(kind power.Kind) (groups []*group) {
	for _, z := range a.Zones {
		if z.Method != power.Measured || z.Kind != kind {
			continue
		}
		i := slices.IndexFunc(groups, func(g *group) bool { return g.meter == z.Meter })
		if i < 0 {
			i = len(groups)
			groups = append(groups, &group{meter: z.Meter, kind: kind})
		}
		groups[i].zones = append(groups[i].zones, z)
	}
	groups = slices.DeleteFunc(groups, func(g *group) bool { return slices.ContainsFunc(g.zones, func(z *Zone) bool { return a.blamed[z] }) })
	slices.SortStableFunc(groups, func(x, y *group) int {
		switch {
		case x.zones[0].Chosen == y.zones[0].Chosen:
			return 0
		case x.zones[0].Chosen:
			return -1
		}
		return 1
	})
	return groups
}

// first returns the preferred group of a kind, nil if there is none.
func (a *analysis) first(kind power.Kind) *group {
	if groups := a.groups(kind); len(groups) > 0 {
		return groups[0]
	}
	return nil
}

// parts returns the groups that together are the known parts of the machine.
func (a *analysis) partsOf(kinds ...power.Kind) (parts []*group) {
	for _, k := range kinds {
		if g := a.first(k); g != nil {
			parts = append(parts, g)
		}
	}
	return parts
}

// settle is the time after a change of load that is not evaluated.
const settle = 1.5

// watts returns the power of a zone in a step, NaN if the step is too short for the zone. A value
// may show the power of any moment since the previous one.
func (a *analysis) watts(s *Step, z *Zone) float64 {
	f := a.figures[z]
	lag, update := zeroIfNaN(f.Lag), zeroIfNaN(f.Update)
	from, to := s.From+lag+max(settle, update+zeroIfNaN(f.Average)), s.To+lag-update
	if last := len(z.Points) - 1; last >= 0 {
		to = min(to, z.Points[last].At)
	}
	if to-from < 1 {
		return math.NaN()
	}
	return rate(z.Points, from, to)
}

func zeroIfNaN(v float64) float64 {
	if math.IsNaN(v) {
		return 0
	}
	return v
}

// groupWatts returns the power of groups in a step.
func (a *analysis) groupWatts(s *Step, groups ...*group) (sum float64) {
	for _, g := range groups {
		for _, z := range g.zones {
			sum += a.watts(s, z)
		}
	}
	return sum
}

// mean returns the mean power of a zone over steps, NaN if none can be evaluated.
func (a *analysis) mean(steps []*Step, zones ...*Zone) float64 {
	sum, n := 0., 0.
	for _, s := range steps {
		if w := a.groupWatts(s, &group{zones: zones}); !math.IsNaN(w) {
			sum, n = sum+w, n+1
		}
	}
	return sum / n
}

// lowest returns the lowest power of zones in a step at rest, NaN if there was none.
func (a *analysis) lowest(zones ...*Zone) float64 {
	least := math.NaN()
	for _, s := range a.stepsOf(isIdle) {
		if w := a.groupWatts(s, &group{zones: zones}); math.IsNaN(least) || w < least {
			least = w
		}
	}
	return least
}

// stepsOf returns the usable steps for which is reports true.
func (a *analysis) stepsOf(is func(*Step) bool) (steps []*Step) {
	for _, s := range a.Steps {
		if !a.unusable[s] && is(s) {
			steps = append(steps, s)
		}
	}
	return steps
}

func always(*Step) bool { return true }

func isIdle(s *Step) bool { return s.Load == Idle }

func isMemory(s *Step) bool { return s.Load == Memory }

// isFull reports whether a step keeps all CPUs spinning.
func (a *analysis) isFull(s *Step) bool { return s.Load == Spin && len(s.CPUs) == len(a.Machine.CPUs) }

// busy returns how many of these CPUs were busy on average, NaN if that is unknown.
func (a *analysis) busy(from, to float64, cpus []int) (sum float64) {
	for _, cpu := range cpus {
		if cpu >= len(a.Busy) {
			return math.NaN()
		}
		sum += rate(a.Busy[cpu], from, to)
	}
	return sum
}

// all returns the numbers of all CPUs.
func (m *Machine) all() (cpus []int) {
	for _, c := range m.CPUs {
		cpus = append(cpus, c.Number)
	}
	return cpus
}

// on returns the numbers of the CPUs of a socket.
func (m *Machine) on(socket int) (cpus []int) {
	for _, c := range m.CPUs {
		if c.Socket == socket {
			cpus = append(cpus, c.Number)
		}
	}
	return cpus
}

// cpu returns the place of a CPU.
func (m *Machine) cpu(number int) CPU {
	if i := slices.IndexFunc(m.CPUs, func(c CPU) bool { return c.Number == number }); i >= 0 {
		return m.CPUs[i]
	}
	return CPU{Number: number}
}
