// SPDX-License-Identifier: Apache-2.0

package gpus

import (
	"cmp"
	"slices"
	"time"

	"github.com/energyreceiver/energyreceiver/extension/nvml/internal/nvml"
)

// clock maps the timestamps of the driver to system time, and measures the sampling period. With
// most drivers, timestamps are the system time, with others the time since boot
// (https://github.com/polarsignals/gpu-metrics-agent/pull/36). The clock of the driver may be set.
type clock struct {
	since   uint64    // timestamp of the last counted instant, 0 at first
	sinceAt time.Time // since as system time
	// soonest is the instant that the driver returned with the smallest lag, and soonestAt the time
	// when it was returned.
	soonest   uint64
	soonestAt time.Time
	searched  time.Time // time of the last call of setBack
	// distances is a ring buffer of the distances between two instants, in µs. count is the number
	// of distances that were written to it.
	distances [16]uint64
	count     int
	period    time.Duration // the median of distances, 0 at first
}

const (
	// defaultPeriod is the sampling period before it is measured, and longestPeriod its maximum.
	// NVML documents 1/6 s to 1 s (nvmlUtilization_t).
	defaultPeriod = time.Second / 6
	longestPeriod = 3 * time.Second / 2
	// searchEvery is the time between searches of all samples while there is no new sample.
	searchEvery = 10 * time.Second
)

// start makes the present time of the driver's clock the baseline. Earlier instants do not count,
// even if the driver returns them later.
func (c *clock) start(instants []nvml.Utilization, now time.Time) {
	c.sinceAt = now
	if len(instants) == 0 {
		return
	}
	newest := instants[len(instants)-1].Timestamp
	c.learn(instants)
	c.since = newest + uint64(now.Sub(c.moment(newest, now)).Microseconds())
}

// plausible returns the new instants with valid values, ordered by time. Instants in the future are
// dropped, unless all are in the future because the clock was set.
func (c *clock) plausible(instants []nvml.Utilization, now time.Time) []nvml.Utilization {
	instants = slices.DeleteFunc(instants, func(i nvml.Utilization) bool { return i.Percent > 100 || i.Timestamp <= c.since })
	slices.SortFunc(instants, func(a, b nvml.Utilization) int {
		return cmp.Compare(a.Timestamp, b.Timestamp)
	})
	latest := c.latest(now)
	future := slices.IndexFunc(instants, func(i nvml.Utilization) bool { return i.Timestamp > latest })
	if c.since == 0 || future <= 0 {
		return instants
	}
	return instants[:future]
}

// latest returns the last timestamp that is not in the future.
func (c *clock) latest(now time.Time) uint64 {
	return c.since + uint64((max(now.Sub(c.sinceAt), 0) + maxLag).Microseconds())
}

// newest returns the latest timestamp of entries that is not in the future. If all new timestamps
// are in the future, it returns the latest of them.
func (c *clock) newest(entries []nvml.Sample, now time.Time) uint64 {
	newest, future, latest := c.since, uint64(0), c.latest(now)
	for i := range entries {
		if at := entries[i].Timestamp; c.since == 0 || at <= latest {
			newest = max(newest, at)
		} else {
			future = max(future, at)
		}
	}
	if newest == c.since && future > 0 {
		return future
	}
	return newest
}

// stand adds the time that instants cover to a window, and returns the timestamp of the beginning
// of this time. An instant covers the time since the previous instant. If samples are missing in
// between, it covers one sampling period.
func (c *clock) stand(instants []nvml.Utilization, w *window) (begins uint64) {
	c.learn(instants)
	period := c.samplingPeriod()
	previous := c.since
	for i := range instants {
		at := instants[i].Timestamp
		stands := microseconds(at - previous)
		if previous == 0 || stands > period*3/2 {
			stands = period
		}
		if i == 0 {
			begins = at - min(at, uint64(stands.Microseconds()))
		}
		w.covered += stands
		w.busy += time.Duration(instants[i].Percent) * stands / 100
		w.newest, previous = at, at
	}
	return begins
}

// learn estimates the sampling period of the driver from the distances between instants.
func (c *clock) learn(instants []nvml.Utilization) {
	for i := 1; i < len(instants); i++ {
		distance := instants[i].Timestamp - instants[i-1].Timestamp
		if distance > 0 && microseconds(distance) <= longestPeriod {
			c.distances[c.count%len(c.distances)] = distance
			c.count++
		}
	}
	if len(instants) > 1 && c.count > 0 {
		sorted := c.distances
		known := sorted[:min(c.count, len(sorted))]
		slices.Sort(known)
		c.period = microseconds(known[len(known)/2])
	}
}

func (c *clock) samplingPeriod() time.Duration {
	if c.period == 0 {
		return defaultPeriod
	}
	return c.period
}

// moment converts the newest timestamp to system time. If the driver's clock is not the system
// clock, the offset between the two clocks is estimated from the instant with the smallest lag.
func (c *clock) moment(timestamp uint64, now time.Time) time.Time {
	if lag, ok := lag(timestamp, now); ok {
		return now.Add(-lag)
	}
	expected := c.soonest + uint64(max(now.Sub(c.soonestAt), 0).Microseconds())
	if c.soonest == 0 || timestamp >= expected || microseconds(expected-timestamp) > maxLag {
		c.soonest, c.soonestAt = timestamp, now
		return now
	}
	return now.Add(-microseconds(expected - timestamp))
}

// lag returns the time from a timestamp of the system clock to now. It returns false if the
// timestamp is in the future or older than maxLag.
func lag(timestamp uint64, now time.Time) (time.Duration, bool) {
	wall := uint64(max(now.UnixMicro(), 0))
	if timestamp > wall || wall-timestamp > uint64(maxLag.Microseconds()) {
		return 0, false
	}
	return microseconds(wall - timestamp), true
}

// mayBeSetBack reports whether to check for a clock that was set back: there were no new instants
// for maxLag, and no check for searchEvery.
func (c *clock) mayBeSetBack(now time.Time) bool {
	return c.since != 0 && now.Sub(c.sinceAt) >= maxLag && now.Sub(c.searched) >= searchEvery
}

// setBack reports whether the driver's clock was set back: all samples that the driver keeps are
// older than since. In this case it resets c.
func (c *clock) setBack(all []nvml.Utilization, now time.Time) bool {
	c.searched = now
	newest := uint64(0)
	for i := range all {
		newest = max(newest, all[i].Timestamp)
	}
	if newest == 0 || newest >= c.since {
		return false
	}
	*c = clock{searched: now}
	return true
}
