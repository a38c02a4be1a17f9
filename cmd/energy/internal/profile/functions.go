// SPDX-License-Identifier: Apache-2.0

package profile

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/google/pprof/profile"

	"github.com/energyreceiver/energyreceiver/cmd/energy/internal/measure"
	"github.com/energyreceiver/energyreceiver/cmd/energy/internal/plot"
	"github.com/energyreceiver/energyreceiver/internal/profiles"
	"github.com/energyreceiver/energyreceiver/internal/units"
)

// selfEnergy returns the energy of functions without their callees, by descending energy.
func selfEnergy(p *profile.Profile) []measure.Function {
	byName := map[string]units.Energy{}
	for _, s := range p.Sample {
		byName[innermost(s)] += units.Energy(s.Value[0])
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

// framesOf returns a function that returns the process and then the functions of a sample, the outermost first.
func framesOf(s *profile.Sample) func() (name string, ok bool) {
	hasProcess, left, lines := false, s.Location, 0 // lines of the last location that were returned
	return func() (string, bool) {
		if !hasProcess {
			hasProcess = true
			return strings.Join(s.Label[processLabel], ""), true
		}
		for ; len(left) > 0; left, lines = left[:len(left)-1], 0 {
			if of := left[len(left)-1].Line; lines < len(of) {
				lines++
				return of[len(of)-lines].Function.Name, true
			}
		}
		return "", false
	}
}

// innermost returns the innermost function of a sample.
func innermost(s *profile.Sample) string {
	for _, loc := range s.Location {
		for _, line := range loc.Line {
			return line.Function.Name
		}
	}
	return notSampled
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
		if len(p.SampleType) != 1 || t.Type != profiles.Energy || t.Unit != profiles.Microjoules {
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
	var stacks []*plot.Stack
	for _, s := range p.Sample {
		stacks = append(stacks, &plot.Stack{Used: units.Energy(s.Value[0]), Next: framesOf(s)})
	}
	if base != nil {
		for _, s := range base.profile.Sample {
			stacks = append(stacks, &plot.Stack{Base: units.Energy(s.Value[0]), Next: framesOf(s)})
		}
	}
	return plot.NewFrame(root, stacks)
}
