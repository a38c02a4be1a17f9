// SPDX-License-Identifier: Apache-2.0

package gpus

import (
	"cmp"
	"slices"
	"time"

	"github.com/energyreceiver/energyreceiver/extension/nvml/internal/nvml"
)

// clock is the clock of the driver, as its timestamps show it, and the period of its samples. It is
// the system's clock with most drivers and the time since boot with others
// (https://github.com/polarsignals/gpu-metrics-agent/pull/36), and may be set.
type clock struct {
	since   uint64    // the last instant that was counted, 0 at first
	sinceAt time.Time // when it was
	// soonest is the instant that the driver returned with the smallest lag, and soonestAt the time
	// when it was returned.
	soonest   uint64
	soonestAt time.Time
	searched  time.Time // when all samples that the driver keeps were searched, because there was no new one
	// distances are the last distances between two instants, in µs. The first count are set.
	distances [16]uint64
	count     int
	period    time.Duration // the median of distances, 0 at first
}

const (
	// defaultPeriod is the sampling period before it is measured, and longestPeriod its maximum.
	// NVML's documentation says 1/6 s to 1 s (nvmlUtilization_t).
	defaultPeriod = time.Second / 6
	longestPeriod = 3 * time.Second / 2
	// searchEvery is the time between searches of all samples while there is no new sample.
	searchEvery = 10 * time.Second
)

// start makes now, by the clock of the driver, the baseline. Instants before it do not count, even
// if the driver returns them later.
func (c *clock) start(instants []nvml.Utilization, now time.Time) {
	c.sinceAt = now
	if len(instants) == 0 {
		return
	}
	newest := instants[len(instants)-1].Timestamp
	c.learn(instants)
	c.since = newest + uint64(now.Sub(c.moment(newest, now)).Microseconds())
}

// plausible sorts instants by time, and returns the new and possible ones. Instants in the future
// are dropped, unless all are in the future because the clock was set.
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

// newest returns the last timestamp of entries that is not in the future, unless all are.
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

// stand adds the times that its instants cover to a window. It returns the start of the first of
// these times, by the clock of the driver. An instant covers the time since the previous one. If
// the driver did not sample in between, it covers a period.
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

// learn estimates the sampling period of the driver from the distances of instants.
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

// moment returns the time of the last instant, as of now. If the clock of the driver is not the
// system clock, the instant with the smallest lag gives their difference.
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

// mayBeSetBack reports whether it is time to look whether the clock was set back, when there are no
// new samples.
func (c *clock) mayBeSetBack(now time.Time) bool {
	return c.since != 0 && now.Sub(c.sinceAt) >= maxLag && now.Sub(c.searched) >= searchEvery
}

// setBack looks at all samples that the driver keeps, and reports whether its clock was set back.
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
