// SPDX-License-Identifier: Apache-2.0

package energyprofile

import (
	"strings"
	"time"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/pprofile"

	"github.com/energyreceiver/energyreceiver/internal/identity"
	"github.com/energyreceiver/energyreceiver/internal/profiles"
)

// Names of frames that are no functions.
const (
	frameNotSampled   = "[not sampled]"
	frameGPU          = "[gpu]"
	frameIdle         = "[idle]"
	frameUnattributed = "[unattributed]"
)

// maxResources is the maximum number of profiles that are sent together. With the longest names
// they take 3 MB, and processors in between add attributes. gRPC servers refuse messages of more
// than 4 MiB.
const maxResources = 2000

// frames builds profiles whose stacks have a single frame that is no function.
type frames struct {
	from, until time.Time
	method      string
	named       bool // resources get service.name
	parts       []*part
	sum         uint64 // µJ
}

// part is the profiles that are sent together.
type part struct {
	pprofile.Profiles
	d      pprofile.ProfilesDictionary
	stacks map[string]int32
	kind   energyType
	energy uint64 // µJ
}

func newPart(method string) *part {
	p := &part{Profiles: pprofile.NewProfiles(), stacks: map[string]int32{}}
	p.d = p.Dictionary()
	p.d.StringTable().Append("") // the first entry of each table means no value
	p.d.MappingTable().AppendEmpty()
	p.d.LocationTable().AppendEmpty()
	p.d.FunctionTable().AppendEmpty()
	p.d.LinkTable().AppendEmpty()
	p.d.AttributeTable().AppendEmpty()
	p.d.StackTable().AppendEmpty()
	p.kind = newEnergyType(p.d, method)
	return p
}

// add adds energy, in µJ, of a process as a profile with one frame.
func (f *frames) add(frame string, energy uint64, of *process) {
	if energy == 0 {
		return
	}
	n := len(f.parts)
	if n == 0 || f.parts[n-1].ResourceProfiles().Len() == maxResources {
		f.parts = append(f.parts, newPart(f.method))
		n++
	}
	p := f.parts[n-1]
	p.energy += energy
	f.sum += energy
	rp := p.ResourceProfiles().AppendEmpty()
	putProcess(rp.Resource().Attributes(), of)
	if f.named {
		putServiceName(rp.Resource().Attributes(), of.executable)
	}
	profile := rp.ScopeProfiles().AppendEmpty().Profiles().AppendEmpty()
	profile.SetTime(pcommon.NewTimestampFromTime(f.from))
	profile.SetDurationNano(uint64(max(0, f.until.Sub(f.from))))
	profile.PeriodType().SetTypeStrindex(text(p.d, "cpu")) // Pyroscope names profiles by it
	profile.PeriodType().SetUnitStrindex(text(p.d, "nanoseconds"))
	profile.SetPeriod(1)
	p.kind.set(profile)
	s := profile.Samples().AppendEmpty()
	s.SetStackIndex(p.stack(frame))
	s.Values().FromRaw([]int64{int64(energy)})
}

// stack returns the index of the stack with one frame.
func (p *part) stack(frame string) int32 {
	if i, ok := p.stacks[frame]; ok {
		return i
	}
	p.d.FunctionTable().AppendEmpty().SetNameStrindex(text(p.d, frame))
	p.d.LocationTable().AppendEmpty().Lines().AppendEmpty().SetFunctionIndex(int32(p.d.FunctionTable().Len() - 1))
	p.d.StackTable().AppendEmpty().LocationIndices().Append(int32(p.d.LocationTable().Len() - 1))
	p.stacks[frame] = int32(p.d.StackTable().Len() - 1)
	return p.stacks[frame]
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

// putServiceName sets service.name, which Pyroscope lists profiles by and energyspans sums energy
// by, if there is none. The names of kernel threads, such as kworker/7:1H, are cut at the slash,
// which names of executables lack: a machine with 64 CPUs has hundreds of them.
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
