// SPDX-License-Identifier: Apache-2.0

package energyprofile

import (
	"iter"
	"strings"
	"time"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/pprofile"

	"github.com/energyreceiver/energyreceiver/internal/identity"
	"github.com/energyreceiver/energyreceiver/internal/profiles"
)

// Names of frames that are not functions.
const (
	frameNotSampled   = "[not sampled]"
	frameGPU          = "[gpu]"
	frameIdle         = "[idle]"
	frameUnattributed = "[unattributed]"
	shortLived        = "[short-lived processes]"
)

// frames builds profiles whose stacks have a single frame that is not a function.
type frames struct {
	profiles    pprofile.Profiles
	stacks      map[string]int32
	from, until time.Time
	energy      energyType
	sum         uint64 // µJ
	named       bool   // resources get service.name
}

func newFrames(from, until time.Time, method string) *frames {
	f := &frames{profiles: pprofile.NewProfiles(), stacks: map[string]int32{}, from: from, until: until}
	d := f.profiles.Dictionary()
	d.StringTable().Append("") // the first entry of each table means no value
	d.MappingTable().AppendEmpty()
	d.LocationTable().AppendEmpty()
	d.FunctionTable().AppendEmpty()
	d.LinkTable().AppendEmpty()
	d.AttributeTable().AppendEmpty()
	d.StackTable().AppendEmpty()
	f.energy = newEnergyType(d, method)
	return f
}

// add adds energy, in µJ, of a process as a profile with one frame.
func (f *frames) add(frame string, energy uint64, of *process) {
	if energy == 0 {
		return
	}
	f.sum += energy
	rp := f.profiles.ResourceProfiles().AppendEmpty()
	rp.Resource().Attributes().EnsureCapacity(6)
	putProcess(rp.Resource().Attributes(), of)
	if f.named {
		putServiceName(rp.Resource().Attributes(), of.executable)
	}
	profile := rp.ScopeProfiles().AppendEmpty().Profiles().AppendEmpty()
	d := f.profiles.Dictionary()
	profile.SetTime(pcommon.NewTimestampFromTime(f.from))
	profile.SetDurationNano(uint64(max(0, f.until.Sub(f.from))))
	profile.PeriodType().SetTypeStrindex(text(d, "cpu")) // Pyroscope names profiles by it
	profile.PeriodType().SetUnitStrindex(text(d, "nanoseconds"))
	profile.SetPeriod(1)
	f.energy.set(profile)
	s := profile.Samples().AppendEmpty()
	s.SetStackIndex(f.stack(frame))
	s.Values().FromRaw([]int64{int64(energy)})
}

// maxResources is the maximum number of profiles that are sent together. With the longest names
// they take 3 MB, and processors in between add attributes. gRPC servers refuse messages of more
// than 4 MiB.
const maxResources = 2000

// parts yields the profiles with their energy, in µJ, and removes them.
func (f *frames) parts() iter.Seq2[pprofile.Profiles, uint64] {
	return func(yield func(pprofile.Profiles, uint64) bool) {
		for f.sum > 0 {
			part, energy := pprofile.NewProfiles(), uint64(0)
			f.profiles.Dictionary().CopyTo(part.Dictionary())
			f.profiles.ResourceProfiles().RemoveIf(func(rp pprofile.ResourceProfiles) bool {
				if part.ResourceProfiles().Len() == maxResources {
					return false
				}
				for of := range profiles.All(rp) {
					energy += uint64(of.Samples().At(0).Values().At(0))
				}
				rp.MoveTo(part.ResourceProfiles().AppendEmpty())
				return true
			})
			if f.sum -= energy; !yield(part, energy) {
				return
			}
		}
	}
}

// stack returns the index of the stack with one frame.
func (f *frames) stack(frame string) int32 {
	if i, ok := f.stacks[frame]; ok {
		return i
	}
	d := f.profiles.Dictionary()
	d.FunctionTable().AppendEmpty().SetNameStrindex(text(d, frame))
	d.LocationTable().AppendEmpty().Lines().AppendEmpty().SetFunctionIndex(int32(d.FunctionTable().Len() - 1))
	d.StackTable().AppendEmpty().LocationIndices().Append(int32(d.LocationTable().Len() - 1))
	f.stacks[frame] = int32(d.StackTable().Len() - 1)
	return f.stacks[frame]
}

// putProcess sets the attributes of a process. A resource that is not a process has no PID.
func putProcess(to pcommon.Map, p *process) {
	if p.pid > 0 {
		to.PutInt("process.pid", int64(p.pid))
		to.PutStr("process.creation.time", identity.CreatedAt(p.created))
	}
	to.PutStr("process.executable.name", p.executable)
	if p.path != "" {
		to.PutStr("process.executable.path", p.path)
	}
	if p.container != "" {
		to.PutStr("container.id", p.container)
	}
}

// putServiceName sets service.name if it is not set. Pyroscope lists profiles and energyspans sums
// energy by service.name. The names of kernel threads, such as kworker/7:1H, are cut at the slash,
// because a machine with 64 CPUs has hundreds of them. Names of executables contain no slash.
func putServiceName(to pcommon.Map, executable string) {
	if name, ok := to.Get("process.executable.name"); ok && name.AsString() != "" {
		executable = name.AsString()
	}
	executable, _, _ = strings.Cut(executable, "/")
	if name, ok := to.Get("service.name"); executable != "" && (!ok || name.AsString() == "") {
		to.PutStr("service.name", executable)
	}
}

// energyType converts profiles of a dictionary to energy profiles.
type energyType struct {
	name, unit int32
	attributes []int32
}

// newEnergyType returns the energyType for a value of energy.method, which may be empty. It
// searches all strings and attributes of the dictionary.
func newEnergyType(d pprofile.ProfilesDictionary, method string) energyType {
	e := energyType{name: text(d, profiles.Energy), unit: text(d, profiles.Microjoules)}
	if method == "" {
		return e
	}
	if d.AttributeTable().Len() == 0 {
		d.AttributeTable().AppendEmpty()
	}
	a := pprofile.NewKeyValueAndUnit()
	a.SetKeyStrindex(text(d, "energy.method"))
	a.Value().SetStr(method)
	if i, err := pprofile.SetAttribute(d.AttributeTable(), a); err == nil {
		e.attributes = []int32{i}
	}
	return e
}

func (e energyType) set(of pprofile.Profile) {
	of.SampleType().SetTypeStrindex(e.name)
	of.SampleType().SetUnitStrindex(e.unit)
	of.AttributeIndices().Append(e.attributes...)
}

// text returns the index of a string of the dictionary, which it adds if necessary.
func text(d pprofile.ProfilesDictionary, s string) int32 {
	if d.StringTable().Len() == 0 {
		d.StringTable().Append("")
	}
	i, err := pprofile.SetString(d.StringTable(), s)
	if err != nil { // the table has 2^31 entries
		return 0
	}
	return i
}
