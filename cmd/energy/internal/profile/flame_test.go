// SPDX-License-Identifier: Apache-2.0

package profile

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"testing"

	"github.com/google/pprof/profile"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/energyreceiver/energyreceiver/cmd/energy/internal/golden"
)

// samplesOf returns a sample in a profile, if it used energy, and a sample in its base. The
// outermost function is first.
func samplesOf(used, base int64, process string, names ...string) (samples []*profile.Sample) {
	for _, energy := range []int64{used, -base} {
		s := &profile.Sample{Value: []int64{energy}, Label: map[string][]string{processLabel: {process}}}
		for i := range names {
			function := &profile.Function{Name: names[len(names)-1-i]}
			s.Location = append(s.Location, &profile.Location{Line: []profile.Line{{Function: function}}})
		}
		samples = append(samples, s)
	}
	return samples
}

func flameGraph(t *testing.T, samples []*profile.Sample, compare bool) string {
	t.Helper()
	var b bytes.Buffer
	require.NoError(t, writeFlame(&b, "10.0 J, -2.00 J (-17 %): make", "make", samples, compare))
	require.NoError(t, xml.Unmarshal(b.Bytes(), new(struct{})))
	return b.String()
}

func TestAFlameGraphShowsEnergyByStackAndItsChange(t *testing.T) {
	var all []*profile.Sample // of a program that calls two functions, one of which the base lacks
	for _, s := range [][]*profile.Sample{
		samplesOf(6_000_000, 9_000_000, "cc1", "main", "parse"),
		samplesOf(3_000_000, 0, "cc1", "main", "std::operator<"),
		samplesOf(1_000_000, 1_000_000, "cc1", "main"),
		samplesOf(0, 2_000_000, "as", "gone"),
		samplesOf(100, 100, "as", "narrow"),
	} {
		all = append(all, s...)
	}
	golden.Equal(t, "flame.svg", flameGraph(t, all, false))
	golden.Equal(t, "flame-compared.svg", flameGraph(t, all, true))
	assert.NotContains(t, flameGraph(t, nil, true), "<title>", "no energy")
}

func TestTheSizeOfAFlameGraphIsBounded(t *testing.T) {
	var all []*profile.Sample
	for i := range 1000 {
		names := make([]string, 100)
		for j := range names {
			names[j] = fmt.Sprint(i, " ", j)
		}
		all = append(all, samplesOf(1, 0, "make", names...)...)
	}
	const limit, frame = 100_000, 1000
	f := newFlame(all, false)
	f.limit = limit
	f.draw("command", all, 0, 0)
	assert.Greater(t, f.Len(), limit)
	assert.Less(t, f.Len(), limit+frame)
}
