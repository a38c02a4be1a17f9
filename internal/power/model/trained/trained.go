// SPDX-License-Identifier: Apache-2.0

// Package trained reads and writes power models that were trained on a machine with meters: models
// of the command energy model, and published models of Kepler Model Server. Curves selects the
// model that fits a machine best.
package trained

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/energyreceiver/energyreceiver/internal/machine"
	"github.com/energyreceiver/energyreceiver/internal/power"
	"github.com/energyreceiver/energyreceiver/internal/power/model"
)

// Kinds lists the zone kinds that a model can have, in the order of Curves.
var Kinds = []power.Kind{power.Package, power.Core, power.Uncore, power.DRAM, power.PSys, power.Platform}

// Options are the requirements on a model.
type Options struct {
	// Want reports whether zones of the kind are to be modeled. nil means all.
	Want func(power.Kind) bool
	// NoIdle excludes the power with no CPU busy from the curves of a virtual machine, so that they
	// have only its dynamic power.
	NoIdle bool
	// Readable returns the reason if a feature cannot be read on this machine, otherwise nil. If
	// Readable is nil, all features can be read.
	Readable func(model.Feature) error
}

func (o *Options) wants(k power.Kind) bool { return o.Want == nil || o.Want(k) }

// readable returns an error if a feature of the zone cannot be read on this machine.
func (o *Options) readable(z zone) error {
	if o.Readable == nil {
		return nil
	}
	for _, f := range z.needs() {
		if err := o.Readable(f); err != nil {
			return fmt.Errorf("%s cannot be read here (%w): use a model over CPU time, such as one of the group BPFOnly", FeatureName(f), err)
		}
	}
	return nil
}

// Curves returns the power curves of the machine m, from the model in the file at path. If path is
// a directory, Curves uses the best fitting model of the files *.json in it. A model fits if it was
// trained on a machine that has, best first:
//
//  1. the same CPU and as many threads
//  2. the same CPU; the power is scaled by the number of threads, so that a virtual machine has its
//     share
//  3. a CPU of the same vendor, family and model; the power is scaled as well
//
// Among models that fit equally well, Curves selects the model with the smallest error, and then
// the first by name. A model that does not fit is never used, even if it is the only model. Models
// of Kepler Model Server may not state the machine of the training. Such a model fits if path is
// its file.
//
// Kepler Model Server has separate models of the whole power and of the dynamic power, so Curves
// also selects a model of dynamic power. With NoIdle, it provides the power of a virtual machine.
// Otherwise it sets the idle power: the power of the model of the whole power minus its own power,
// both with no CPU busy. The two models must have the same machine of the training.
//
// The error reports why there are no curves. If there are curves, the error lists the files of the
// directory that were not read, and the zones of the model that cannot be used.
func Curves(path string, m machine.Machine, o Options) ([]model.ZoneCurve, error) {
	found, err := read(path)
	if found == nil {
		return nil, err
	}
	best := found.choose(&m, &o, func(t *trainedModel) bool { return !t.dynamic })
	dynamic := found.choose(&m, &o, func(t *trainedModel) bool { return t.dynamic })
	switch {
	case best == nil && dynamic == nil:
		return nil, errors.Join(found.noneFits(&m, &o), err)
	case o.NoIdle && m.Virtual && dynamic != nil:
		curves, refused := dynamic.curves(&m, &o)
		if best == nil {
			return curves, errors.Join(refused, err)
		}
		whole, unusable := best.curves(&m, &o)
		return addMissing(curves, whole), errors.Join(refused, unusable, err)
	case best == nil:
		return nil, errors.Join(fmt.Errorf("model %s is of dynamic power (%s) only: add the model of AbsPower of the same machine, "+
			"or set idle to none in a virtual machine", dynamic.name, dynPower), err)
	}
	curves, refused := best.curves(&m, &o)
	if pair := found.choose(&m, &o, func(t *trainedModel) bool { return t.dynamic && t.machine == best.machine }); pair != nil {
		dynamics, unusable := pair.curves(&m, &o)
		setIdle(curves, dynamics, pair.name)
		refused = errors.Join(refused, unusable)
	}
	return curves, errors.Join(refused, err)
}

// addMissing adds the curves of other zone kinds.
func addMissing(curves, others []model.ZoneCurve) []model.ZoneCurve {
	for _, other := range others {
		if !slices.ContainsFunc(curves, func(c model.ZoneCurve) bool { return c.Kind == other.Kind }) {
			curves = append(curves, other)
		}
	}
	return curves
}

// setIdle sets the idle power of the curves that have a curve of dynamic power.
func setIdle(curves, dynamics []model.ZoneCurve, name string) {
	for i := range curves {
		for j := range dynamics {
			if c, d := &curves[i], &dynamics[j]; c.Kind == d.Kind {
				idle := max(c.IdleWatts()-d.IdleWatts(), 0)
				c.Idle = &idle
				c.Basis += ", with the dynamic power of " + name
			}
		}
	}
}

// trainedModel is a model and the name of its file.
type trainedModel struct {
	name    string // name of the file
	by      string // the trainer: "energy model"
	machine machine.Machine
	zones   map[power.Kind]zone
	refused error // why zones of the file are not among zones
	dynamic bool  // its power is the dynamic power only
}

// zone is a zone kind of a model.
type zone interface {
	// curve returns the power of the zone on a machine.
	curve(k power.Kind, s *scale) (model.ZoneCurve, error)
	// needs returns the features that the power depends on.
	needs() []model.Feature
	// relativeError returns the mean absolute error on the machine that the model was trained on,
	// relative to the power. It is 0 if not available.
	relativeError() float64
}

// scale compares this machine, which the model is used for, with the machine of the training.
type scale struct {
	threads int     // of this machine
	share   float64 // threads of this machine / threads of the other
	memory  float64 // memory of this machine / memory of the other
}

// errorOfSameModel is the median error if a machine's power is predicted from machines with a CPU
// of the same architecture, scaled by the number of chips. It was computed from SPECpower results
// of 619 systems, each left out in turn.
const errorOfSameModel = 0.099

// curves returns the curves of the wanted zones. The error lists the curves that cannot be used.
func (t *trainedModel) curves(m *machine.Machine, o *Options) ([]model.ZoneCurve, error) {
	s := scale{threads: m.Threads, share: ratio(float64(m.Threads), float64(t.machine.Threads))}
	s.memory = s.share
	if m.Memory > 0 && t.machine.Memory > 0 {
		s.memory = float64(m.Memory) / float64(t.machine.Memory)
	}
	how := t.fit(m)
	basis, noIdle := t.basis(how, m), o.NoIdle && m.Virtual
	if noIdle || t.dynamic {
		basis += ", without idle power"
	}
	var curves []model.ZoneCurve
	errs := []error{t.refused}
	for _, k := range Kinds {
		z := t.zones[k]
		if z == nil || !o.wants(k) {
			continue
		}
		c, err := z.curve(k, &s)
		if err == nil {
			err = o.readable(z)
		}
		if err == nil && noIdle && !t.dynamic {
			c, err = withoutIdle(c)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %s: %w", t.name, k, err))
			continue
		}
		expected := how.expectedError(z.relativeError())
		if m.Virtual && k != power.DRAM {
			expected = model.ErrorOfPart(expected)
		}
		c.Kind, c.Basis, c.ExpectedError = k, basis, expected
		curves = append(curves, c)
	}
	return curves, errors.Join(errs...)
}

// ratio returns a / b, or 1 if either is 0.
func ratio(a, b float64) float64 {
	if a <= 0 || b <= 0 {
		return 1
	}
	return a / b
}

// withoutIdle returns the power minus the power with no CPU busy.
func withoutIdle(c model.ZoneCurve) (model.ZoneCurve, error) {
	idle := c.IdleWatts()
	if whole := c.Function; whole != nil {
		c.Function = func(r *model.Rates) float64 { return max(whole(r)-idle, 0) }
		return c, nil
	}
	points := make([]model.Point, len(c.Curve))
	for i, p := range c.Curve {
		points[i] = model.Point{Utilization: p.Utilization, Watts: max(p.Watts-idle, 0)}
	}
	var err error
	c.Curve, err = model.NewCurve(points)
	return c, err
}

// expectedError returns the expected error of a model whose error in training is err. It assumes
// that this machine is not the machine of the training, because that machine has meters. 0 means
// not available.
func (f fit) expectedError(err float64) float64 {
	switch {
	case err == 0:
		return 0
	case f == sameModel:
		return max(err, errorOfSameModel)
	default:
		return max(err, model.SameCPUError)
	}
}

// basis describes the origin of the curves for the log.
func (t *trainedModel) basis(how fit, m *machine.Machine) string {
	text := fmt.Sprintf("model %s of %s, trained on ", t.name, t.by)
	switch how {
	case unstated:
		return text + "an unstated machine"
	case exact:
		return text + "the same CPU"
	case sameCPU:
		text += "the same CPU"
	default:
		text += t.machine.CPU
	}
	if t.machine.Threads != m.Threads {
		text += fmt.Sprintf(", for %d threads instead of %d", m.Threads, t.machine.Threads)
	}
	return text
}

// largestError returns the largest error of the wanted zones, or infinity if no zone has one.
func (t *trainedModel) largestError(o *Options) float64 {
	largest := 0.0
	for k, z := range t.zones {
		if o.wants(k) {
			largest = max(largest, z.relativeError())
		}
	}
	if largest == 0 {
		return math.Inf(1)
	}
	return largest
}

// usable returns an error unless at least one wanted zone can be used.
func (t *trainedModel) usable(o *Options) error {
	var errs []error
	for k, z := range t.zones {
		if o.wants(k) {
			err := o.readable(z)
			if err == nil {
				return nil
			}
			errs = append(errs, err)
		}
	}
	if len(errs) == 0 {
		return errors.New("it has no curve for any of the zones")
	}
	return errs[0]
}
