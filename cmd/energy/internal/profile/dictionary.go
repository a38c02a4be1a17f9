// SPDX-License-Identifier: Apache-2.0

package profile

import (
	"iter"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/pprofile"
)

// dictionary reads the tables of profiles. An index that is out of range stands for an empty entry.
type dictionary struct{ pprofile.ProfilesDictionary }

var noFunction, noMapping, noStack = pprofile.NewFunction(), pprofile.NewMapping(), pprofile.NewStack()

func (d dictionary) text(index int32) string { return at(d.StringTable(), index, "") }

func (d dictionary) function(index int32) pprofile.Function {
	return at(d.FunctionTable(), index, noFunction)
}

func (d dictionary) mapping(of pprofile.Location) pprofile.Mapping {
	return at(d.MappingTable(), of.MappingIndex(), noMapping)
}

// stack yields the locations of a sample, the innermost first.
func (d dictionary) stack(of pprofile.Sample) iter.Seq[pprofile.Location] {
	return func(yield func(pprofile.Location) bool) {
		for _, index := range at(d.StackTable(), of.StackIndex(), noStack).LocationIndices().All() {
			if uint(index) < uint(d.LocationTable().Len()) && !yield(d.LocationTable().At(int(index))) {
				return
			}
		}
	}
}

// at returns an entry of a table, or none.
func at[T any](table interface {
	Len() int
	At(i int) T
}, index int32, none T) T {
	if uint(index) < uint(table.Len()) {
		return table.At(int(index))
	}
	return none
}

// text returns an attribute of a resource, empty if it is missing.
func text(of pcommon.Resource, key string) string {
	value, ok := of.Attributes().Get(key)
	if !ok {
		return ""
	}
	return value.AsString()
}
