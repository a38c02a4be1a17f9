// SPDX-License-Identifier: Apache-2.0

package energyprofile

import (
	"math"
	"slices"
	"time"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/pprofile"

	"github.com/energyreceiver/energyreceiver/internal/identity"
)

// maxHeld is the maximum number of samples that are held. With weights of at most 2^32 their sum stays
// below 2^63.
const maxHeld = 1 << 20

// maxAhead is how far in the future the time of a sample may be. Clocks of profilers are corrected every few minutes.
const maxAhead = time.Minute

// batch holds CPU profiles until the energy of their time is known.
type batch struct {
	profiles  pprofile.Profiles
	resources []resource
	// mark is the number of windows that the receiver had attributed when the batch arrived.
	mark uint64
}

// resource has the CPU samples of a resource, which are of one process.
type resource struct {
	attributes pcommon.Map
	pid        int32 // 0 if it has none
	// process is nil until it is found. It does not change then: of two processes that had the PID in turn,
	// one has the samples of the resource.
	process *process
	samples []sample
}

// sample is a CPU sample.
type sample struct {
	of     pprofile.Sample
	cpu    int32  // -1 if it is not known
	energy uint64 // µJ
	times  []int64
	// count is the number of times that the sample was taken at each of times.
	count uint64
}

// dropped counts samples that were dropped, by reason.
type dropped map[string]int64

// Reasons for which samples are dropped.
const (
	dropFuture     = "future"
	dropLimit      = "limit"
	dropMalformed  = "malformed"
	dropNoReceiver = "no_receiver"
	dropValue      = "value"
)

// newBatch indexes the samples of CPU profiles. It drops samples that are malformed, after now or beyond
// room.
func newBatch(profiles pprofile.Profiles, now time.Time, room int, drop dropped) (*batch, int) {
	b := &batch{profiles: profiles}
	index := indexer{d: profiles.Dictionary(), cpus: cpusOf(profiles.Dictionary()), now: now.UnixNano(), room: room, drop: drop}
	for _, rp := range profiles.ResourceProfiles().All() {
		r := resource{attributes: rp.Resource().Attributes()}
		if pid, ok := r.attributes.Get("process.pid"); ok && pid.Type() == pcommon.ValueTypeInt && pid.Int() > 0 && pid.Int() <= math.MaxInt32 {
			r.pid = int32(pid.Int())
		}
		for _, sp := range rp.ScopeProfiles().All() {
			for _, of := range sp.Profiles().All() {
				r.samples = index.add(r.samples, of)
			}
		}
		b.resources = append(b.resources, r)
	}
	return b, index.taken
}

// indexer collects the samples of profiles.
type indexer struct {
	d           pprofile.ProfilesDictionary
	cpus        map[int32]int32 // by index of an attribute
	now         int64           // Unix time in ns
	room, taken int
	drop        dropped
}

// cpusOf returns the CPU of each attribute of a dictionary that is one.
func cpusOf(d pprofile.ProfilesDictionary) map[int32]int32 {
	cpus := map[int32]int32{}
	for i, a := range d.AttributeTable().All() {
		if textAt(d, a.KeyStrindex()) != "cpu.logical_number" || a.Value().Type() != pcommon.ValueTypeInt {
			continue
		}
		if cpu := a.Value().Int(); cpu >= 0 && cpu <= math.MaxInt32 {
			cpus[int32(i)] = int32(cpu)
		}
	}
	return cpus
}

// add appends the samples of a profile, and removes those that are dropped.
func (x *indexer) add(to []sample, of pprofile.Profile) []sample {
	to = slices.Grow(to, min(of.Samples().Len(), x.room-x.taken))
	of.Samples().RemoveIf(func(s pprofile.Sample) bool {
		next := x.sampleOf(of, s)
		if len(next.times) > 0 {
			to = append(to, next)
		}
		return len(next.times) == 0
	})
	return to
}

// sampleOf returns a sample, without times if it is dropped.
func (x *indexer) sampleOf(of pprofile.Profile, s pprofile.Sample) sample {
	next := sample{of: s, count: 1, cpu: -1}
	times := s.TimestampsUnixNano()
	if !x.isWellFormed(s) {
		x.drop[dropMalformed] += int64(max(1, times.Len()))
		return next
	}
	for _, t := range times.All() {
		next.times = x.addTime(next.times, int64(min(t, math.MaxInt64)), 1)
	}
	if times.Len() == 0 {
		middle := min(uint64(of.Time())+of.DurationNano()/2, math.MaxInt64)
		if next.count = x.countOf(s); next.count > 0 {
			next.times = x.addTime(nil, int64(middle), int64(next.count))
		}
	}
	for _, i := range s.AttributeIndices().All() {
		if cpu, ok := x.cpus[i]; ok {
			next.cpu = cpu
		}
	}
	return next
}

// isWellFormed reports whether the dictionary has all that a sample refers to. Backends refuse the
// whole batch otherwise.
func (x *indexer) isWellFormed(s pprofile.Sample) bool {
	isIn := func(i int32, n int) bool { return i >= 0 && int(i) < n }
	for _, i := range s.AttributeIndices().All() {
		if !isIn(i, x.d.AttributeTable().Len()) {
			return false
		}
	}
	return isIn(s.StackIndex(), x.d.StackTable().Len()) && (s.LinkIndex() == 0 || isIn(s.LinkIndex(), x.d.LinkTable().Len()))
}

// addTime appends a time, unless it is dropped. A time after now counts as now.
func (x *indexer) addTime(times []int64, t, count int64) []int64 {
	switch {
	case t-x.now > int64(maxAhead):
		x.drop[dropFuture] += count
		return times
	case x.taken >= x.room:
		x.drop[dropLimit] += count
		return times
	}
	x.taken++
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

// countTimes returns the number of samples that have no energy yet.
func (b *batch) countTimes() (n int) {
	for i := range b.resources {
		for j := range b.resources[i].samples {
			n += len(b.resources[i].samples[j].times)
		}
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

// latest returns the latest time of the samples until a limit, false if there is none.
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

// isCPU reports whether a profile counts samples of CPU time. Other profiles count events or time off the CPU.
func isCPU(d pprofile.ProfilesDictionary, of pprofile.Profile) bool {
	return textAt(d, of.SampleType().TypeStrindex()) == "samples" && textAt(d, of.PeriodType().TypeStrindex()) == "cpu"
}

// textAt returns a string of the dictionary, an empty one if the index is out of range.
func textAt(d pprofile.ProfilesDictionary, index int32) string {
	if index < 0 || int(index) >= d.StringTable().Len() {
		return ""
	}
	return d.StringTable().At(int(index))
}

// splitOther moves all profiles that are not of CPU time to a batch of their own. ok is false if there are none.
func splitOther(from pprofile.Profiles) (other pprofile.Profiles, ok bool) {
	cpu, all := 0, 0
	eachProfile(from, func(of pprofile.Profile) {
		all++
		if isCPU(from.Dictionary(), of) {
			cpu++
		}
	})
	if cpu == all {
		return other, false
	}
	other = pprofile.NewProfiles()
	if cpu == 0 {
		from.MoveTo(other)
		return other, true
	}
	from.CopyTo(other)
	keep(other, func(of pprofile.Profile) bool { return !isCPU(other.Dictionary(), of) })
	keep(from, func(of pprofile.Profile) bool { return isCPU(from.Dictionary(), of) })
	return other, true
}

func eachProfile(in pprofile.Profiles, f func(pprofile.Profile)) {
	for _, rp := range in.ResourceProfiles().All() {
		for _, sp := range rp.ScopeProfiles().All() {
			for _, of := range sp.Profiles().All() {
				f(of)
			}
		}
	}
}

// keep removes profiles, and scopes and resources that have none left.
func keep(in pprofile.Profiles, wanted func(pprofile.Profile) bool) {
	in.ResourceProfiles().RemoveIf(func(rp pprofile.ResourceProfiles) bool {
		rp.ScopeProfiles().RemoveIf(func(sp pprofile.ScopeProfiles) bool {
			sp.Profiles().RemoveIf(func(of pprofile.Profile) bool { return !wanted(of) })
			return sp.Profiles().Len() == 0
		})
		return rp.ScopeProfiles().Len() == 0
	})
}

// finish makes the profiles of a batch ones of energy: each sample has one value, and none has time
// stamps. It removes what has no energy, and returns the energy of the rest in µJ.
func (b *batch) finish(method string, named bool) (sum uint64) {
	for i := range b.resources {
		r := &b.resources[i]
		for j := range r.samples {
			s := &r.samples[j]
			s.of.TimestampsUnixNano().FromRaw(nil)
			s.of.Values().FromRaw([]int64{int64(s.energy)})
			sum += s.energy
		}
		executable := shortLived
		if r.process != nil {
			executable = r.process.executable
			r.attributes.PutStr("process.creation.time", identity.CreatedAt(r.process.created))
		} else {
			// The energy is of short-lived processes, not of the process that has this PID at another time.
			r.attributes.Remove("process.pid")
		}
		if named {
			putServiceName(r.attributes, executable)
		}
	}
	eachProfile(b.profiles, func(of pprofile.Profile) {
		setEnergyType(b.profiles.Dictionary(), of, method)
		of.Samples().RemoveIf(func(s pprofile.Sample) bool { return s.Values().Len() == 0 || s.Values().At(0) == 0 })
	})
	keep(b.profiles, func(of pprofile.Profile) bool { return of.Samples().Len() > 0 })
	return sum
}

// earlier returns the earlier of two times: after the clock was set back, a time of before may be in the future.
func earlier(a, b time.Time) time.Time {
	if a.After(b) {
		return b
	}
	return a
}
