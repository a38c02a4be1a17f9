// SPDX-License-Identifier: Apache-2.0

package profile

import (
	"cmp"
	"iter"
	"slices"
	"strings"

	"github.com/google/pprof/profile"

	"github.com/energyreceiver/energyreceiver/cmd/energy/internal/measure"
	"github.com/energyreceiver/energyreceiver/internal/units"
)

// Limits of a tree of stacks. A page shows it, and the command determines how many stacks there are.
const (
	// leastShare is the share of the energy, of the command or of the base, that a frame must exceed.
	leastShare = 0.0003
	maxFrames  = 10_000
	maxDepth   = 250
	// maxNames is the maximum length of all names together in bytes.
	maxNames = 1 << 20
)

// frameSamples is a frame with its samples.
type frameSamples struct {
	*measure.Stack
	samples []*profile.Sample
}

// stacksOf returns the frames of samples by name: the command, its processes, and their functions with
// their callees. Callees with little energy have no frame: their energy is the caller's own. If there
// are too many frames, the innermost ones are left out.
func stacksOf(command string, samples []*profile.Sample) *measure.Stack {
	root := newStack(command, samples)
	isLarge := func(s *measure.Stack) bool {
		return float64(s.Used) > leastShare*float64(root.Used) || float64(s.Base) > leastShare*float64(root.Base)
	}
	frames, names := 1, len(root.Name)
	level := []frameSamples{{root, slices.Clone(samples)}}
	for depth := 0; depth < maxDepth && len(level) > 0; depth++ {
		var next []frameSamples
		for _, caller := range level {
			for name, of := range calleesOf(caller.samples, depth) {
				callee := newStack(name, of)
				if !isLarge(callee) || frames == maxFrames || names+len(callee.Name) > maxNames {
					continue
				}
				frames, names = frames+1, names+len(callee.Name)
				caller.Children = append(caller.Children, callee)
				next = append(next, frameSamples{callee, of})
			}
		}
		level = next
	}
	return root
}

// newStack returns the frame of samples, without children.
func newStack(name string, samples []*profile.Sample) *measure.Stack {
	s := &measure.Stack{Name: clean(name)}
	s.Used, s.Base = sumOf(samples)
	return s
}

// calleesOf yields the samples of a frame at a depth by the name of the callee, in order. It reorders
// the samples.
func calleesOf(samples []*profile.Sample, depth int) iter.Seq2[string, []*profile.Sample] {
	return func(yield func(string, []*profile.Sample) bool) {
		samples = slices.DeleteFunc(samples, func(s *profile.Sample) bool { return depth > len(s.Location) })
		slices.SortFunc(samples, func(a, b *profile.Sample) int {
			return cmp.Compare(calleeOf(a, depth), calleeOf(b, depth))
		})
		for len(samples) > 0 {
			name := calleeOf(samples[0], depth)
			end := slices.IndexFunc(samples, func(s *profile.Sample) bool { return calleeOf(s, depth) != name })
			if end < 0 {
				end = len(samples)
			}
			if !yield(name, samples[:end]) {
				return
			}
			samples = samples[end:]
		}
	}
}

// calleeOf returns the name of the callee of the frame at a depth: the process, and then the functions,
// the outermost first.
func calleeOf(s *profile.Sample, depth int) string {
	if depth == 0 {
		return strings.Join(s.Label[processLabel], "")
	}
	return nameOf(s.Location[len(s.Location)-depth])
}

// sumOf returns the energy of samples in the profile and in the base.
func sumOf(samples []*profile.Sample) (used, base units.Energy) {
	for _, s := range samples {
		u, b := energyOf(s)
		used, base = used+u, base+b
	}
	return used, base
}
