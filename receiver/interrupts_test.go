// SPDX-License-Identifier: Apache-2.0

package energyreceiver

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/energyreceiver/energyreceiver/internal/test/hostsim"
	"github.com/energyreceiver/energyreceiver/receiver/internal/config"
)

// interruptedNode is a node of two tenths of interrupts, where a runs for three times as long as
// they do, and ksoftirqd for as long.
func interruptedNode(t *testing.T, edit func(*config.AttributionConfig)) *testNode {
	n := sharedNode(t, edit)
	n.host.Processes[5] = &hostsim.Process{Comm: "ksoftirqd/0", Kernel: true}
	for _, p := range n.host.Processes {
		p.Resident = 100
	}
	n.host.CPU.IRQ = 1
	n.start()
	n.interrupt()
	return n
}

// interrupt runs the node for ten seconds.
func (n *testNode) interrupt() {
	n.host.CPU.IRQ += 100
	n.host.CPU.SoftIRQ += 200 // half of it in ksoftirqd
	n.host.CPU.Idle -= 200
	n.host.CPU.User -= 100 // what run adds for ksoftirqd
	n.host.CPU.Idle -= 100
	n.run(100*joule, map[int]int64{10: 600, 5: 100})
}

func TestInterruptsAreUnattributedIfSet(t *testing.T) {
	for name, c := range map[string]struct {
		rule            config.InterruptRule
		weight          config.Weight
		a, unattributed float64 // of the active energy
	}{
		"by default":              {"", "", 6. / 7, 0},
		"shared":                  {config.InterruptsShared, "", 6. / 7, 0},
		"unattributed":            {config.InterruptsUnattributed, "", 6. / 9, 2. / 9},
		"unattributed, by memory": {config.InterruptsUnattributed, config.WeightMemoryCPUTime, 6. / 7, 0}, // interrupts hold none
	} {
		n := interruptedNode(t, func(a *config.AttributionConfig) {
			if a.Interrupts = c.rule; c.weight != "" {
				a.Weight = allWeight(c.weight)
			}
		})
		active := n.sum("system.energy", nil, "energy.state=active")
		assert.InEpsilon(t, c.a, n.sum("container.energy", attrs{"container.id": idA})/active, 1e-6, name)
		assert.InDelta(t, c.unattributed, n.sum("system.unattributed.energy", nil)/active, 1e-6, "%s: less what ksoftirqd has", name)
	}
}

func TestUnattributedInterruptsAreNoCondition(t *testing.T) {
	n := interruptedNode(t, func(a *config.AttributionConfig) { a.Interrupts = config.InterruptsUnattributed })
	for range 15 {
		n.interrupt()
	}
	assert.Greater(t, n.sum("system.unattributed.energy", nil), 0.2*n.sum("system.energy", nil, "energy.state=active"))
	assert.Empty(t, n.logged())
	children(n, 20, 300)
	assert.Equal(t, []string{"Degraded unattributed energy"}, n.logged(), "what else is unattributed is one")
}
