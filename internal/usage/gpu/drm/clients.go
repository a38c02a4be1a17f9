// SPDX-License-Identifier: Apache-2.0

package drm

import (
	"errors"
	"io/fs"
	"slices"
	"syscall"
	"time"

	"github.com/energyreceiver/energyreceiver/internal/kernfs"
	"github.com/energyreceiver/energyreceiver/internal/units"
	"github.com/energyreceiver/energyreceiver/internal/usage/proc"
)

// key identifies a client. Its ID is unique per GPU at least.
type key struct {
	device *device
	id     uint64
}

// holder is a process that has a client, and a descriptor of the client.
type holder struct {
	pid, parent int32
	start       time.Duration // of the process
	fd          int32
}

// client is one opening of a GPU.
type client struct {
	key
	holder
	other   int32         // PID of another process that has the client, or 0
	latest  time.Duration // the latest start of an unrelated process that has held the client
	counted []counter     // by the index of the engine class
	since   time.Time     // of the last reading of its counters
	over    time.Duration // the time between the last two readings
	used    units.CPUTime // in the interval, over all engine classes
	lost    bool          // its descriptor is closed
	text    *kernfs.Kept  // the open text of the descriptor, nil unless it is kept open
}

// counter counts the time or the cycles that the engines of one class worked for a client.
type counter struct {
	highest, total uint64
	used           units.CPUTime // at the last reading
	begun          bool
}

// maxStep bounds the excess of a counter over the time that its engines can have worked since the
// last reading. A larger excess is invalid; a smaller excess comes from late reports of the driver.
const maxStep = 1000

// count adds the use since the last reading. For a new client in the list, claimed reports whether
// the client was opened in the interval. amdgpu omits counters of 0, so an engine class that appears
// later was not used before.
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

// advance returns the time that the engines of a class worked for a client in the elapsed time,
// divided by the number of engines. hz is the rate of total cycles, 0 until it is measured. slept
// reports whether the total cycles may have stopped during the interval.
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
	case passed == 0 || passed == total || slept && *hz > 0: // total was set back or did not advance, or was not read before
		step = units.MulDiv(step, uint64(time.Second), *hz)
	default:
		step = units.MulDiv(step, elapsed, passed)
		*hz = units.MulDiv(passed, uint64(time.Second), elapsed)
	}
	capacity := max(1, min(e.capacity, maxCapacity))
	available := elapsed * capacity
	if isNew && (!claimed || step > 2*available) { // such a step includes use before the interval
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

const (
	// maxBatch is the number of texts that one request reads: passing a request to another
	// goroutine takes the time of reading a text.
	maxBatch = 64
	// maxKept is the maximum number of texts that are kept open: each takes a descriptor, and 5 KiB
	// of the kernel's memory.
	maxKept = 512
)

// clients are the clients of all GPUs.
//
// Texts of clients are kept open: reading an open text takes a quarter of the time of opening it
// again (BenchmarkThisMachine). Each read looks up the process and its descriptor (fs/proc/fd.c,
// seq_show).
type clients struct {
	reader    *reader
	table     *proc.Table // during a Read
	list      []*client
	byKey     map[key]*client
	kept      kernfs.Allowance // of texts
	last, now time.Time        // of Reads
	info      fdinfo
	due       []*client // scratch of read
}

// read reads the counters of all clients whose GPUs are not asleep. If a process blocks a batch,
// each of its clients is read by itself, which identifies the process.
func (cs *clients) read(last, now time.Time, t *proc.Table) {
	cs.table, cs.last, cs.now, cs.due = t, last, now, cs.due[:0]
	for _, c := range cs.list {
		if c.used = 0; !c.device.asleep {
			cs.due = append(cs.due, c)
		}
	}
	for due := cs.due; len(due) > 0; {
		n := min(len(due), maxBatch)
		if cs.readBatch(manyClients, due[:n]) != nil {
			for i, c := range due[:n] {
				_ = cs.readBatch(kernfs.Subject{PID: c.pid, Start: c.start}, due[i:i+1]) // the Guard reports the error
			}
		}
		due = due[n:]
	}
}

// readBatch reads the counters of the clients in batch. of is their process, or names several
// processes. Clients whose descriptors are closed are lost. If the counters are not read, the error
// is kernfs.ErrUnread.
func (cs *clients) readBatch(of kernfs.Subject, batch []*client) error {
	f := cs.reader.files()
	f.batch = f.batch[:0]
	for _, c := range batch {
		f.batch = append(f.batch, cs.descriptorOf(c))
	}
	err := cs.reader.run(of, (*files).readBatch)
	if err != nil && cs.reader.files() != f { // the texts belong to the read, which has not returned
		for _, c := range batch {
			cs.forgetText(c)
		}
		return err
	}
	begin := 0
	for i, c := range batch {
		if b := &f.batch[i]; err == nil {
			cs.take(c, f.text[begin:b.end], b.err)
			begin = b.end
		}
	}
	f.batch = f.batch[:0]
	return err
}

// take counts the use that the text of a client's descriptor shows. The client is lost if the
// descriptor is closed or belongs to another client.
func (cs *clients) take(c *client, text []byte, err error) {
	if err == nil {
		cs.info.parse(text)
	}
	switch {
	case gone(err), err == nil && !cs.info.is(c.id, c.device.name):
		c.lost = true
		cs.drop(c)
	case err == nil:
		c.count(&cs.info, cs.now, false)
	}
}

// descriptorOf returns the descriptor of a client, with its text if the text may be kept open.
func (cs *clients) descriptorOf(c *client) descriptor {
	if c.text == nil && cs.kept.Take() {
		c.text = new(kernfs.Kept)
	}
	return descriptor{pid: c.pid, fd: c.fd, kept: c.text, checked: c.since.Equal(cs.last) && cs.slept(c)}
}

// slept reports whether it is certain that the process of a client did not run since the previous
// scan.
func (cs *clients) slept(c *client) bool {
	if !cs.table.Traits().Exact {
		return false
	}
	row := cs.table.Find(c.pid)
	return row != nil && row.Start == c.start && !row.IsActive()
}

// drop closes the text of a client if it is kept open.
func (cs *clients) drop(c *client) {
	if c.text != nil {
		_ = c.text.Close() // it was only read from
		cs.forgetText(c)
	}
}

// forgetText releases the open file of a client's text.
func (cs *clients) forgetText(c *client) {
	if c.text != nil {
		c.text = nil
		cs.kept.GiveBack(1)
	}
}

// hold makes a process the holder of a client.
func (cs *clients) hold(c *client, h holder) {
	cs.drop(c)
	c.holder, c.lost = h, false
}

// meet records that the process h has the client k. The age is the age of the process, and info is
// the client's text. See client.count for claimed.
func (cs *clients) meet(k key, h holder, info *fdinfo, age time.Duration, claimed bool) {
	c := cs.byKey[k]
	switch {
	case c == nil:
		c = &client{key: k, holder: h, latest: h.start}
		c.count(info, cs.now, claimed)
		c.over = min(c.over, age)
		cs.list, cs.byKey[k] = append(cs.list, c), c
	case c.lost:
		cs.hold(c, h)
		c.count(info, cs.now, false)
	case c.pid == h.pid:
	case c.yields(h):
		c.other = c.pid
		cs.hold(c, h)
		c.latest = max(c.latest, h.start)
	default:
		c.other = h.pid
	}
}

// yields reports whether the client belongs to the process h rather than to its holder.
func (c *client) yields(h holder) bool {
	switch {
	case c.parent == h.pid:
		return true
	case h.parent == c.pid:
		return false
	}
	return h.start > c.latest
}

// estimateLost estimates the use of clients that were closed since the last Read, because the
// kernel drops their counters. Each client is assumed to have used the engines at the rate of the
// previous interval for half of this one, limited to the remaining time of each engine.
func (cs *clients) estimateLost() {
	for _, c := range cs.list {
		if !c.lost || c.over <= 0 {
			continue
		}
		d := c.device
		for i := range c.counted {
			used := units.CPUTime(units.MulDiv(uint64(c.counted[i].used), uint64(d.elapsed/2), uint64(c.over)))
			used = min(used, units.CPUTime(d.elapsed/2), units.Advance(d.engines[i].used, units.CPUTime(d.elapsed)))
			d.engines[i].used += used
			c.used += used
		}
	}
}

// report adds the use of the clients to the GPUs, and removes the clients that no process has.
func (cs *clients) report() {
	cs.list = slices.DeleteFunc(cs.list, func(c *client) bool {
		if !c.lost {
			c.device.use(c.pid, c.used, time.Time{})
			return false
		}
		if c.used > 0 { // its process may have exited, and another process may have its PID
			c.device.use(c.pid, c.used, cs.last)
		}
		delete(cs.byKey, c.key)
		return true
	})
}

func (cs *clients) close() {
	for _, c := range cs.list {
		cs.drop(c)
	}
}

// gone reports whether an error means that a process or a descriptor no longer exists.
func gone(err error) bool { return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ESRCH) }

func denied(err error) bool { return errors.Is(err, fs.ErrPermission) }
