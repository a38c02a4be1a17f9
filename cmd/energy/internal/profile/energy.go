// SPDX-License-Identifier: Apache-2.0

package profile

import (
	"cmp"
	"encoding/binary"
	"math"
	"strings"
	"unicode"

	"github.com/google/pprof/profile"
	"go.opentelemetry.io/collector/pdata/pprofile"

	"github.com/energyreceiver/energyreceiver/internal/profiles"
	"github.com/energyreceiver/energyreceiver/internal/units"
)

const (
	// notSampled is the frame of energy without samples, as in profiles of energyprofile.
	notSampled = "[not sampled]"
	// manyStacks is the frame for the energy of stacks that do not fit into the profile.
	manyStacks = "[too many stacks]"
	// processLabel is the label with the name of a sample's process.
	processLabel = "process"
	// maxProfileBytes is the maximum memory of a profile. The command determines the number of
	// stacks and names.
	maxProfileBytes = 512 << 20
	// maxName is the maximum length of a name in bytes.
	maxName = 1024
)

// energy adds up energy by process name and stack, as a profile of pprof.
type energy struct {
	profile   *profile.Profile
	locations map[frame]*profile.Location
	samples   map[string]*profile.Sample
	rest      *profile.Sample // sample of the stacks that do not fit, nil if all fit
	bytes     int             // estimated memory
	maxBytes  int
}

// frame is a line of a function, or an address of a file without symbols.
type frame struct {
	name, file string
	line       int64
	address    uint64
}

func newEnergy() *energy {
	return &energy{
		profile: &profile.Profile{
			SampleType:        []*profile.ValueType{{Type: profiles.Energy, Unit: profiles.Microjoules}},
			DefaultSampleType: profiles.Energy,
		},
		locations: map[frame]*profile.Location{}, samples: map[string]*profile.Sample{}, maxBytes: maxProfileBytes,
	}
}

// Memory of a sample and of a location with its function, in their maps and lists, without the key,
// in bytes.
const (
	sampleBytes   = 700
	locationBytes = 500
)

// hasRoom reports whether there is room for a new element with a key, and counts its memory if so.
func (e *energy) hasRoom(element, key int) bool {
	if e.bytes >= e.maxBytes {
		return false
	}
	e.bytes += element + key
	return true
}

// overflow returns the sample of all stacks that do not fit. It has one frame.
func (e *energy) overflow() *profile.Sample {
	if e.rest == nil {
		e.rest = &profile.Sample{Location: []*profile.Location{e.newLocation(frame{name: manyStacks})}, Value: []int64{0}}
		e.profile.Sample = append(e.profile.Sample, e.rest)
	}
	return e.rest
}

// clean returns a name that is not too long, as text: other programs show the profile in a
// terminal, or read it as Protobuf, whose strings are UTF-8. The command chooses the names.
func clean(name string) string {
	if len(name) > maxName {
		name = strings.Clone(name[:maxName])
	}
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return '?'
		}
		return r
	}, strings.ToValidUTF8(name, "?"))
}

// add adds energy profiles. Other profiles are ignored.
func (e *energy) add(pd pprofile.Profiles) {
	d := profiles.DictionaryOf(pd)
	for _, rp := range pd.ResourceProfiles().All() {
		process := text(rp.Resource(), "process.executable.name")
		for of := range profiles.All(rp) {
			if d.Text(of.SampleType().UnitStrindex()) != profiles.Microjoules {
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

// stack returns the locations of a sample, the innermost first. Inlined functions have locations of
// their own.
func (e *energy) stack(d profiles.Dictionary, s pprofile.Sample) (stack []*profile.Location) {
	for loc := range d.Stack(s) {
		for _, line := range loc.Lines().All() {
			f := d.Function(line.FunctionIndex())
			name, file := d.Text(f.NameStrindex()), d.Text(f.FilenameStrindex())
			stack = append(stack, e.location(frame{name: name, file: file, line: line.Line()}))
		}
		if loc.Lines().Len() == 0 {
			file := cmp.Or(d.Text(d.Mapping(loc).FilenameStrindex()), "unknown")
			stack = append(stack, e.location(frame{name: "[" + file + "]", file: file, address: loc.Address()}))
		}
	}
	return stack
}

// location returns the location of a frame.
func (e *energy) location(f frame) *profile.Location {
	f.name, f.file = clean(f.name), clean(f.file)
	found := e.locations[f]
	if found == nil {
		if !e.hasRoom(locationBytes, len(f.name)+len(f.file)) {
			return e.overflow().Location[0]
		}
		found = e.newLocation(f)
		e.locations[f] = found
	}
	return found
}

func (e *energy) newLocation(f frame) *profile.Location {
	function := &profile.Function{
		ID: uint64(len(e.profile.Function) + 1), Name: f.name, SystemName: f.name, Filename: f.file,
	}
	e.profile.Function = append(e.profile.Function, function)
	loc := &profile.Location{
		ID: uint64(len(e.profile.Location) + 1), Address: f.address, Line: []profile.Line{{Function: function, Line: f.line}},
	}
	e.profile.Location = append(e.profile.Location, loc)
	return loc
}

// addSample adds energy, in µJ, to a stack.
func (e *energy) addSample(process string, stack []*profile.Location, energy int64) {
	process = clean(process)
	key := []byte(process + "\x00")
	for _, loc := range stack {
		key = binary.AppendUvarint(key, loc.ID)
	}
	found := e.samples[string(key)]
	switch {
	case found != nil:
	case !e.hasRoom(sampleBytes, len(key)+8*cap(stack)):
		found = e.overflow()
	default:
		found = &profile.Sample{Location: stack, Value: []int64{0}, Label: map[string][]string{processLabel: {process}}}
		e.samples[string(key)] = found
		e.profile.Sample = append(e.profile.Sample, found)
	}
	found.Value[0] += energy
}

// fit makes used, in µJ, the sum of all samples. Missing energy becomes a frame [not sampled]. The
// samples have more energy only if zones were found to overlap while the command ran, or if a meter
// reported after the measurement.
func (e *energy) fit(used uint64, process string) {
	e.maxBytes = math.MaxInt // for one frame more
	division := units.Division{Amount: used}
	for _, s := range e.profile.Sample {
		division.Total += uint64(s.Value[0])
	}
	if division.Total < used {
		e.addSample(process, []*profile.Location{e.location(frame{name: notSampled})}, int64(used-division.Total))
		return
	}
	for _, s := range e.profile.Sample {
		s.Value[0] = int64(division.Next(uint64(s.Value[0])))
	}
}
