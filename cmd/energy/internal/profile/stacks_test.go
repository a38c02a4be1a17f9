// SPDX-License-Identifier: Apache-2.0

package profile

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/pprof/profile"
	"github.com/stretchr/testify/assert"

	"github.com/energyreceiver/energyreceiver/cmd/energy/internal/measure"
)

// energySample returns a sample, which belongs to the base if its energy is negative. The outermost
// function is the first of names.
func energySample(energy int64, process string, names ...string) *profile.Sample {
	s := &profile.Sample{Value: []int64{energy}, Label: map[string][]string{processLabel: {process}}}
	for i := range names {
		function := &profile.Function{Name: names[len(names)-1-i]}
		s.Location = append(s.Location, &profile.Location{Line: []profile.Line{{Function: function}}})
	}
	return s
}

func TestStacksHaveTheExactEnergyOfAProfileAndOfItsBase(t *testing.T) {
	root := stacksOf("make", []*profile.Sample{
		energySample(6e6, "cc1", "main", "parse"), energySample(-9e6, "cc1", "main", "parse"), energySample(1, "cc1", "main", "parse", "parse"),
		energySample(3e6, "cc1", "main", "a\x1b[2J"), energySample(1e6, "cc1", "main"), energySample(-2e6, "as", "gone"), energySample(100, "as", "small"),
		energySample(4e3, "cc1", "main", "parse", "parse"), energySample(5e3, "as", "parse", "main"),
	})
	recursion := &measure.Stack{Name: "parse", Used: 4001}
	assert.Equal(t, &measure.Stack{Name: "make", Used: 10_009_101, Base: 11e6, Children: []*measure.Stack{
		{Name: "as", Used: 5100, Base: 2e6, Children: []*measure.Stack{
			{Name: "gone", Base: 2e6}, {Name: "parse", Used: 5e3, Children: []*measure.Stack{{Name: "main", Used: 5e3}}},
		}},
		{Name: "cc1", Used: 10_004_001, Base: 9e6, Children: []*measure.Stack{
			{Name: "main", Used: 10_004_001, Base: 9e6, Children: []*measure.Stack{
				{Name: "a?[2J", Used: 3e6}, {Name: "parse", Used: 6_004_001, Base: 9e6, Children: []*measure.Stack{recursion}},
			}},
		}},
	}}, root)
	assert.Equal(t, &measure.Stack{Name: "true"}, stacksOf("true", nil))
}

// walk calls f for each frame of a tree. path has the names of the callers and of the frame.
func walk(s *measure.Stack, path string, f func(path string, s *measure.Stack)) {
	f(path, s)
	for _, child := range s.Children {
		walk(child, path+"/"+child.Name, f)
	}
}

func TestTheSizeOfATreeOfStacksIsBounded(t *testing.T) {
	for name, c := range map[string]struct{ stacks, depth, name, least int }{
		"frames": {900, 100, 1, maxFrames}, "names": {900, 5, maxName, 1500}, "depth": {1, 100_000, 1, maxDepth + 1},
	} {
		var samples []*profile.Sample
		for i := range c.stacks {
			names := make([]string, c.depth)
			for j := range names {
				names[j] = fmt.Sprint(strings.Repeat("n", c.name), j)
			}
			samples = append(samples, energySample(1, fmt.Sprint(i), names...))
		}
		frames, length, deepest := 0, 0, 0
		walk(stacksOf("c", samples), "c", func(path string, s *measure.Stack) {
			frames, length, deepest = frames+1, length+len(s.Name), max(deepest, strings.Count(path, "/"))
		})
		assert.GreaterOrEqual(t, frames, c.least, name)
		assert.LessOrEqual(t, frames, maxFrames, name)
		assert.LessOrEqual(t, length, maxNames, name)
		assert.LessOrEqual(t, deepest, maxDepth, name)
	}
}
