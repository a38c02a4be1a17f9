// SPDX-License-Identifier: Apache-2.0

package trained

import (
	"errors"
	"fmt"
	"slices"

	"github.com/energyreceiver/energyreceiver/internal/power"
	"github.com/energyreceiver/energyreceiver/internal/power/model"
)

// keplerZone is a component of a model of Kepler Model Server.
type keplerZone struct {
	inputs []input // sorted by name, as in Kepler Model Server (deep_sort)
	uses   []model.Feature
	watts  func(x []float64) float64
	x      []float64 // scaled features, of the last call
	steps  bool      // watts is not continuous
	error  float64   // relative, 0 if not available
}

// input is a feature that is scaled to x = (feature - mean) / scale. Unused features are 0.
type input struct {
	used        bool
	feature     model.Feature
	mean, scale float64
}

// smallestScale is the minimum scale of a feature. A scale is the largest rate in training, which
// is larger for every feature.
const smallestScale = 0.01

// newZone returns a zone with the power watts(x). x has the scaled features, sorted by their names.
// uses reports whether watts depends on a feature.
func (w *weightsJSON) newZone(uses func(name string) bool, watts func(x []float64) float64) (*keplerZone, error) {
	z := &keplerZone{watts: watts, x: make([]float64, len(w.Numerical))}
	for _, name := range sortedNames(w.Numerical) {
		f := w.Numerical[name]
		feature, ok := known[name]
		used := uses(name)
		switch {
		case used && !ok:
			return nil, fmt.Errorf("it depends on the feature %.40q, which is not read: only %s are; use a model of another trainer, or "+
				"of the group CounterOnly", name, names(known))
		case used && !(f.Scale > 0):
			return nil, fmt.Errorf("the scale of %.40q is %v", name, f.Scale)
		case f.Scale != 0 && f.Scale < smallestScale:
			return nil, fmt.Errorf("the scale %v of %.40q is a factor without an offset, as in kepler-model-db v0.6: "+
				"convert the archive of the model with %s", f.Scale, name, exporter)
		}
		z.inputs = append(z.inputs, input{used, feature, f.Mean, f.Scale})
		if used {
			z.uses = append(z.uses, feature)
		}
	}
	return z, z.check()
}

// check returns an error if the power of the component is invalid at a load between 0 and the
// largest load of the training.
func (z *keplerZone) check() error {
	if idle := z.at(&model.Rates{}); !isPower(idle) {
		return fmt.Errorf("its power with no CPU busy is %v W", idle)
	}
	for i := range segments {
		var r model.Rates
		share := float64(i+1) / segments
		for _, in := range z.inputs {
			if in.used {
				r[in.feature] = in.mean + share*in.scale
			}
		}
		if watts := z.at(&r); !isPower(watts) {
			return fmt.Errorf("its power at %.3g of the largest load of its training is %v W", share, watts)
		}
	}
	return nil
}

func isPower(watts float64) bool { return watts >= 0 && watts <= maxWatts }

// at returns the power at rates, at least 0.
func (z *keplerZone) at(r *model.Rates) float64 {
	for i, in := range z.inputs {
		if in.used {
			z.x[i] = (r[in.feature] - in.mean) / in.scale
		}
	}
	watts := z.watts(z.x)
	if watts < 0 { // keep NaN
		return 0
	}
	return watts
}

// isNothing reports whether the power is always 0, because the machine of the training did not have
// the zone.
func (z *keplerZone) isNothing() bool { return len(z.uses) == 0 && z.at(&model.Rates{}) == 0 }

func (z *keplerZone) relativeError() float64 { return z.error }

func (z *keplerZone) needs() []model.Feature { return z.uses }

// curve returns the power as Kepler computes it: at the rates of this machine, which are not
// scaled. If this machine has fewer threads than the machine of the training, only the power
// without load is scaled by the number of threads.
func (z *keplerZone) curve(_ power.Kind, s *scale) (c model.ZoneCurve, err error) {
	if s.threads < 1 {
		return c, errors.New("the number of threads of this machine is not available")
	}
	elsewhere := z.at(&model.Rates{}) * (1 - min(1, s.share))
	watts := func(r *model.Rates) float64 { return max(z.at(r)-elsewhere, 0) } // keeps NaN
	if z.steps || slices.ContainsFunc(z.uses, func(f model.Feature) bool { return f != model.CPUTime }) {
		return model.ZoneCurve{Function: watts, Needs: z.uses}, nil
	}
	c.Curve, err = sample(func(u float64) float64 {
		return watts(&model.Rates{model.CPUTime: u * 1000 * float64(s.threads)})
	})
	return c, err
}

// FeatureName returns the name of a feature in Kepler Model Server.
func FeatureName(f model.Feature) string {
	for name, feature := range known {
		if feature == f {
			return name
		}
	}
	return ""
}
