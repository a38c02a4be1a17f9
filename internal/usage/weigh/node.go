// SPDX-License-Identifier: Apache-2.0

package weigh

import (
	"errors"
	"time"

	"github.com/energyreceiver/energyreceiver/internal/units"
	"github.com/energyreceiver/energyreceiver/internal/usage/proc"
)

// ErrRestarted is the error of a NodeCounter that starts to count again.
var ErrRestarted = errors.New("the counters were opened again")

// errStopped is the error of a counter that was taken off its CPU, which happens when the CPU goes
// offline.
var errStopped = errors.New("a counter has stopped")

// NodeCounter counts an event of the whole node, over all CPUs.
type NodeCounter struct {
	kernel kernelCounters
	last   uint64 // total of the last Read
	closed bool
	retry  time.Time // after a failed attempt to open the counters
}

// kernelCounters opens and reads the counters of an event on all CPUs.
type kernelCounters interface {
	// open replaces the counters by counters of the online CPUs.
	open() error
	// read returns the number of events since open. It is an estimate if other counters used the
	// hardware too. The error is errStopped if the counter of a CPU can be read but does not count
	// any more.
	read() (uint64, error)
	// cpusChanged reports whether the online CPUs changed since the last call. Open counters miss
	// CPUs that came online since, including CPUs that were offline for a while.
	cpusChanged() bool
	close() error
}

// OpenNodeCounter starts to count an event of the node whose file system is at root. It fails if
// the machine has no such counter or the kernel does not allow reading it.
func OpenNodeCounter(root string, e proc.Event) (*NodeCounter, error) {
	kernel, err := openPerf(root, e)
	if err != nil {
		return nil, err
	}
	return &NodeCounter{kernel: kernel}, nil
}

// Read returns the events since the previous call, or since the counter was opened. If other CPUs
// are online than before, or after a failed call, the events until now are lost and the error is
// ErrRestarted.
func (c *NodeCounter) Read(now time.Time) (uint64, error) {
	if c.kernel.cpusChanged() || c.closed {
		return 0, c.restart(now)
	}
	total, err := c.kernel.read()
	if errors.Is(err, errStopped) {
		return 0, c.restart(now)
	}
	if err != nil {
		c.closed, c.retry = true, now.Add(retryAfter)
		_ = c.kernel.close() // it was only read from
		return 0, err
	}
	counted := units.Advance(c.last, total)
	c.last = total
	return counted, nil
}

// restart opens the counters again, unless an attempt has failed recently.
func (c *NodeCounter) restart(now time.Time) error {
	if c.closed && now.Before(c.retry) {
		return ErrRestarted
	}
	if c.closed = true; c.kernel.open() != nil {
		c.retry = now.Add(retryAfter)
		return ErrRestarted
	}
	c.closed, c.last = false, 0
	return ErrRestarted
}

// Close stops the counter.
func (c *NodeCounter) Close() error { return c.kernel.close() }
