// SPDX-License-Identifier: Apache-2.0

package profile

import (
	"cmp"
	"encoding/binary"

	"github.com/google/pprof/profile"
	"go.opentelemetry.io/collector/pdata/pprofile"

	"github.com/energyreceiver/energyreceiver/internal/units"
)

const (
	// sampleType and sampleUnit are those of the profiles of energyprofile, and of the pprof file.
	sampleType, sampleUnit = "energy", "microjoules"
	// notSampled is the frame of energy without samples, as in profiles of energyprofile.
	notSampled = "[not sampled]"
	// processLabel is the label with the name of a sample's process.
	processLabel = "process"
)

// energy adds up energy by process name and stack, as a profile of pprof.
type energy struct {
	profile   *profile.Profile
	byName    map[function]*profile.Function
	locations map[string]*profile.Location
	samples   map[string]*profile.Sample
}

type function struct{ name, file string }

func newEnergy() *energy {
	return &energy{
		profile: &profile.Profile{
			SampleType: []*profile.ValueType{{Type: sampleType, Unit: sampleUnit}}, DefaultSampleType: sampleType,
		},
		byName: map[function]*profile.Function{}, locations: map[string]*profile.Location{}, samples: map[string]*profile.Sample{},
	}
}

// add adds energy profiles. Other profiles are ignored.
func (e *energy) add(pd pprofile.Profiles) {
	d := dictionary{pd.Dictionary()}
	for _, rp := range pd.ResourceProfiles().All() {
		process := text(rp.Resource(), "process.executable.name")
		for _, sp := range rp.ScopeProfiles().All() {
			for _, of := range sp.Profiles().All() {
				if d.text(of.SampleType().UnitStrindex()) != sampleUnit {
					continue
				}
				for _, s := range of.Samples().All() {
					stack := e.stack(d, s)
					for _, v := range s.Values().All() {
						e.addSample(process, stack, v)
					}
				}
			}
		}
	}
}

// stack returns the locations of a sample, the innermost first.
func (e *energy) stack(d dictionary, s pprofile.Sample) (stack []*profile.Location) {
	for loc := range d.stack(s) {
		var lines []profile.Line
		for _, line := range loc.Lines().All() {
			f := d.function(line.FunctionIndex())
			lines = append(lines, profile.Line{Function: e.function(function{d.text(f.NameStrindex()), d.text(f.FilenameStrindex())}), Line: line.Line()})
		}
		if len(lines) == 0 {
			file := cmp.Or(d.text(d.mapping(loc).FilenameStrindex()), "unknown")
			lines = []profile.Line{{Function: e.function(function{"[" + file + "]", file})}}
		}
		stack = append(stack, e.location(lines))
	}
	return stack
}

func (e *energy) function(f function) *profile.Function {
	found := e.byName[f]
	if found == nil {
		found = &profile.Function{ID: uint64(len(e.profile.Function) + 1), Name: f.name, SystemName: f.name, Filename: f.file}
		e.byName[f] = found
		e.profile.Function = append(e.profile.Function, found)
	}
	return found
}

// location returns the location of lines, of which all but the last are inlined.
func (e *energy) location(lines []profile.Line) *profile.Location {
	var key []byte
	for _, line := range lines {
		key = binary.AppendVarint(binary.AppendUvarint(key, line.Function.ID), line.Line)
	}
	found := e.locations[string(key)]
	if found == nil {
		found = &profile.Location{ID: uint64(len(e.profile.Location) + 1), Line: lines}
		e.locations[string(key)] = found
		e.profile.Location = append(e.profile.Location, found)
	}
	return found
}

// addSample adds energy, in µJ, to a stack.
func (e *energy) addSample(process string, stack []*profile.Location, energy int64) {
	key := []byte(process + "\x00")
	for _, loc := range stack {
		key = binary.AppendUvarint(key, loc.ID)
	}
	found := e.samples[string(key)]
	if found == nil {
		found = &profile.Sample{Location: stack, Value: []int64{0}, Label: map[string][]string{processLabel: {process}}}
		e.samples[string(key)] = found
		e.profile.Sample = append(e.profile.Sample, found)
	}
	found.Value[0] += energy
}

// fit makes used, in µJ, the sum of all samples. What is not in them becomes a frame [not sampled]. They have more only
// if zones were found to overlap while the command ran, or if a meter reported after the measurement.
func (e *energy) fit(used uint64, process string) {
	division := units.Division{Amount: used}
	for _, s := range e.profile.Sample {
		division.Total += uint64(s.Value[0])
	}
	if division.Total < used {
		frame := e.location([]profile.Line{{Function: e.function(function{name: notSampled})}})
		e.addSample(process, []*profile.Location{frame}, int64(used-division.Total))
		return
	}
	for _, s := range e.profile.Sample {
		s.Value[0] = int64(division.Next(uint64(s.Value[0])))
	}
}
