// SPDX-License-Identifier: Apache-2.0

package drm

import (
	"cmp"
	"errors"
	"slices"
	"strconv"
	"time"

	"github.com/energyreceiver/energyreceiver/internal/kernfs"
	"github.com/energyreceiver/energyreceiver/internal/stall"
	"github.com/energyreceiver/energyreceiver/internal/units"
)

// key distinguishes clients. IDs are unique for each GPU at least.
type key struct {
	device *device
	id     uint64
}

// holder is a process that has a client, and a descriptor by which it has it.
type holder struct {
	pid, parent int32
	start       time.Duration // of the process
	slot        int32         // of the process in the table
	fd          int32
}

// client is one opening of a GPU.
type client struct {
	key
	holder
	other   holder        // another process that has it too, with a PID of 0 if none is known
	latest  time.Duration // the latest start of an unrelated process that has held it
	counted []counter     // by the index of the engine class
	since   time.Time     // when its counters were read last
	over    time.Duration // the time before that in which they counted what was used last
	used    units.CPUTime // in the interval, over all engine classes
	lost    bool          // its descriptor is closed
	text    *kernfs.File  // of the holder's descriptor, nil unless it is kept
}

// counter is the time or the cycles that engines of one class worked for a client.
type counter struct {
	highest, total uint64
	used           units.CPUTime // when it was read last
	begun          bool
}

// maxStep bounds the excess of a counter over the time that its engines can have worked since the
// last reading. A larger excess is garbage; a smaller one comes from late reports of the driver.
const maxStep = 1000

// count adds what the client used since it was read last. claimed reports whether a client that is
// new was opened in the interval. A class that shows up later was not used before: amdgpu leaves
// out what is 0.
func (c *client) count(f *fdinfo, now time.Time, claimed bool) {
	d := c.device
	elapsed, known := d.elapsed, !c.since.IsZero()
	if known {
		elapsed = max(0, now.Sub(c.since))
	}
	c.since, c.over = now, elapsed
	for i := range c.counted {
		c.counted[i].used = 0
	}
	counts := d.driver == "amdgpu"
	for i := range f.engines {
		e := &f.engines[i]
		index := -1
		if e.counts() {
			index = d.engine(e.name)
		}
		if index < 0 {
			continue
		}
		counts, d.counts = true, true
		for len(c.counted) <= index {
			c.counted = append(c.counted, counter{begun: known})
		}
		used := c.counted[index].advance(e, &d.engines[index].hz, uint64(elapsed), claimed, d.slept)
		c.counted[index].used = used
		c.used += used
		d.engines[index].used += used
	}
	d.silent = d.silent || !counts
}

// advance returns for how long the engines of a class worked for a client in the time that elapsed,
// by their number. hz is the rate of total cycles, as far as it is known. slept reports whether
// these may have stood still meanwhile.
func (c *counter) advance(e *engineInfo, hz *uint64, elapsed uint64, claimed, slept bool) units.CPUTime {
	value, total, isNew := e.cycles, uint64(0), !c.begun
	switch {
	case e.hasNS:
		value = e.ns
	case e.hasCounter:
		total = e.total
	}
	step, passed := units.Advance(c.highest, value), units.Advance(c.total, total)
	c.begun, c.total = true, total
	switch {
	case e.hasNS:
	case !e.hasCounter:
		step = units.MulDiv(step, uint64(time.Second), e.hz)
	case passed == 0 || passed == total || slept && *hz > 0: // it was set back, or is the first one
		step = units.MulDiv(step, uint64(time.Second), *hz)
	default:
		step = units.MulDiv(step, elapsed, passed)
		*hz = units.MulDiv(passed, uint64(time.Second), elapsed)
	}
	capacity := max(1, min(e.capacity, maxCapacity))
	available := elapsed * capacity
	if isNew && (!claimed || step > 2*available) { // more than twice is from before the interval
		c.highest = value
		return 0
	}
	if step/maxStep > available {
		return 0
	}
	c.highest = max(c.highest, value)
	return units.CPUTime(min(step, available) / capacity)
}

// maxCapacity bounds the number of engines of a class.
const maxCapacity = 1 << 10

// maxBatch is how many texts one request reads: to pass a request to another goroutine takes as long as
// to read a text.
const maxBatch = 16

// readClients reads the counters of all clients that are known.
func (s *Source) readClients(now time.Time) {
	s.due = s.due[:0]
	for _, c := range s.clients {
		if c.used = 0; !c.device.asleep {
			s.due = append(s.due, c)
		}
	}
	for due := s.due; len(due) > 0; {
		n := min(len(due), maxBatch)
		s.readBatch(due[:n], now)
		due = due[n:]
	}
}

// readBatch reads the counters of some clients together. If a process blocks that, each is read by
// itself, which shows the process, until no read is blocked any more.
func (s *Source) readBatch(clients []*client, now time.Time) {
	f := s.files.Job()
	f.batch = f.batch[:0]
	for _, c := range clients {
		f.batch = append(f.batch, batched{descriptor: s.descriptorOf(c)})
	}
	switch err := s.files.RunShared(0, (*files).readBatch); {
	case err == nil:
		begin := 0
		for i, c := range clients {
			b := &f.batch[i]
			s.keep(c, s.take(c, f.texts[begin:b.end], b.err, now))
			begin = b.end
		}
		f.batch = f.batch[:0]
		return
	case s.files.Job() == f: // nothing was read
		f.batch = f.batch[:0]
	default: // the texts are read still
		for _, c := range clients {
			s.abandon(c)
		}
	}
	for _, c := range clients {
		s.keep(c, s.readClient(c, now))
	}
}

// keep marks a client as lost if its descriptor no longer is the client's.
func (s *Source) keep(c *client, isClient bool) {
	if !isClient {
		c.lost, s.anyLost = true, true
		s.drop(c)
	}
}

// readClient reads a client's counters. It reports whether its descriptor still is the client's.
func (s *Source) readClient(c *client, now time.Time) bool {
	text, err := s.textOf(c)
	return s.take(c, text, err, now)
}

// take counts what the text of a client's descriptor shows. It reports whether the descriptor still is
// the client's.
func (s *Source) take(c *client, text []byte, err error, now time.Time) bool {
	if err != nil {
		return !gone(err)
	}
	s.info.parse(text)
	if !s.info.hasClient || s.info.client != c.id || s.info.pdev != nil && string(s.info.pdev) != c.device.name {
		return false
	}
	c.count(&s.info, now, false)
	return true
}

// maxKept is how many texts are kept open: each takes a descriptor, and 5 KiB of the kernel's
// memory.
const maxKept = 512

// textOf reads the text of the descriptor by which a client is known. It is kept open: to read it
// again then takes a quarter of the time of opening it anew (BenchmarkThisMachine). An open text
// keeps neither the process nor its descriptor alive: each read looks up both, and fails once
// either no longer exists (fs/proc/fd.c, seq_show).
func (s *Source) textOf(c *client) ([]byte, error) {
	f := s.files.Job()
	f.descriptor = s.descriptorOf(c)
	err := s.run(c.pid, c.start, c.fd, (*files).readText)
	if errors.Is(err, stall.ErrUnread) && s.files.Job() != f { // the read has not returned
		s.abandon(c)
		return nil, err
	}
	f.descriptor = descriptor{}
	return f.text, err
}

// descriptorOf returns the descriptor of a client, with its text if there is room to keep it open.
func (s *Source) descriptorOf(c *client) descriptor {
	if c.text == nil && s.kept < maxKept {
		s.kept++
		c.text = &kernfs.File{Path: s.path("proc", strconv.Itoa(int(c.pid)), "fdinfo", strconv.Itoa(int(c.fd)))}
	}
	slept := c.since.Equal(s.last) && s.processes.slept(&c.holder, s.reads)
	return descriptor{pid: c.pid, fd: c.fd, kept: c.text, checked: slept}
}

// abandon leaves a client's text to the Job that reads it.
func (s *Source) abandon(c *client) {
	if c.text != nil {
		c.text = nil
		s.kept--
	}
}

// drop closes a client's text if it is kept.
func (s *Source) drop(c *client) {
	if c.text != nil {
		_ = c.text.Close() // opened for reading: nothing can be lost
		c.text = nil
		s.kept--
	}
}

// hold makes a process the one that has a client.
func (s *Source) hold(c *client, h holder) {
	s.drop(c)
	c.holder = h
	s.unsorted = true
}

// meet notes that a process has a client, of which info is the text.
func (s *Source) meet(k key, h holder, claimed bool) {
	c, now := s.byKey[k], s.look.now
	switch {
	case c == nil:
		if !s.mayMeet() {
			return
		}
		c = &client{key: k, holder: h, latest: h.start}
		c.count(&s.info, now, claimed)
		c.over = min(c.over, s.look.table.Now-h.start)
		s.clients, s.byKey[k] = append(s.clients, c), c
		s.unsorted = true
	case c.lost:
		c.lost = false
		s.hold(c, h)
		c.count(&s.info, now, false)
	case c.pid == h.pid:
	case c.yields(h):
		c.other = c.holder
		s.hold(c, h)
		c.latest = max(c.latest, h.start)
	default:
		c.other = h
	}
}

// yields reports whether the client belongs to the process rather than to the one that has it.
func (c *client) yields(h holder) bool {
	switch {
	case c.parent == h.pid:
		return true
	case h.parent == c.pid:
		return false
	}
	return h.start > c.latest
}

// passOn gives the clients whose process has them no more to another one that has.
func (s *Source) passOn(now time.Time) {
	if !s.anyLost {
		return
	}
	for _, c := range s.clients {
		if c.lost && c.other.pid != 0 {
			s.hold(c, c.other)
			c.other = holder{}
			c.lost = !s.readClient(c, now)
		}
	}
}

// estimateLost estimates the use of clients that were closed since the last Read, because the kernel
// drops their counters. Each client is assumed to have used the engines at the rate of the previous
// interval for half of this one, and no more than other clients leave of an engine.
func (s *Source) estimateLost() {
	if !s.anyLost {
		return
	}
	for _, c := range s.clients {
		if !c.lost {
			continue
		}
		d := c.device
		for i := range c.counted {
			used := min(portion(c.counted[i].used, d.elapsed/2, c.over), units.Advance(d.engines[i].used, units.CPUTime(d.elapsed)))
			d.engines[i].used += used
			c.used += used
		}
	}
}

// portion returns the use of an engine in a time at the rate of an earlier time.
func portion(used units.CPUTime, in, over time.Duration) units.CPUTime {
	if over <= 0 {
		return 0
	}
	return min(units.CPUTime(units.MulDiv(uint64(used), uint64(in), uint64(over))), units.CPUTime(in))
}

// forgetLost forgets the clients that no process was found to have any more.
func (s *Source) forgetLost() {
	if !s.anyLost {
		return
	}
	s.anyLost = false
	s.clients = slices.DeleteFunc(s.clients, func(c *client) bool {
		if c.lost {
			s.drop(c)
			delete(s.byKey, c.key)
		}
		return c.lost
	})
}

// sortClients orders the clients by GPU and process.
func (s *Source) sortClients() {
	if s.unsorted {
		slices.SortFunc(s.clients, func(a, b *client) int {
			return cmp.Or(cmp.Compare(a.device.name, b.device.name), cmp.Compare(a.pid, b.pid), cmp.Compare(a.id, b.id))
		})
		s.unsorted = false
	}
}
