// SPDX-License-Identifier: Apache-2.0

package energyreceiver

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component/componentstatus"

	"github.com/energyreceiver/energyreceiver/internal/power"
	"github.com/energyreceiver/energyreceiver/internal/test/hostsim"
	"github.com/energyreceiver/energyreceiver/receiver/internal/config"
)

func TestHiddenProcessesAreACondition(t *testing.T) {
	for name, c := range map[string]struct {
		second hostsim.Process
		cause  string
	}{
		"a PID namespace": {hostsim.Process{Parent: 1, Comm: "app", Exe: "/bin/app"}, "hostPID: true on Kubernetes, --pid=host with Docker"},
		"a filter":        {hostsim.Process{Comm: "kthreadd", Kernel: true}, "sandbox"},
	} {
		n := newTestNode(t)
		n.host.Processes[2] = &c.second
		n.host.HiddenThreads = 300
		n.start()
		require.Equal(t, []string{"Degraded process visibility"}, n.logged(), "%s: at the start", name)
		require.Equal(t, componentstatus.StatusRecoverableError, n.status[len(n.status)-1].Status())
		for range 20 {
			n.runUnseen(400)
			n.run(100*joule, nil)
		}
		require.Len(t, n.logged(), 1, "%s: once, and not for what it causes", name)
		assert.Contains(t, n.reasons("process visibility")[0], c.cause)
		n.host.HiddenThreads = 0
		for range 13 {
			n.run(100*joule, map[int]int64{1: 10})
		}
		assert.Equal(t, []string{"Degraded process visibility", "Recovered process visibility"}, n.logged(), name)
	}
}

func TestAShortBurstOfHiddenProcessesIsNoCondition(t *testing.T) {
	n := newTestNode(t)
	n.start()
	for i := range 30 {
		n.host.HiddenThreads = 1000 * (i % 2)
		n.run(100*joule, map[int]int64{1: 100})
	}
	assert.Empty(t, n.logged())
}

// children makes processes that no scan shows use the CPU for a tenth of the time, and their parent as much.
func children(n *testNode, scans int, joules uint64) {
	for range scans {
		n.runUnseen(100)
		n.host.HiddenThreads = 0
		// An orphan that ended has no row that could show its time.
		delete(n.host.Processes, 30)
		n.run(joules*joule, map[int]int64{10: 100})
		n.host.Processes[30] = &hostsim.Process{Comm: "orphan", Start: int64(n.host.Uptime / hostsim.Tick)}
		require.NoError(n.t, n.host.Render())
		n.s.sample()
	}
}

func TestMuchUnattributedEnergyIsACondition(t *testing.T) {
	n := newTestNode(t)
	n.process(10, "app")
	n.start()
	children(n, 3, 300)
	require.Empty(t, n.logged(), "not yet a minute")
	children(n, 20, 300)
	require.Equal(t, []string{"Degraded unattributed energy"}, n.logged())
	assert.Regexp(t, `^\d\d % of 6\.\d W of active power had no owner in the last 1m0s: the CPU time source does not report short-lived processes: .* CAP_BPF and CAP_PERFMON`,
		n.reasons("unattributed energy")[0])
	for range 20 {
		n.run(300*joule, map[int]int64{10: 200})
	}
	assert.Equal(t, []string{"Degraded unattributed energy", "Recovered unattributed energy"}, n.logged())
}

func TestUnattributedEnergyOfANodeAtRestIsNoCondition(t *testing.T) {
	n := newTestNode(t)
	n.process(10, "app")
	n.start()
	children(n, 30, 1)
	assert.Positive(t, n.sum("system.unattributed.energy", nil))
	assert.Empty(t, n.logged())
}

// missingNode is a node of 4 W at rest where scans show seven processes.
func missingNode(t *testing.T, preset config.Preset) *testNode {
	n := newTestNode(t, func(c *Config) {
		c.Zones, c.Window = []power.Kind{power.Package}, c.CollectionInterval
		rest := 4.0
		static := config.StaticPowerConfig{Model: config.StaticFixed, Power: &rest}
		c.Attribution.Preset, c.Attribution.StaticPower = preset, map[power.Kind]config.StaticPowerConfig{power.Package: static}
	})
	n.host.LastPID = 7
	for pid := 2; pid <= 7; pid++ {
		n.process(pid, "app")
	}
	n.start()
	return n
}

// miss runs the node for ten seconds with 20 J of active energy, in which the visible processes use
// 710 ms of CPU time, and born short-lived processes whose parent discards their times use ticks of
// 10 ms.
func (n *testNode) miss(born int, ticks int64) {
	n.host.LastPID += born
	n.runUnseen(ticks)
	n.run(60*joule, map[int]int64{1: 10, 2: 8, 3: 7, 4: 6, 5: 20, 6: 9, 7: 11})
}

func TestTimeOfShortLivedProcessesThatNothingShowsIsUnattributed(t *testing.T) {
	for name, c := range map[string]struct {
		preset              config.Preset
		born                int
		ticks               int64
		first, unattributed float64 // J
	}{
		"short-lived processes":          {"", 10, 29, 2, 5.8},
		"Kepler's formula":               {config.PresetKepler, 10, 29, 20 * 10. / 71, 0},
		"Scaphandre's formula":           {config.PresetScaphandre, 10, 29, 20 * 10. / 71, 0},
		"no process was born":            {"", 0, 29, 20 * 10. / 71, 0},
		"within the noise of ticks":      {"", 10, 10, 20 * 10. / 71, 0},
		"the counter is behind the scan": {"", 10, -20, 20 * 10. / 71, 0},
	} {
		n := missingNode(t, c.preset)
		n.miss(c.born, c.ticks)
		state := []string{"energy.state=active"}
		if n.idleRule() == config.IdleNone {
			state = nil
		}
		assert.InDelta(t, c.first, n.sum("process.energy", attrs{"process.pid": "1"}, state...), 1e-5, name)
		assert.InDelta(t, c.unattributed, n.sum("system.unattributed.energy", nil, state...), 1e-6, name)
		assert.InDelta(t, 20, n.sum("system.energy", nil, "energy.state=active"), 1e-6, name)
	}
}

func TestNoiseOfTicksThatIsTakenBackIsNotUnattributed(t *testing.T) {
	n := missingNode(t, "")
	n.miss(10, -25) // a scan shows time that the node's counter does not show yet
	for range 5 {
		n.miss(10, 25)
		n.miss(10, -25)
	}
	assert.Zero(t, n.sum("system.unattributed.energy", nil))
}
