// SPDX-License-Identifier: Apache-2.0

package profile

import (
	"maps"
	"slices"
	"strings"

	"github.com/google/pprof/profile"

	"github.com/energyreceiver/energyreceiver/cmd/energy/internal/measure"
)

// Limits of a tree of stacks. The measured command determines the number and the depth of stacks.
const (
	// leastShare is the share of the energy of the command or the base that a frame must exceed.
	leastShare = 0.0003
	maxFrames  = 10_000
	maxDepth   = 250
	// maxNames is the maximum length of all names in bytes.
	maxNames = 1 << 20
)

// frameSamples is a frame and the samples that contain it.
type frameSamples struct {
	*measure.Stack
	samples []*profile.Sample
}

// stacksOf returns a tree of frames: the command, its processes, and their functions with callees.
// Callees with little energy have no frame, and their energy is the caller's own. If there are too
// many frames, the innermost ones are omitted.
func stacksOf(command string, samples []*profile.Sample) *measure.Stack {
	root := newStack(command, samples)
	isLarge := func(s *measure.Stack) bool {
		return float64(s.Used) > leastShare*float64(root.Used) || float64(s.Base) > leastShare*float64(root.Base)
	}
	frames, names := 1, len(root.Name)
	level := []frameSamples{{root, samples}}
	for depth := 0; depth < maxDepth && len(level) > 0; depth++ {
		var next []frameSamples
		for _, caller := range level {
			callees := calleesOf(caller.samples, depth)
			for _, name := range slices.Sorted(maps.Keys(callees)) {
				callee := newStack(name, callees[name])
				if !isLarge(callee) || frames == maxFrames || names+len(callee.Name) > maxNames {
					continue
				}
				frames, names = frames+1, names+len(callee.Name)
				caller.Children = append(caller.Children, callee)
				next = append(next, frameSamples{callee, callees[name]})
			}
		}
		level = next
	}
	return root
}

// newStack returns the frame of samples, without children.
func newStack(name string, samples []*profile.Sample) *measure.Stack {
	s := &measure.Stack{Name: clean(name)}
	for _, of := range samples {
		used, base := energyOf(of)
		s.Used, s.Base = s.Used+used, s.Base+base
	}
	return s
}

// calleesOf returns the samples of a frame at a depth, grouped by the name of the callee. Callees
// are processes at depth 0, and functions below.
func calleesOf(samples []*profile.Sample, depth int) map[string][]*profile.Sample {
	callees := map[string][]*profile.Sample{}
	for _, s := range samples {
		if depth > len(s.Location) {
			continue // the frame is the innermost
		}
		name := strings.Join(s.Label[processLabel], "")
		if depth > 0 {
			name = nameOf(s.Location[len(s.Location)-depth])
		}
		callees[name] = append(callees[name], s)
	}
	return callees
}
