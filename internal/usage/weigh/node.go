// SPDX-License-Identifier: Apache-2.0

package weigh

import (
	"errors"

	"github.com/energyreceiver/energyreceiver/internal/cgroup"
)

// ErrRestarted is the error of a NodeCounter that starts to count again.
var ErrRestarted = errors.New("the counters were opened again")

// NodeCounter counts an event of the whole node, over all CPUs.
type NodeCounter struct {
	kernel counts
	count  count // nil if it could not be opened again
	last   uint64
}

// OpenNodeCounter starts to count an event of the node whose file system is at root. It fails if the
// machine has no such counter or the kernel does not allow reading it.
func OpenNodeCounter(root string, e Event) (*NodeCounter, error) {
	kernel, err := openPerf(cgroup.New(cgroup.Options{Root: root}), e)
	if err != nil {
		return nil, err
	}
	c := &NodeCounter{kernel: kernel}
	return c, c.open()
}

func (c *NodeCounter) open() (err error) {
	if c.count, err = c.kernel.open(nil); err != nil {
		c.count = nil
		return err
	}
	if c.last, err = c.count.read(); err != nil {
		return errors.Join(err, c.Close())
	}
	return nil
}

// Read returns the events since the previous call, or since the counter was opened. If other CPUs are
// online than before, or after a failed call, the events until now are lost and the error is ErrRestarted.
func (c *NodeCounter) Read() (uint64, error) {
	if c.kernel.cpusChanged() || c.count == nil {
		if err := errors.Join(c.Close(), c.open()); err != nil {
			return 0, err
		}
		return 0, ErrRestarted
	}
	total, err := c.count.read()
	if err != nil {
		_ = c.Close() // it was only read from
		if errors.Is(err, errStopped) {
			err = ErrRestarted
		}
		return 0, err
	}
	counted := total - c.last
	c.last = total
	return counted, nil
}

// Close stops the counter.
func (c *NodeCounter) Close() (err error) {
	if c.count != nil {
		err = c.count.close()
	}
	c.count = nil
	return err
}
