// SPDX-License-Identifier: Apache-2.0

package weigh

import (
	"cmp"
	"errors"
	"time"

	"github.com/energyreceiver/energyreceiver/internal/cgroup"
)

// ErrRestarted is the error of a NodeCounter that starts to count again.
var ErrRestarted = errors.New("the counters were opened again")

// NodeCounter counts an event of the whole node, over all CPUs.
type NodeCounter struct{ counters *counters }

// OpenNodeCounter starts to count an event of the node whose file system is at root. It fails if
// the machine has no such counter or the kernel does not allow reading it.
func OpenNodeCounter(root string, e Event) (*NodeCounter, error) {
	tree := cgroup.New(cgroup.Options{Root: root})
	kernel, err := openPerf(tree, e)
	if err != nil {
		return nil, err
	}
	return &NodeCounter{newCounters(kernel, tree, e)}, nil
}

// Read returns the events since the previous call, or since the counter was opened. If other CPUs
// are online than before, or after a failed call, the events until now are lost and the error is
// ErrRestarted.
func (c *NodeCounter) Read(now time.Time) (uint64, error) {
	c.counters.begin(now, nil)
	if all := &c.counters.all; !all.known {
		return 0, cmp.Or(all.err, ErrRestarted)
	}
	return c.counters.all.counted, nil
}

// Close stops the counter.
func (c *NodeCounter) Close() error { return c.counters.close() }
