// SPDX-License-Identifier: Apache-2.0

package profiles

import (
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"go.opentelemetry.io/collector/pdata/pprofile"
)

// dictionary returns a dictionary with one entry in each table, and a stack that refers to missing
// locations, too.
func dictionary() Dictionary {
	d := DictionaryOf(pprofile.NewProfiles())
	d.StringTable().Append("name")
	d.FunctionTable().AppendEmpty().SetStartLine(7)
	d.LinkTable().AppendEmpty().SetSpanID([8]byte{7})
	d.MappingTable().AppendEmpty().SetMemoryStart(7)
	d.LocationTable().AppendEmpty().SetAddress(7)
	d.StackTable().AppendEmpty().LocationIndices().Append(0, -1, 1, math.MaxInt32, math.MinInt32, 0)
	return d
}

func TestAnIndexOutOfRangeRefersToAnEmptyEntry(t *testing.T) {
	d, none := dictionary(), DictionaryOf(pprofile.NewProfiles())
	for _, index := range []int32{0, -1, 1, math.MaxInt32, math.MinInt32} {
		sample, location := pprofile.NewSample(), pprofile.NewLocation()
		sample.SetLinkIndex(index)
		sample.SetStackIndex(index)
		location.SetMappingIndex(index)
		got := []any{
			d.Text(index) == "name", d.Function(index).StartLine() == 7, !d.Link(sample).SpanID().IsEmpty(),
			d.Mapping(location).MemoryStart() == 7, len(slices.Collect(d.Stack(sample))) == 2,
		}
		for _, found := range got {
			assert.Equal(t, index == 0, found, "%d: %v", index, got)
		}
		assert.Empty(t, none.Text(index))
		assert.Empty(t, slices.Collect(none.Stack(sample)))
	}
}

func TestADictionaryIsReadWithoutAllocations(t *testing.T) {
	d, sample, location := dictionary(), pprofile.NewSample(), pprofile.NewLocation()
	assert.Zero(t, testing.AllocsPerRun(100, func() {
		for l := range d.Stack(sample) {
			d.Text(d.Mapping(l).FilenameStrindex())
		}
		d.Text(d.Function(0).NameStrindex())
		d.Link(sample)
		d.Mapping(location)
	}))
}

func TestAllYieldsTheProfilesOfAllScopes(t *testing.T) {
	rp := pprofile.NewResourceProfiles()
	for range 3 {
		scope := rp.ScopeProfiles().AppendEmpty()
		scope.Profiles().AppendEmpty()
		scope.Profiles().AppendEmpty()
	}
	assert.Len(t, slices.Collect(All(rp)), 6)
	for range All(rp) {
		break
	}
}
