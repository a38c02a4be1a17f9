// SPDX-License-Identifier: Apache-2.0

package plot

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/energyreceiver/energyreceiver/cmd/energy/internal/golden"
	"github.com/energyreceiver/energyreceiver/internal/units"
)

// stackOf returns a stack, the outermost function first.
func stackOf(used, base units.Energy, names ...string) *Stack {
	return &Stack{Used: used, Base: base, Next: func() (name string, ok bool) {
		if len(names) == 0 {
			return "", false
		}
		name, names = names[0], names[1:]
		return name, true
	}}
}

// stacks are the stacks of a program that calls two functions, one of which an earlier profile lacks.
func stacks() []*Stack {
	return []*Stack{
		stackOf(6_000_000, 9_000_000, "cc1", "main", "parse"),
		stackOf(3_000_000, 0, "cc1", "main", "std::operator<"),
		stackOf(1_000_000, 1_000_000, "cc1", "main"),
		stackOf(0, 2_000_000, "as", "gone"),
		stackOf(100, 100, "as", "narrow"),
	}
}

func flameGraph(t *testing.T, stacks []*Stack, compare bool) string {
	t.Helper()
	var b bytes.Buffer
	require.NoError(t, Flame(&b, "10.00 J, -2.00 J (-17 %): make", "make", stacks, compare))
	return b.String()
}

func TestAFlameGraphShowsEnergyByStackAndItsChange(t *testing.T) {
	image := flameGraph(t, stacks(), false)
	golden.Equal(t, "flame.svg", image)
	assert.Subset(t, texts(t, image), []string{"main  10.00 J", "std::operator<  3.00 J"})
	assert.NotContains(t, image, "more than before")
	compared := flameGraph(t, stacks(), true)
	golden.Equal(t, "flame-compared.svg", compared)
	assert.Subset(t, texts(t, compared), []string{"more than before", "less than before"})
	assert.NotContains(t, flameGraph(t, nil, true), "<title>", "no energy")
}

func TestTheCalleesOfFramesThatAreTooNarrowAreNotRead(t *testing.T) {
	var all []*Stack
	for i := range 10_000 {
		s := stackOf(1, 1, fmt.Sprint("group ", i%10), fmt.Sprint("stack ", i))
		next, calls := s.Next, 0
		s.Next = func() (string, bool) {
			calls++
			assert.LessOrEqual(t, calls, 2)
			return next()
		}
		all = append(all, s)
	}
	assert.Equal(t, 11, strings.Count(flameGraph(t, all, false), "<title>"))
}

func TestTheSizeOfAFlameGraphIsBounded(t *testing.T) {
	var all []*Stack
	for i := range 1000 {
		names := make([]string, 100)
		for j := range names {
			names[j] = fmt.Sprint(i, " ", j)
		}
		all = append(all, stackOf(1, 0, names...))
	}
	const limit, frame = 100_000, 1000
	g := newFlame(all, false)
	g.limit = limit
	g.draw("command", all, 0, 0)
	assert.Greater(t, g.Len(), limit)
	assert.Less(t, g.Len(), limit+frame)
}
