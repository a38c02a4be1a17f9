// SPDX-License-Identifier: Apache-2.0

package energyreceiver

import (
	"fmt"
	"path"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/energyreceiver/energyreceiver/internal/test/hostsim"
	"github.com/energyreceiver/energyreceiver/internal/usage/cpu"
)

func TestTheFirstIntervalShowsAContainersShortLivedChildren(t *testing.T) {
	for name, c := range map[string]struct {
		clocks   bool
		rounding float64 // of what the container has beyond its process
	}{"procfs": {false, 0.05}, "clocks": {true, 0.11}} { // 50 ms may be those of a process that was moved there
		t.Run(name, func(t *testing.T) {
			n := newTestNode(t)
			if c.clocks {
				n.opens(func(o cpu.Options) cpu.Source { return cpu.NewSimulatedClocks(o, n.host.CPUClock) })
			}
			n.process(10, "sh", docker(idA))
			n.process(20, "app")
			n.host.Cgroups[scope(idA)] = 40 * time.Hour
			n.start()
			n.runUnseen(300)
			n.host.Cgroups[scope(idA)] += 4 * time.Second
			n.run(100*joule, map[int]int64{10: 100, 20: 100})
			assert.InDelta(t, 40, n.one("container.energy").value, c.rounding)
			assert.InDelta(t, 10, n.one("process.energy", pid(20)).value, 0.11)
		})
	}
}

func TestShortLivedChildrenOfANewContainerAreClaimedOnce(t *testing.T) {
	for name, c := range map[string]struct {
		late bool // the counter cannot be read in the first interval
		want float64
	}{
		"by the container":                        {false, 40},
		"by nobody, if its counter is read later": {true, 10},
	} {
		t.Run(name, func(t *testing.T) {
			n := newTestNode(t)
			n.process(20, "app")
			n.start()
			n.newborn(12, docker(idA))
			if !c.late {
				n.host.Cgroups[scope(idA)] = 4 * time.Second
			}
			n.host.Processes[1].CUser += 300 // init has waited for them
			n.runUnseen(300)
			n.run(100*joule, map[int]int64{12: 100, 20: 100})
			assert.InDelta(t, c.want, n.one("container.energy").value, 0.3, "less the rounding of the process's own time")
			n.host.Cgroups[scope(idA)] = 4 * time.Second
			n.run(100*joule, map[int]int64{20: 500})
			assert.InDelta(t, c.want, n.one("container.energy").value, 0.3)
			assert.InDelta(t, 60, n.one("process.energy", pid(20)).value, 0.1)
		})
	}
}

// While no task is created or exits, processes do not account for all CPU time in the counters: an older
// process may move to another cgroup.
func TestCPUTimeOfAProcessThatMovesIsAttributedOnceIfNoTaskIsCreated(t *testing.T) {
	n := newTestNode(t)
	n.opens(func(o cpu.Options) cpu.Source { return cpu.NewSimulatedClocks(o, n.host.CPUClock) })
	n.process(20, "mover")
	n.process(30, "other")
	n.host.Created, n.host.MaxPID = 1000, 1<<22
	n.start()
	n.run(0, nil)
	n.newborn(12, docker(idA))
	n.host.Created, n.host.LastPID = n.host.Created+2, 12
	window := func(inContainer int64, end func()) {
		n.passWithout(time.Second, 10*joule, map[int]int64{12: 1, 20: 40, 30: 40})
		for up := scope(idA); up != "/"; up = path.Dir(up) {
			n.host.Cgroups[up] += time.Duration(inContainer) * hostsim.Tick
		}
		require.NoError(t, n.host.Render())
		end()
	}
	window(1, n.s.sample)
	n.host.Processes[20].Cgroup = docker(idA)
	window(41, n.s.sample)
	window(41, n.s.sample)
	window(41, n.scrape)
	a, other := n.energy("A"), n.energy("30")
	n.host.Created++
	n.host.LastPID++
	window(41, n.scrape)
	assert.InDelta(t, 4.1, n.energy("A")-a, 0.1)
	assert.InDelta(t, 4, n.energy("30")-other, 0.1)
	assert.Zero(t, n.energy("others"))
}

func TestTimeOfProcessesThatEndedTogetherGoesToTheCgroupsThatCountedIt(t *testing.T) {
	n := newTestNode(t)
	for pid, id := range map[int]string{10: idA, 11: idB} {
		n.process(pid, "app", docker(id))
		n.host.Cgroups[scope(id)] = time.Hour
	}
	n.start()
	n.run(100*joule, map[int]int64{10: 100, 11: 100})
	for pid, id := range map[int]string{10: idA, 11: idB} {
		n.host.Cgroups[scope(id)] += time.Second
		delete(n.host.Processes, pid)
	}
	// The child time of init is all that /proc shows of a process that ran for the ten seconds.
	n.runUnseen(1000)
	n.host.Processes[1].CUser += 1200
	n.host.Cgroups[scope(idA)] += 10 * time.Second
	before := n.one("container.energy", "container.id="+idB).value
	n.run(100*joule, nil)
	a := n.one("container.energy", "container.id="+idA).value
	assert.InDelta(t, 10+100, a, 1)
	t.Attr("cgroup-time", fmt.Sprintf("%.0f J", a))
	assert.InDelta(t, before, n.one("container.energy", "container.id="+idB).value, 1)
}
