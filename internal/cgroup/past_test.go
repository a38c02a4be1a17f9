// SPDX-License-Identifier: Apache-2.0

package cgroup

import (
	"encoding/json"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/energyreceiver/energyreceiver/internal/units"
)

// again has another tree go on.
func (n *node) again() {
	n.Helper()
	text, err := json.Marshal(n.AppendPast(nil))
	require.NoError(n, err)
	var past []Past
	require.NoError(n, json.Unmarshal(text, &past))
	require.NoError(n, n.Close())
	n.Tree = New(Options{Root: n.Root()})
	n.Restart()
	n.Resume(past)
}

// TestNoRestartCountsACgroupTwice has processes of two cgroups, one inside the other, use time, and
// now and then another tree go on.
func TestNoRestartCountsACgroupTwice(t *testing.T) {
	const inner = service + "/inner"
	for seed := range uint64(20) {
		rng := rand.New(rand.NewPCG(seed, 3))
		n := newNode(t)
		var used, accounted, told units.CPUTime
		counters := map[string]units.CPUTime{}
		n.Enter(service, true)
		n.Enter(inner, true)
		for range 60 {
			shown := map[string]units.CPUTime{}
			for _, path := range []string{service, inner} {
				own, unseen := units.CPUTime(rng.IntN(50))*units.Tick, units.CPUTime(rng.IntN(3)*rng.IntN(100))*units.Tick
				shown[path] = own
				counters[path] += own + unseen
				used += own + unseen
				accounted += own
			}
			n.set(counters[inner], inner)
			n.count(service, counters[service]+counters[inner]) // a counter has what is inside, too
			for _, path := range []string{service, inner} {
				n.Node(path).Account(0, shown[path])
			}
			n.ShortLived(2*units.Tick, 0, func(_ *Node, _ int32, found units.CPUTime, _ bool) { told += found })
			n.Sweep()
			require.LessOrEqual(t, accounted+told, used, "seed %d", seed)
			require.LessOrEqual(t, used-accounted-told, 2*3*units.Tick, "seed %d: all but rounding", seed)
			if rng.IntN(5) == 0 {
				n.again()
				n.Enter(service, false)
				n.Enter(inner, false)
			}
		}
	}
}
