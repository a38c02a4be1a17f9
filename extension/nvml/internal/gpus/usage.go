// SPDX-License-Identifier: Apache-2.0

package gpus

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/energyreceiver/energyreceiver/extension/gpulibrary"
	"github.com/energyreceiver/energyreceiver/extension/nvml/internal/nvml"
)

// usage determines which processes used a GPU that is not divided.
//
// The driver samples the GPU about six times per second, and keeps the samples for ten seconds or
// more. A sample has an instant, the utilization of the GPU since the previous instant, and the
// process that used the GPU. UtilizationSamples lists the instants with the utilization.
// ProcessUtilization reports the mean of each process over all instants since a timestamp, idle
// instants included, with the timestamp of the last sample of the process. This is not documented,
// but the sum over the processes is the same for different timestamps
// (https://github.com/Syllo/nvtop/issues/110). The GPU time of a process is this mean times the
// time that the instants cover.
//
// The weight of a process is the utilization of the busiest engine that it used: streaming
// multiprocessors, encoder or decoder. The engines work in parallel, so their sum would count time
// twice. A process that only encodes also keeps the GPU busy.
//
// If the driver reports no process samples, the busy time of the GPU belongs to all processes that
// hold its memory, and the receiver divides it in proportion to memory. After the first sample,
// memory is no longer a weight: if the function fails later, usage reports an error.
type usage struct {
	started bool
	until   time.Time // end of the usage that was returned last
	polled  time.Time // start of the last poll
	clock   clock
	// noInstants is set if the library does not list instants.
	noInstants bool
	// sampled is set once the driver has reported a sample of a process, even if its values are 0.
	// unsampled is the busy time without samples that isSilent counts.
	sampled   bool
	unsampled time.Duration
	users     users
	// open lists the processes that have the GPU open. openBefore lists the processes that had it
	// open when usage was last returned. Both are empty if the library does not list processes.
	open, openBefore []nvml.Process
}

const (
	// maxLag is the maximum time until the driver returns a sample.
	maxLag = 2 * time.Second
	// kept is the minimum time that the driver keeps samples. Its buffer is dimensioned for ten
	// seconds (NV2080_CTRL_CMD_PERF_GET_GPUMON_PERFMON_UTIL_SAMPLES_V2 in NVIDIA's open kernel
	// modules).
	kept = 8 * time.Second
	// silence is the limit of isSilent: the uninterrupted busy time without a process sample.
	silence = 10 * time.Second
)

// window holds the totals of the instants since usage was last returned.
type window struct {
	until    time.Time     // end of the window
	newest   uint64        // timestamp of the last instant
	instants int           // number of instants
	covered  time.Duration // time that the instants cover
	busy     time.Duration // part of covered during which the graphics and compute engine was busy
	lost     time.Duration // time whose samples the driver no longer keeps
}

// restart restarts the measurement. The usage of the GPU until the next poll is not measured.
func (u *usage) restart() {
	*u = usage{until: u.until, users: u.users, sampled: u.sampled}
}

// read sets the usage of a device, and returns the end of the time that it covers.
func (u *usage) read(device nvml.Device, d *gpulibrary.Device) time.Time {
	now := time.Now()
	instants, err := u.readInstants(device, now)
	if err != nil {
		d.UsageErr = fmt.Errorf("utilization: %w", err)
		return now
	}
	w := u.window(instants, now)
	if open, err := device.Processes(); err == nil {
		u.open = open
	} else { // the processes of the previous list may still have it open
		u.open = append(u.open[:0], u.openBefore...)
	}
	entries, err := u.readEntries(device, &w)
	u.sampled = u.sampled || len(entries) > 0
	missing := isMissing(err) && !u.sampled
	if err != nil && !missing {
		d.UsageErr = fmt.Errorf("utilization of processes: %w", err)
		return now
	}
	switch {
	case !u.started:
		u.start(d, instants, entries, now)
		return now
	case !w.until.After(u.until): // no new samples
		u.polled = now
		return u.until
	}
	u.users.reset()
	u.addEntries(entries, &w, now)
	missing = u.isSilent(&w) || missing
	for _, p := range u.open { // including idle processes, which may have a share of the idle energy
		u.users.open(p.PID)
	}
	ended := slices.DeleteFunc(slices.Clone(u.openBefore), func(p nvml.Process) bool { return u.users.has(p.PID) })
	if !missing {
		u.addEnded(ended, &w)
	} else if err := u.addHolders(device, slices.Concat(u.open, ended), &w); err != nil {
		d.UsageErr = err
		return w.until
	}
	u.handOut(d, &w)
	u.openBefore = append(u.openBefore[:0], u.open...)
	u.polled = now
	return w.until
}

// readInstants returns the instants after clock.since.
func (u *usage) readInstants(device nvml.Device, now time.Time) ([]nvml.Utilization, error) {
	if u.noInstants {
		return nil, nil
	}
	instants, err := device.UtilizationSamples(u.clock.since)
	if isMissing(err) {
		u.noInstants = true
		return nil, nil
	}
	instants = u.clock.plausible(instants, now)
	if err != nil || len(instants) > 0 || !u.clock.mayBeSetBack(now) {
		return instants, err
	}
	all, err := device.UtilizationSamples(0)
	if err != nil || !u.clock.setBack(all, now) {
		return nil, err
	}
	u.started = false
	return u.clock.plausible(all, now), nil
}

// readEntries returns the entries of processes after clock.since. The driver spends milliseconds of
// CPU time on them, so they are not read for an idle GPU that no process has open.
func (u *usage) readEntries(device nvml.Device, w *window) ([]nvml.Sample, error) {
	if u.started && !u.noInstants && w.busy == 0 && len(u.open) == 0 && len(u.openBefore) == 0 {
		return nil, nil
	}
	return device.ProcessUtilization(u.clock.since)
}

// start makes the present samples the baseline. The time since usage was last returned is
// unattributed.
func (u *usage) start(d *gpulibrary.Device, instants []nvml.Utilization, entries []nvml.Sample, now time.Time) {
	u.clock.start(instants, now)
	u.users.reset()
	for i := range entries {
		if u.noInstants {
			u.clock.since = max(u.clock.since, entries[i].Timestamp)
		}
	}
	if !u.until.IsZero() {
		d.Elapsed = now.Sub(u.until)
		d.Busy, d.Unattributed = d.Elapsed, d.Elapsed
	}
	u.openBefore = append(u.openBefore[:0], u.open...)
	u.started, u.until, u.polled = true, now, now
}

// window returns the totals of the instants.
func (u *usage) window(instants []nvml.Utilization, now time.Time) window {
	w := window{until: now, newest: u.clock.since, instants: len(instants)}
	if !u.started {
		return w
	}
	if u.noInstants {
		w.covered, w.instants = now.Sub(u.until), 1
		return w
	}
	first := u.clock.stand(instants, &w)
	switch {
	case len(instants) > 0:
		w.until = u.clock.moment(w.newest, now)
	case now.Sub(u.clock.sinceAt) < maxLag: // the driver may still return samples
		w.until = u.until
	}
	if now.Sub(u.polled) > kept {
		w.lost = w.until.Sub(u.until)
		if len(instants) > 0 {
			w.lost = min(w.lost, microseconds(first-min(first, u.clock.since)))
		}
	}
	return w
}

// addEntries adds the entries of processes to users.
func (u *usage) addEntries(entries []nvml.Sample, w *window, now time.Time) {
	if w.instants == 0 {
		return // the entries are read again with their instants
	}
	if u.noInstants {
		w.newest = u.clock.newest(entries, now)
	}
	latest := w.newest + uint64(maxLag.Microseconds())
	for i := range entries {
		e := &entries[i]
		busiest := max(e.SM, e.Encoder, e.Decoder)
		if busiest > 100 || e.Timestamp <= u.clock.since || e.Timestamp > latest {
			continue // invalid or stale
		}
		u.users.addEntry(e, busiest)
	}
	stands := w.covered // the time that each entry covers
	if u.noInstants {
		stands = min(now.Sub(u.clock.sinceAt), kept)
	}
	u.users.weigh(stands, func(timestamp uint64) time.Time {
		return w.until.Add(-microseconds(w.newest - min(timestamp, w.newest)))
	})
}

// isSilent reports whether the driver has the function for process samples but reports no samples
// for this GPU. It adds up the busy time of successive windows during which the GPU was busy
// throughout and the same processes had it open. Other windows do not count: an idle GPU has no
// samples, and the driver drops the samples of a process when the process exits. The result holds
// until the first sample.
//
// If the library lists no instants, a driver without process samples is not detected, and the GPU
// counts as idle.
func (u *usage) isSilent(w *window) bool {
	same := slices.EqualFunc(u.open, u.openBefore, func(a, b nvml.Process) bool { return a.PID == b.PID })
	switch {
	case u.unsampled > silence: // the result holds
	case same && len(u.open) > 0 && w.busy > w.covered*9/10:
		u.unsampled += w.busy
	default:
		u.unsampled = 0
	}
	return !u.sampled && u.unsampled > silence
}

// addEnded attributes busy time that no entry explains to the processes that closed the GPU since
// usage was last returned. The driver discards the samples of a process when the process exits, so
// several such processes cannot be distinguished.
func (u *usage) addEnded(ended []nvml.Process, w *window) {
	if gap := u.gap(w); gap > 0 {
		user := together(ended, gap)
		user.Memory = nil
		u.users.add(user)
	}
}

// addHolders attributes the busy time of a GPU without process samples to all processes that have
// the GPU open, as one user.
func (u *usage) addHolders(device nvml.Device, holders []nvml.Process, w *window) error {
	if u.noInstants {
		percent, err := device.Utilization()
		if err != nil {
			return fmt.Errorf("utilization: %w", err)
		}
		w.busy = time.Duration(min(percent, 100)) * w.covered / 100
	}
	u.users.reset()
	u.users.add(together(holders, w.busy))
	return nil
}

// together returns processes that cannot be distinguished as one user. The user has no PIDs if no
// process has a valid PID.
func together(processes []nvml.Process, used time.Duration) gpulibrary.User {
	u := gpulibrary.User{Used: used}
	for _, p := range processes {
		if p.PID > 0 && p.PID <= math.MaxInt32 {
			u.PIDs, u.Memory = append(u.PIDs, int32(p.PID)), append(u.Memory, p.Memory)
		}
	}
	return u
}

// gap returns the busy time that entries do not explain. Percentages are whole numbers, so a
// difference of up to one percent per entry is attributed to rounding.
func (u *usage) gap(w *window) time.Duration {
	gap := w.busy - u.users.used() - u.users.anonymous
	if gap <= time.Duration(u.users.entries)*w.covered/100 {
		return 0
	}
	return gap
}

// handOut sets the usage of a device. The next window begins at the end of this window.
func (u *usage) handOut(d *gpulibrary.Device, w *window) {
	d.Elapsed = w.until.Sub(u.until)
	used, unattributed := u.users.used(), u.users.anonymous+u.gap(w)
	limit := max(d.Elapsed-w.lost, 0)
	if sum := used + unattributed; sum > limit {
		scale := float64(limit) / float64(sum)
		unattributed = time.Duration(float64(unattributed) * scale)
		for i := range u.users.list {
			u.users.list[i].Used = time.Duration(float64(u.users.list[i].Used) * scale)
		}
		used = u.users.used()
	}
	d.Busy = min(max(w.busy, used+unattributed), limit) + w.lost
	d.Unattributed = unattributed + w.lost
	d.Users = append(d.Users, u.users.list...)
	if w.instants > 0 && w.newest > u.clock.since {
		u.clock.since, u.clock.sinceAt = w.newest, w.until
	}
	u.until = w.until
}

// users adds up the entries of one poll.
type users struct {
	list      []gpulibrary.User
	weights   []uint64 // sum of percentages, by user
	last      []uint64 // timestamp of the last entry, by user
	pids      []int32
	index     map[uint32]int // in list
	entries   int
	unnamed   uint64        // sum of percentages of entries without a valid PID
	anonymous time.Duration // GPU time of these entries
}

func (u *users) reset() {
	u.list, u.weights, u.last, u.pids = u.list[:0], u.weights[:0], u.last[:0], u.pids[:0]
	u.entries, u.unnamed, u.anonymous = 0, 0, 0
	if u.index == nil {
		u.index = map[uint32]int{}
	}
	clear(u.index)
}

// add adds a user that has PIDs.
func (u *users) add(user gpulibrary.User) {
	if len(user.PIDs) > 0 {
		u.list = append(u.list, user)
	}
}

// addEntry adds an entry. A repeated entry counts once.
func (u *users) addEntry(e *nvml.Sample, percent uint32) {
	if e.PID == 0 || e.PID > math.MaxInt32 {
		u.entries++
		u.unnamed += uint64(percent)
		return
	}
	i, known := u.index[e.PID]
	switch {
	case !known:
		i = u.open(e.PID)
	case u.last[i] == e.Timestamp:
		return
	}
	u.entries++
	u.weights[i] += uint64(percent)
	u.last[i] = max(u.last[i], e.Timestamp)
}

// open returns the index of the user of a PID, and adds the user if it is new. It returns -1 if the
// PID is not valid.
func (u *users) open(pid uint32) int {
	if pid == 0 || pid > math.MaxInt32 {
		return -1
	}
	if i, known := u.index[pid]; known {
		return i
	}
	i := len(u.list)
	u.index[pid] = i
	u.pids = append(u.pids, int32(pid))
	u.list = append(u.list, gpulibrary.User{PIDs: u.pids[i : i+1 : i+1]})
	u.weights, u.last = append(u.weights, 0), append(u.last, 0)
	return i
}

// weigh converts percentages of a time to GPU times.
func (u *users) weigh(of time.Duration, at func(timestamp uint64) time.Time) {
	for i := range u.list {
		if u.weights[i] > 0 {
			u.list[i].Used = percent(u.weights[i], of)
			u.list[i].Last = at(u.last[i])
		}
	}
	u.anonymous = percent(u.unnamed, of)
}

func (u *users) has(pid uint32) bool {
	_, known := u.index[pid]
	return known
}

// used returns the GPU time of all users.
func (u *users) used() (sum time.Duration) {
	for i := range u.list {
		sum += u.list[i].Used
	}
	return sum
}

func percent(n uint64, of time.Duration) time.Duration {
	return time.Duration(float64(n) * float64(of) / 100)
}

func microseconds(n uint64) time.Duration {
	return time.Duration(min(n, math.MaxInt64/1000)) * time.Microsecond
}
