// SPDX-License-Identifier: Apache-2.0

package weigh

import (
	"errors"
	"time"

	"github.com/energyreceiver/energyreceiver/internal/cgroup"
	"github.com/energyreceiver/energyreceiver/internal/units"
)

// counts opens the counters of a kernel.
type counts interface {
	// open starts a counter for a cgroup. A nil node stands for the whole machine.
	open(n *cgroup.Node) (count, error)
	// cpusChanged reports whether the online CPUs changed since the last call. Open counters miss
	// CPUs that came online since, including CPUs that were offline for a while.
	cpusChanged() bool
}

// count is an open counter, over all CPUs.
type count interface {
	// read returns the number of events since the counter was opened. It is an estimate if other
	// counters used the hardware too. The error is errStopped if the counter of a CPU can be read
	// but does not count any more.
	read() (uint64, error)
	// replaced reports whether the cgroup was removed, even if another cgroup has its path now.
	replaced() bool
	close() error
}

// errStopped is the error of a counter that was taken off its CPU, which happens when the CPU goes
// offline.
var errStopped = errors.New("a counter has stopped")

// counter counts the events of a cgroup, or of the whole machine. It is opened again after a
// failure.
type counter struct {
	node    *cgroup.Node // nil for the whole machine
	count   count        // nil while closed
	last    uint64       // reading of count
	counted uint64       // in the interval
	known   bool         // counted is valid
	total   uint64       // of all intervals
	err     error        // of the last attempt to open or read the counter
	tries   int          // to open it since it was read last
	retry   time.Time
}

// advance reads the events since the last call. If a process of the cgroup ran, advance opens a
// closed counter, which counts from then on.
func (c *counter) advance(kernel counts, now time.Time, ran bool) {
	c.counted, c.known = 0, false
	if c.count == nil {
		if ran && !now.Before(c.retry) {
			c.open(kernel, now)
		}
		return
	}
	total, err := c.count.read()
	if err != nil {
		c.err, c.retry = err, now.Add(retryAfter)
		_ = c.stop() // it was only read from
		return
	}
	c.counted, c.known = units.Advance(c.last, total), true
	c.last, c.total = total, units.AddSaturating(c.total, c.counted)
	if c.counted == 0 && ran && c.count.replaced() {
		c.known = false
		_ = c.stop() // it was only read from
		c.open(kernel, now)
	}
}

func (c *counter) open(kernel counts, now time.Time) {
	c.tries++
	opened, err := kernel.open(c.node)
	if err == nil {
		if c.last, err = opened.read(); err != nil {
			_ = opened.close() // it was only read from
		}
	}
	if c.err = err; err != nil {
		c.retry = now.Add(retryAfter)
		return
	}
	c.count, c.tries = opened, 0
}

func (c *counter) stop() (err error) {
	if c.count != nil {
		err = c.count.close()
	}
	c.count = nil
	return err
}
