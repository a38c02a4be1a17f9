// SPDX-License-Identifier: Apache-2.0

package energyspans

import "time"

// service holds the series of a service, and its spans and waiting energy.
type service struct {
	name   string
	series map[key]*series
	births births
	memory memory
}

// key identifies a series of a service. Empty texts are absent.
type key struct {
	route, span string
	labels      string // values of the configured labels, each followed by a separator
	overflow    bool
}

// series holds the energy of the samples with the same names and labels.
type series struct {
	energy uint64    // µJ, since start
	start  time.Time // start timestamp: the time of the points before the series began
	added  time.Time // when energy was last added
	// first is the number of the first flush with the series, complete the number of the first flush with all energy.
	first, complete uint64
}

// Memory of a series and of a service, without texts. A service counts as two series, because its
// overflow series begins even if there is no room.
const (
	seriesBytes  = 512
	serviceBytes = 1024
)

// services has the series of all services. A service takes no series from another. A service with n
// series gets one more if more than n are free. Its other energy is in its overflow series.
type services struct {
	maxSeries, maxServices int
	maxBytes               int // limit of bytes for new services and series; overflow series may exceed it

	all    []*service // the first is others
	byName map[string]*service
	others *service // all services without a name or beyond maxServices
	live   int      // number of series
	bytes  int      // memory of series and services

	flushes, delivered uint64    // number of flushes; number of the last flush that the next component accepted
	stamp              time.Time // time of the last points; at first, the start of the connector
}

func newServices(cfg *Config) services {
	others := &service{series: map[key]*series{}}
	return services{
		maxSeries: cfg.MaxSeries, maxServices: cfg.MaxSeries / 4, maxBytes: cfg.MemoryLimitMiB << 20 / 2,
		all: []*service{others}, byName: map[string]*service{"": others}, others: others,
	}
}

// find returns the named service if it has energy, and others otherwise.
func (s *services) find(name string) *service {
	if found := s.byName[name]; found != nil && len(found.series) > 0 {
		return found
	}
	return s.others
}

// largest returns the memory with the most bytes.
func (s *services) largest() *memory {
	m := &s.others.memory
	for _, of := range s.all {
		if of.memory.bytes > m.bytes {
			m = &of.memory
		}
	}
	return m
}

// seriesOf returns the series with a key. If there is no room, it returns the overflow series of
// the service or of others.
func (s *services) seriesOf(name string, k key, now time.Time) *series {
	of := s.admit(name)
	if of.name != name || of.series[k] == nil && !s.mayBegin(of, k, now) {
		k = key{overflow: true}
	}
	found := of.series[k]
	if found == nil {
		found = &series{start: s.stamp, first: s.flushes + 1}
		of.series[k] = found
		s.live++
		s.bytes += k.bytes()
	}
	return found
}

// admit returns the named service. It adds a new service if there is room, and returns others if there is not.
func (s *services) admit(name string) *service {
	of := s.byName[name]
	bytes := serviceBytes + len(name)
	switch {
	case of != nil:
		return of
	case len(s.all) > s.maxServices || s.bytes+bytes > s.maxBytes:
		return s.others
	}
	of = &service{name: name, series: map[key]*series{}}
	s.all, s.byName[name] = append(s.all, of), of
	s.bytes += bytes
	return of
}

// mayBegin reports whether a service may have another series. If so, it counts the series for the hourly limit.
func (s *services) mayBegin(of *service, k key, now time.Time) bool {
	return len(of.series) < s.maxSeries-s.live && s.bytes+k.bytes() <= s.maxBytes && of.births.take(now, s.maxSeries/2)
}

func (k *key) bytes() int { return seriesBytes + len(k.route) + len(k.span) + len(k.labels) }

// expire removes series whose last energy is older than since, if all their energy has been delivered. It also removes
// services that have neither series nor memory.
func (s *services) expire(since time.Time) {
	kept := s.all[:0]
	for _, of := range s.all {
		for k, x := range of.series {
			if x.added.Before(since) && x.complete <= s.delivered {
				delete(of.series, k)
				s.live--
				s.bytes -= k.bytes()
			}
		}
		if of != s.others && len(of.series) == 0 && of.memory.Len() == 0 {
			delete(s.byName, of.name)
			s.bytes -= serviceBytes + len(of.name)
			continue
		}
		kept = append(kept, of)
	}
	clear(s.all[len(kept):])
	s.all = kept
}

// births limits how many series of a service begin in an hour. Each new series occupies an equal part of an hour, which
// follows the part of the previous series. until is the end of the last part, at most an hour ahead.
type births struct{ until time.Time }

// take reports whether another series may begin. If so, it counts the series.
func (b *births) take(now time.Time, perHour int) bool {
	if b.until.Before(now) {
		b.until = now
	}
	next := b.until.Add(time.Hour / time.Duration(perHour))
	if next.After(now.Add(time.Hour)) {
		return false
	}
	b.until = next
	return true
}
