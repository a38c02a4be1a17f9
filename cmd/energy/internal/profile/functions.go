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
	"github.com/energyreceiver/energyreceiver/cmd/energy/internal/plot"
	"github.com/energyreceiver/energyreceiver/internal/units"
)

// selfEnergy returns the energy of functions without their callees, by descending energy.
func selfEnergy(p *profile.Profile) []measure.Function {
	byName := map[string]units.Energy{}
	for _, s := range p.Sample {
		name := notSampled
		if names := frames(s); len(names) > 1 {
			name = names[len(names)-1]
		}
		byName[name] += units.Energy(s.Value[0])
	}
	var all []measure.Function
	for name, used := range byName {
		all = append(all, measure.Function{Name: name, Used: used})
	}
	slices.SortFunc(all, func(a, b measure.Function) int {
		return cmp.Or(cmp.Compare(b.Used, a.Used), cmp.Compare(a.Name, b.Name))
	})
	return all
}

// compare adds functions of a base, and sorts all by the difference.
func compare(of []measure.Function, base *Base) []measure.Function {
	byName := map[string]measure.Function{}
	for _, f := range of {
		byName[f.Name] = f
	}
	for _, f := range selfEnergy(base.profile) {
		both := byName[f.Name]
		both.Name, both.Base = f.Name, f.Used
		byName[f.Name] = both
	}
	difference := func(f measure.Function) units.Energy { return max(f.Used, f.Base) - min(f.Used, f.Base) }
	return slices.SortedFunc(maps.Values(byName), func(a, b measure.Function) int {
		return cmp.Or(cmp.Compare(difference(b), difference(a)), cmp.Compare(a.Name, b.Name))
	})
}

// frames returns the process and the functions of a sample, the outermost first.
func frames(s *profile.Sample) []string {
	names := []string{""}
	if process := s.Label[processLabel]; len(process) > 0 {
		names[0] = process[0]
	}
	for _, loc := range slices.Backward(s.Location) {
		for _, line := range slices.Backward(loc.Line) {
			names = append(names, line.Function.Name)
		}
	}
	return names
}

// Base is an earlier profile to compare with.
type Base struct{ profile *profile.Profile }

// ReadBase reads an energy profile that a run wrote.
func ReadBase(r io.Reader) (*Base, error) {
	p, err := profile.Parse(r)
	if err != nil {
		return nil, err
	}
	for _, t := range p.SampleType {
		if len(p.SampleType) != 1 || t.Type != sampleType || t.Unit != sampleUnit {
			return nil, fmt.Errorf("no energy profile: it has %s in %s", t.Type, t.Unit)
		}
	}
	if slices.ContainsFunc(p.Sample, func(s *profile.Sample) bool { return s.Value[0] < 0 }) {
		return nil, errors.New("no energy profile: an energy is negative")
	}
	return &Base{p}, nil
}

func (b *Base) used() (sum units.Energy) {
	for _, s := range b.profile.Sample {
		sum += units.Energy(s.Value[0])
	}
	return sum
}

// flame returns the stacks of a profile as a tree, and those of a base in it. base may be nil.
func flame(root string, p *profile.Profile, base *Base) *plot.Frame {
	tree := &plot.Frame{Name: root}
	for _, s := range p.Sample {
		tree.Add(frames(s), units.Energy(s.Value[0]), 0)
	}
	if base != nil {
		for _, s := range base.profile.Sample {
			tree.Add(frames(s), 0, units.Energy(s.Value[0]))
		}
	}
	return tree
}
