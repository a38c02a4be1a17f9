// SPDX-License-Identifier: Apache-2.0

package library

import (
	"cmp"
	"slices"
	"time"

	"github.com/energyreceiver/energyreceiver/extension/gpulibrary"
	"github.com/energyreceiver/energyreceiver/internal/power"
	"github.com/energyreceiver/energyreceiver/internal/units"
	"github.com/energyreceiver/energyreceiver/internal/usage/gpu"
)

// device is a GPU of a library. The usage of a poll is pending until the energy until this poll was
// returned.
type device struct {
	zone power.Zone
	// returned is the time until which the energy was returned.
	returned time.Time
	// counted is the time of the last poll that was added to pending. known is the time of the last
	// poll that reported usage. unreported is the part of the time before counted whose usage the
	// library may still report.
	counted, known time.Time
	unreported     time.Duration
	// energy is the counter of the zone if hasEnergy is set. seen is the counter of the last poll.
	energy    units.Energy
	hasEnergy bool
	seen      uint64
	// unknown is the reason why the users of the GPU cannot be read, or nil.
	unknown error

	pending []*tally // from the oldest to the newest
}

const (
	// maxPending is the maximum number of pending tallies. If there are more, the oldest two are
	// merged, and are deferred until the energy of the second was returned.
	maxPending = 4
	// patience is the maximum time that energy is deferred while the library reports no usage. If
	// the library recovers earlier, it reports the usage of the whole time.
	patience = 10 * time.Second
	// maxLag is the maximum part of a poll's time whose usage the next poll may report, because
	// drivers publish samples late.
	maxLag = 2 * time.Second
)

// take adds the usage of a poll to pending. It reports whether pending now covers the time until
// the poll. The first poll is the baseline.
func (d *device) take(found *gpulibrary.Device, in *cgroups) bool {
	at := found.At
	if d.counted.IsZero() {
		d.counted, d.known = at, at
		return true
	}
	span := at.Sub(d.counted)
	isKnown := found.UsageErr == nil && found.Elapsed > 0
	if span <= 0 || !isKnown && at.Sub(d.known) <= patience {
		return false
	}
	t := d.next(at)
	d.counted, d.unreported, d.unknown = at, d.unreported+span, nil
	if isKnown {
		d.known = at
		elapsed := min(found.Elapsed, d.unreported) // time that was counted as unattributed is not counted again
		t.fill(found, elapsed, in)
		d.unreported -= elapsed
	} else if found.Err == nil { // otherwise the zone reports the error
		d.unknown = found.UsageErr
	}
	if !isKnown || d.unreported > maxLag { // the library has restarted its samples
		t.addUnattributed(d.unreported)
		d.unreported = 0
	}
	return true
}

// show returns the energy of a poll for its zone. isCounted reports whether take added the usage of
// the poll. If it did not, or if the counter did not change, the zone keeps its last counter, so
// that energy and usage always cover the same time.
func (d *device) show(found *gpulibrary.Device, isCounted bool) power.Shown {
	switch {
	case found.HasPower:
		return power.Shown{Zone: &d.zone, At: found.At, IsPower: true, Power: found.Power, Average: found.Average}
	case !d.hasEnergy || isCounted && found.Energy != d.seen:
		d.energy, d.hasEnergy = units.Energy(found.Energy), true
	}
	d.seen = found.Energy
	return power.Shown{Zone: &d.zone, At: found.At, Counter: d.energy}
}

// next appends an empty tally to pending, and returns it.
func (d *device) next(at time.Time) *tally {
	if len(d.pending) == maxPending {
		d.merge(2)
	}
	t := &tally{at: at, single: map[int32]int{}}
	d.pending = append(d.pending, t)
	return t
}

// merge merges the oldest n pending tallies.
func (d *device) merge(n int) {
	for _, t := range d.pending[1:n] {
		d.pending[0].add(t)
	}
	d.pending = slices.Delete(d.pending, 1, n)
}

// handOut removes the usage of the time until returned from pending, and returns it. It returns no
// usage if the usage until returned is incomplete.
func (d *device) handOut() gpu.Usage {
	n := 0
	for n < len(d.pending) && !d.pending[n].at.After(d.returned) {
		n++
	}
	if n == 0 || d.pending[n-1].at.Before(d.returned) {
		return gpu.Usage{Domain: d.zone.Domain}
	}
	d.merge(n)
	out := d.pending[0]
	d.pending = slices.Delete(d.pending, 0, 1)
	return gpu.Usage{
		Domain: d.zone.Domain, Busy: out.busy, Total: out.total, Assumed: out.assumed, Users: out.users, Unattributed: out.unattributed,
	}
}

// tally is the usage of a GPU in one poll or in several consecutive polls.
type tally struct {
	at                        time.Time // of the last poll
	busy, total, unattributed units.CPUTime
	assumed                   bool // a part of busy is assumed
	users                     []gpu.User
	single                    map[int32]int // index in users, by PID, of users with one PID
}

const (
	// maxUsers is the maximum number of users of a tally. The GPU time of further users is
	// unattributed.
	maxUsers = 4096
	// maxTime limits each GPU time of a library, so that sums do not overflow.
	maxTime = 1 << 56
)

// fill sets the usage of a poll, scaled down from the time of the poll to elapsed.
func (t *tally) fill(found *gpulibrary.Device, elapsed time.Duration, in *cgroups) {
	part := func(of time.Duration) units.CPUTime {
		used := uint64(min(max(of, 0), maxTime))
		if elapsed < found.Elapsed {
			used = units.MulDiv(used, uint64(elapsed), uint64(found.Elapsed))
		}
		return units.CPUTime(used)
	}
	t.total = units.CPUTime(elapsed)
	t.busy = min(part(found.Busy), t.total)
	t.unattributed, t.assumed = part(found.Unattributed), found.Assumed
	for i := range found.Users {
		u := &found.Users[i]
		used, parts := part(u.Used), make([]units.CPUTime, len(u.Memory))
		if len(parts) != len(u.PIDs) || !gpu.ByMemory(parts, used, u.Memory) {
			t.addProcesses(slices.Compact(slices.Sorted(slices.Values(u.PIDs))), used, u.Last, in)
			continue
		}
		for k := range parts {
			t.addProcesses([]int32{u.PIDs[k]}, parts[k], u.Last, in)
		}
	}
}

// addProcesses adds the usage of processes that cannot be distinguished. pids is sorted.
func (t *tally) addProcesses(pids []int32, used units.CPUTime, last time.Time, in *cgroups) {
	if len(pids) == 0 || pids[0] <= 0 { // no process
		t.unattributed = units.AddSaturating(t.unattributed, used)
		return
	}
	t.addUser(gpu.User{PIDs: pids, Used: used, Last: last, Cgroup: in.of(pids)})
}

// addUnattributed adds a time whose users could not be read.
func (t *tally) addUnattributed(d time.Duration) {
	t.busy += units.CPUTime(d)
	t.total += units.CPUTime(d)
	t.unattributed = units.AddSaturating(t.unattributed, units.CPUTime(d))
	t.assumed = true
}

// add adds the next tally.
func (t *tally) add(o *tally) {
	t.at = o.at
	t.busy = units.AddSaturating(t.busy, o.busy)
	t.total = units.AddSaturating(t.total, o.total)
	t.unattributed = units.AddSaturating(t.unattributed, o.unattributed)
	t.assumed = t.assumed || o.assumed
	for _, u := range o.users {
		t.addUser(u)
	}
}

// addUser adds a user to the user with the same PIDs. u.PIDs is sorted.
func (t *tally) addUser(u gpu.User) {
	if i := t.index(u.PIDs); i >= 0 {
		same := &t.users[i]
		same.Used = units.AddSaturating(same.Used, u.Used)
		same.Cgroup = cmp.Or(u.Cgroup, same.Cgroup)
		if u.Last.After(same.Last) {
			same.Last = u.Last
		}
		return
	}
	n := len(t.users)
	if n == maxUsers {
		t.unattributed = units.AddSaturating(t.unattributed, u.Used)
		return
	}
	t.users = append(t.users, u)
	if len(u.PIDs) == 1 {
		t.single[u.PIDs[0]] = n
	}
}

// index returns the index of the user with these PIDs, or -1.
func (t *tally) index(pids []int32) int {
	if len(pids) == 1 {
		if i, ok := t.single[pids[0]]; ok {
			return i
		}
		return -1
	}
	return slices.IndexFunc(t.users, func(u gpu.User) bool { return slices.Equal(u.PIDs, pids) })
}
