// SPDX-License-Identifier: Apache-2.0

package weigh

import "github.com/energyreceiver/energyreceiver/internal/cgroup"

// SimulatedEvents returns Events of a simulated kernel. counted returns how many events of a kind
// there were so far in a cgroup and all cgroups inside, or on the whole machine if the path is
// empty. Only tests call SimulatedEvents.
func SimulatedEvents(counted func(e Event, cgroup string) uint64) *Events {
	return &Events{open: func(_ *cgroup.Tree, e Event) (counts, error) {
		return simulated(func(cgroup string) uint64 { return counted(e, cgroup) }), nil
	}}
}

// simulated is the counts of a simulated kernel.
type simulated func(cgroup string) uint64

func (s simulated) open(n *cgroup.Node) (count, error) {
	path := ""
	if n != nil {
		path = n.Path()
	}
	return simulatedCount{s, path}, nil
}

func (s simulated) cpusChanged() bool { return false }

func (s simulated) identity(*cgroup.Node) (uint64, bool) { return 0, true }

type simulatedCount struct {
	of     simulated
	cgroup string
}

func (c simulatedCount) read() (uint64, error) { return c.of(c.cgroup), nil }

func (c simulatedCount) close() error { return nil }
