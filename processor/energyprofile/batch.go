// SPDX-License-Identifier: Apache-2.0

package energyprofile

import (
	"math"
	"slices"
	"time"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/pprofile"

	"github.com/energyreceiver/energyreceiver/internal/identity"
	"github.com/energyreceiver/energyreceiver/internal/profiles"
)

const (
	// maxAhead is the maximum time of a sample after now. The clocks of profilers are corrected
	// every few minutes, so samples may be in the future.
	maxAhead = time.Minute
	// maxLate is the maximum delay between a sample and its arrival.
	maxLate = 10 * time.Second
	// minPeriod is the minimum CPU time between two samples.
	minPeriod = time.Millisecond
)

// batch holds CPU profiles until the energy of their time is attributed.
type batch struct {
	// data holds the profiles as Protobuf, without times and values. An empty location takes 2
	// bytes in Protobuf, and 80 if it is decoded.
	data      []byte
	resources []resource
	times     int    // number of times of all samples without energy
	energy    uint64 // µJ, set after the division
	bytes     int
	// mark is the number of windows that the receiver had attributed when the batch arrived.
	mark    uint64
	arrived time.Time
	from    origin
}

// resource has the CPU samples of a resource, which belong to one process.
type resource struct {
	pid int32 // 0 if the resource has no PID
	// process is nil until it is found, and does not change afterwards. If two processes had the PID
	// one after the other, all samples of the resource belong to one of them.
	process *process
	samples []sample // in the order of the profiles
}

// sample is a CPU sample.
type sample struct {
	cpu    int32  // -1 if not available
	energy uint64 // µJ
	times  []int64
	// count is the number of times that the sample was taken at each of times.
	count uint64
}

// dropped counts samples that were dropped, by reason.
type dropped map[string]int64

// Reasons why samples are dropped.
const (
	dropForeign       = "foreign"
	dropForeignEnergy = "foreign_energy"
	dropFuture        = "future"
	dropLimit         = "limit"
	dropMalformed     = "malformed"
	dropNoReceiver    = "no_receiver"
	dropValue         = "value"
)

// samples counts the samples of a profile.
func (d dropped) samples(reason string, of pprofile.Profile) {
	for _, s := range of.Samples().All() {
		d[reason] += int64(max(1, s.TimestampsUnixNano().Len()))
	}
}

// newBatch indexes the samples of CPU profiles and encodes the rest. It drops samples that are
// malformed, after now or beyond the limit of their process. A batch without samples only ends a
// period.
func newBatch(pd pprofile.Profiles, index *indexer) (*batch, error) {
	b := &batch{}
	index.d = profiles.DictionaryOf(pd)
	index.cpus = cpusOf(index.d)
	for _, rp := range pd.ResourceProfiles().All() {
		r := resource{}
		if pid, ok := rp.Resource().Attributes().Get("process.pid"); ok && pid.Type() == pcommon.ValueTypeInt &&
			pid.Int() > 0 && pid.Int() <= math.MaxInt32 {
			r.pid = int32(pid.Int())
		}
		for of := range profiles.All(rp) {
			r.samples = index.add(r.samples, r.pid, of)
		}
		if len(r.samples) > 0 {
			b.resources = append(b.resources, r)
			b.bytes += cap(r.samples) * sampleBytes
		}
	}
	b.times = index.taken
	b.bytes += batchBytes + cap(b.resources)*resourceBytes + index.timeBytes
	if len(b.resources) == 0 {
		return b, nil
	}
	keep(pd, hasSamples)
	var err error
	b.data, err = (&pprofile.ProtoMarshaler{}).MarshalProfiles(pd)
	b.bytes += cap(b.data)
	return b, err
}

// Bytes of the parts of a batch.
const (
	// batchBytes limits the number of small batches that are held, because each new batch causes a
	// scan of all batches. A scan of 25,000 small batches takes 4 ms.
	batchBytes    = 16 << 10
	resourceBytes = 48
	sampleBytes   = 48
)

// indexer collects the samples of profiles.
type indexer struct {
	now int64 // Unix time in ns
	// cpuTime is the maximum CPU time of a process since the first sample in the batches that are
	// held.
	cpuTime time.Duration
	byPID   map[int32]uint64 // number of samples in the batches that are held
	drop    dropped

	d         profiles.Dictionary
	cpus      map[int32]int32 // by index of an attribute
	pid       int32           // of the current profile
	max       uint64          // of samples with pid
	taken     int
	timeBytes int
}

// cpusOf returns the CPU number of each attribute cpu.logical_number of a dictionary, by index.
func cpusOf(d profiles.Dictionary) map[int32]int32 {
	cpus := map[int32]int32{}
	for i, a := range d.AttributeTable().All() {
		if d.Text(a.KeyStrindex()) != "cpu.logical_number" || a.Value().Type() != pcommon.ValueTypeInt {
			continue
		}
		if cpu := a.Value().Int(); cpu >= 0 && cpu <= math.MaxInt32 {
			cpus[int32(i)] = int32(cpu)
		}
	}
	return cpus
}

// add appends the samples of a profile, and removes those that are dropped.
func (x *indexer) add(to []sample, pid int32, of pprofile.Profile) []sample {
	x.pid, x.max = pid, uint64(x.cpuTime/max(minPeriod, time.Duration(of.Period())))
	of.Samples().RemoveIf(func(s pprofile.Sample) bool {
		next := x.sampleOf(of, s)
		if len(next.times) == 0 {
			return true
		}
		s.TimestampsUnixNano().FromRaw(nil)
		s.Values().FromRaw(nil)
		to = append(to, next)
		x.timeBytes += 8 * cap(next.times)
		return false
	})
	return to
}

// sampleOf returns a sample, without times if it is dropped.
func (x *indexer) sampleOf(of pprofile.Profile, s pprofile.Sample) sample {
	next := sample{count: 1, cpu: -1}
	times := s.TimestampsUnixNano()
	if !x.d.Has(s) {
		x.drop[dropMalformed] += int64(max(1, times.Len()))
		return next
	}
	for _, t := range times.All() {
		next.times = x.addTime(next.times, int64(min(t, math.MaxInt64)), 1)
	}
	if times.Len() == 0 {
		middle := min(uint64(of.Time())+of.DurationNano()/2, math.MaxInt64)
		if next.count = x.countOf(s); next.count > 0 {
			next.times = x.addTime(nil, int64(middle), next.count)
		}
	}
	for _, i := range s.AttributeIndices().All() {
		if cpu, ok := x.cpus[i]; ok {
			next.cpu = cpu
		}
	}
	return next
}

// addTime appends a time, unless it is dropped. A time after now counts as now.
func (x *indexer) addTime(times []int64, t int64, count uint64) []int64 {
	switch {
	case t > x.now && uint64(t-x.now) > uint64(maxAhead):
		x.drop[dropFuture] += int64(count)
		return times
	case count > x.max-min(x.max, x.byPID[x.pid]):
		x.drop[dropLimit] += int64(count)
		return times
	}
	x.taken++
	x.byPID[x.pid] += count
	return append(times, min(t, x.now))
}

// countOf returns the sum of the values of a sample without times.
func (x *indexer) countOf(s pprofile.Sample) (count uint64) {
	for _, v := range s.Values().All() {
		if v < 0 || v > math.MaxInt32 {
			x.drop[dropValue]++
			return 0
		}
		count += uint64(v)
	}
	return min(count, math.MaxInt32)
}

// count returns the number of samples without energy.
func (r *resource) count() (n uint64) {
	for i := range r.samples {
		n += uint64(len(r.samples[i].times)) * r.samples[i].count
	}
	return n
}

// upTo removes the times until a limit from a sample, and calls f for each.
func (s *sample) upTo(limit int64, f func(t int64)) {
	s.times = slices.DeleteFunc(s.times, func(t int64) bool {
		if t > limit {
			return false
		}
		f(t)
		return true
	})
}

// latest returns the latest time of the samples until a limit, or false.
func (r *resource) latest(limit int64) (at time.Time, ok bool) {
	latest := int64(math.MinInt64)
	for i := range r.samples {
		for _, t := range r.samples[i].times {
			if t <= limit {
				latest = max(latest, t)
			}
		}
	}
	return time.Unix(0, latest), latest != math.MinInt64
}

// isCPU reports whether a profile counts samples of CPU time. Other profiles count events or time
// off the CPU.
func isCPU(d profiles.Dictionary, of pprofile.Profile) bool {
	return d.Text(of.SampleType().TypeStrindex()) == "samples" && d.Text(of.PeriodType().TypeStrindex()) == "cpu"
}

// isEnergy reports whether a profile is an energy profile, in any unit.
func isEnergy(d profiles.Dictionary, of pprofile.Profile) bool {
	return d.Text(of.SampleType().TypeStrindex()) == profiles.Energy
}

func hasSamples(of pprofile.Profile) bool { return of.Samples().Len() > 0 }

// splitOther moves all profiles that are not of CPU time to a separate batch. ok is false if there
// are no such profiles. The batch has no dictionary yet, because a dictionary of 4 MB can take 200
// MB when it is decoded, and must not exist twice.
func splitOther(from pprofile.Profiles) (other pprofile.Profiles, ok bool) {
	d := profiles.DictionaryOf(from)
	eachProfile(from, func(of pprofile.Profile) { ok = ok || !isCPU(d, of) })
	if !ok {
		return other, false
	}
	other = pprofile.NewProfiles()
	for _, rp := range from.ResourceProfiles().All() {
		toResource := other.ResourceProfiles().AppendEmpty()
		rp.Resource().CopyTo(toResource.Resource())
		toResource.SetSchemaUrl(rp.SchemaUrl())
		for _, sp := range rp.ScopeProfiles().All() {
			toScope := toResource.ScopeProfiles().AppendEmpty()
			sp.Scope().CopyTo(toScope.Scope())
			toScope.SetSchemaUrl(sp.SchemaUrl())
			sp.Profiles().RemoveIf(func(of pprofile.Profile) bool {
				if isCPU(d, of) {
					return false
				}
				of.MoveTo(toScope.Profiles().AppendEmpty())
				return true
			})
		}
	}
	for _, pd := range []pprofile.Profiles{from, other} {
		keep(pd, func(pprofile.Profile) bool { return true })
	}
	return other, true
}

// entriesOf returns the number of entries of all tables of a dictionary.
func entriesOf(d pprofile.ProfilesDictionary) int {
	return d.MappingTable().Len() + d.LocationTable().Len() + d.FunctionTable().Len() + d.LinkTable().Len() +
		d.StringTable().Len() + d.AttributeTable().Len() + d.StackTable().Len()
}

func eachProfile(in pprofile.Profiles, f func(pprofile.Profile)) {
	for _, rp := range in.ResourceProfiles().All() {
		for of := range profiles.All(rp) {
			f(of)
		}
	}
}

// keep removes profiles, and scopes and resources without any left.
func keep(in pprofile.Profiles, wanted func(pprofile.Profile) bool) {
	in.ResourceProfiles().RemoveIf(func(rp pprofile.ResourceProfiles) bool {
		rp.ScopeProfiles().RemoveIf(func(sp pprofile.ScopeProfiles) bool {
			sp.Profiles().RemoveIf(func(of pprofile.Profile) bool { return !wanted(of) })
			return sp.Profiles().Len() == 0
		})
		return rp.ScopeProfiles().Len() == 0
	})
}

// finish returns the energy profiles of a batch. Each sample has one value and no time stamps.
// Samples and profiles without energy are left out.
func (b *batch) finish(method string, named bool) (pprofile.Profiles, error) {
	pd, err := (&pprofile.ProtoUnmarshaler{}).UnmarshalProfiles(b.data)
	if err != nil {
		return pd, err
	}
	energy := newEnergyType(pd.Dictionary(), method)
	for i, rp := range pd.ResourceProfiles().All() {
		b.resources[i].putProcess(rp.Resource().Attributes(), named)
		samples := b.resources[i].samples
		for of := range profiles.All(rp) {
			energy.set(of)
			of.Samples().RemoveIf(func(s pprofile.Sample) bool {
				value := samples[0].energy
				samples = samples[1:]
				s.Values().FromRaw([]int64{int64(value)})
				return value == 0
			})
		}
	}
	keep(pd, hasSamples)
	return pd, nil
}

// putProcess sets the attributes of the process.
func (r *resource) putProcess(to pcommon.Map, named bool) {
	executable := shortLived
	if r.process != nil {
		executable = r.process.executable
		to.PutStr("process.creation.time", identity.CreatedAt(r.process.created))
	} else {
		// The energy belongs to short-lived processes. Another process may have this PID.
		to.Remove("process.pid")
	}
	if named {
		putServiceName(to, executable)
	}
}

// earlier returns the earlier of two times. An older time is later than a newer time if the clock
// was set back in between.
func earlier(a, b time.Time) time.Time {
	if a.After(b) {
		return b
	}
	return a
}
