// SPDX-License-Identifier: Apache-2.0

// Package profiles reads profiles of OpenTelemetry that other programs sent.
package profiles

import (
	"iter"

	"go.opentelemetry.io/collector/pdata/pprofile"
)

// Energy and Microjoules are the type and the unit of the samples in energy profiles.
const (
	Energy      = "energy"
	Microjoules = "microjoules"
)

// Dictionary reads the tables of profiles without copies. An index that is out of range refers to
// an empty entry.
type Dictionary struct{ pprofile.ProfilesDictionary }

// DictionaryOf returns the dictionary of profiles.
func DictionaryOf(pd pprofile.Profiles) Dictionary { return Dictionary{pd.Dictionary()} }

// The empty entries, which must not be changed.
var (
	noFunction = pprofile.NewFunction()
	noLink     = pprofile.NewLink()
	noMapping  = pprofile.NewMapping()
	noStack    = pprofile.NewStack()
)

// Text returns a string.
func (d Dictionary) Text(index int32) string {
	if table := d.StringTable(); isIn(index, table.Len()) {
		return table.At(int(index))
	}
	return ""
}

// Function returns a function.
func (d Dictionary) Function(index int32) pprofile.Function {
	if table := d.FunctionTable(); isIn(index, table.Len()) {
		return table.At(int(index))
	}
	return noFunction
}

// Mapping returns the mapping of a location.
func (d Dictionary) Mapping(of pprofile.Location) pprofile.Mapping {
	if table := d.MappingTable(); isIn(of.MappingIndex(), table.Len()) {
		return table.At(int(of.MappingIndex()))
	}
	return noMapping
}

// Link returns the link of a sample.
func (d Dictionary) Link(of pprofile.Sample) pprofile.Link {
	if table := d.LinkTable(); isIn(of.LinkIndex(), table.Len()) {
		return table.At(int(of.LinkIndex()))
	}
	return noLink
}

// Stack yields the locations of a sample, the innermost first. It skips indices that are out of range.
func (d Dictionary) Stack(of pprofile.Sample) iter.Seq[pprofile.Location] {
	return func(yield func(pprofile.Location) bool) {
		stack, locations := noStack, d.LocationTable()
		if table := d.StackTable(); isIn(of.StackIndex(), table.Len()) {
			stack = table.At(int(of.StackIndex()))
		}
		for _, index := range stack.LocationIndices().All() {
			if isIn(index, locations.Len()) && !yield(locations.At(int(index))) {
				return
			}
		}
	}
}

// Has reports whether the dictionary has every entry that a sample refers to. If an entry is missing,
// backends refuse the whole batch.
func (d Dictionary) Has(s pprofile.Sample) bool {
	for _, i := range s.AttributeIndices().All() {
		if !isIn(i, d.AttributeTable().Len()) {
			return false
		}
	}
	return isIn(s.StackIndex(), d.StackTable().Len()) && (s.LinkIndex() == 0 || isIn(s.LinkIndex(), d.LinkTable().Len()))
}

func isIn(index int32, length int) bool { return uint(index) < uint(length) }

// All yields the profiles of a resource.
func All(of pprofile.ResourceProfiles) iter.Seq[pprofile.Profile] {
	return func(yield func(pprofile.Profile) bool) {
		for _, scope := range of.ScopeProfiles().All() {
			for _, p := range scope.Profiles().All() {
				if !yield(p) {
					return
				}
			}
		}
	}
}
