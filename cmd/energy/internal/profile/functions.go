// SPDX-License-Identifier: Apache-2.0

package profile

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"

	"github.com/google/pprof/profile"

	"github.com/energyreceiver/energyreceiver/cmd/energy/internal/measure"
	"github.com/energyreceiver/energyreceiver/internal/profiles"
	"github.com/energyreceiver/energyreceiver/internal/units"
)

// Base has the samples of an earlier profile to compare with, nil without one. Energies are
// negative, as with pprof -diff_base.
type Base []*profile.Sample

// ReadBase reads an energy profile that a run wrote.
func ReadBase(r io.Reader) (Base, error) {
	p, err := profile.Parse(r)
	if err != nil {
		return nil, err
	}
	for _, t := range p.SampleType {
		if len(p.SampleType) != 1 || t.Type != profiles.Energy || t.Unit != profiles.Microjoules {
			return nil, fmt.Errorf("not an energy profile: it has %s in %s", t.Type, t.Unit)
		}
	}
	sum := int64(0)
	for _, s := range p.Sample {
		if sum += s.Value[0]; s.Value[0] < 0 || sum < 0 { // or the sum overflows
			return nil, errors.New("not an energy profile: an energy is negative or too large")
		}
		s.Value[0] = -s.Value[0]
	}
	return append(Base{}, p.Sample...), nil
}

// energyOf returns the energy of a sample, in the profile or in the base.
func energyOf(s *profile.Sample) (used, base units.Energy) {
	if v := s.Value[0]; v < 0 {
		return 0, units.Energy(-v)
	}
	return units.Energy(s.Value[0]), 0
}

// functionsOf returns the energy of functions without their callees, by descending difference to
// the base.
func functionsOf(samples []*profile.Sample) []measure.Function {
	byName := map[string]measure.Function{}
	for _, s := range samples {
		f := measure.Function{Name: notSampled}
		if len(s.Location) > 0 {
			f.Name = nameOf(s.Location[0])
		}
		used, base := energyOf(s)
		f.Used, f.Base = byName[f.Name].Used+used, byName[f.Name].Base+base
		byName[f.Name] = f
	}
	difference := func(f measure.Function) units.Energy { return max(f.Used, f.Base) - min(f.Used, f.Base) }
	return slices.SortedFunc(maps.Values(byName), func(a, b measure.Function) int {
		return cmp.Or(cmp.Compare(difference(b), difference(a)), cmp.Compare(a.Name, b.Name))
	})
}

// nameOf returns the name of the function at a location.
func nameOf(l *profile.Location) string {
	if len(l.Line) == 0 || l.Line[0].Function == nil { // a base of another program
		return "[unknown]"
	}
	return l.Line[0].Function.Name
}
