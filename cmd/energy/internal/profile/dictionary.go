// SPDX-License-Identifier: Apache-2.0

package profile

import (
	"iter"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/pprofile"
)

// dictionary reads the tables of profiles. An index that is out of range stands for an empty entry.
type dictionary struct{ pprofile.ProfilesDictionary }

func (d dictionary) text(index int32) string {
	if uint(index) < uint(d.StringTable().Len()) {
		return d.StringTable().At(int(index))
	}
	return ""
}

func (d dictionary) function(index int32) pprofile.Function {
	if uint(index) < uint(d.FunctionTable().Len()) {
		return d.FunctionTable().At(int(index))
	}
	return pprofile.NewFunction()
}

func (d dictionary) mapping(of pprofile.Location) pprofile.Mapping {
	if index := of.MappingIndex(); uint(index) < uint(d.MappingTable().Len()) {
		return d.MappingTable().At(int(index))
	}
	return pprofile.NewMapping()
}

// stack yields the locations of a sample, the innermost first.
func (d dictionary) stack(of pprofile.Sample) iter.Seq[pprofile.Location] {
	return func(yield func(pprofile.Location) bool) {
		if uint(of.StackIndex()) >= uint(d.StackTable().Len()) {
			return
		}
		for _, index := range d.StackTable().At(int(of.StackIndex())).LocationIndices().All() {
			if uint(index) < uint(d.LocationTable().Len()) && !yield(d.LocationTable().At(int(index))) {
				return
			}
		}
	}
}

// text returns an attribute of a resource, empty if it is missing.
func text(of pcommon.Resource, key string) string {
	value, ok := of.Attributes().Get(key)
	if !ok {
		return ""
	}
	return value.AsString()
}
