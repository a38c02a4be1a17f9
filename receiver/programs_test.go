// SPDX-License-Identifier: Apache-2.0

package energyreceiver

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/energyreceiver/energyreceiver/internal/test/hostsim"
	"github.com/energyreceiver/energyreceiver/internal/units"
	"github.com/energyreceiver/energyreceiver/internal/usage/cpu"
	"github.com/energyreceiver/energyreceiver/internal/usage/proc"
	"github.com/energyreceiver/energyreceiver/receiver/internal/config"
)

// namedExits is an exact source that reports the names of short-lived processes. Slot is the PID of
// the process beside which they ran.
type namedExits struct {
	exactSource
	exits []proc.Charge
}

func (s *namedExits) Scan(t *proc.Table, of cpu.Request) error {
	err := s.exactSource.Scan(t, of)
	for _, exit := range s.exits {
		exit.Slot = t.Find(exit.Slot).Slot
		t.Charges = append(t.Charges, exit)
	}
	return err
}

func exited(name string, uid uint32, beside int32, ticks int) proc.Charge {
	n := proc.Charge{Slot: beside, Named: true, UID: uid, CPU: units.CPUTime(ticks) * cpu.Tick}
	copy(n.Comm[:15], name)
	return n
}

// byProgram starts a node that reports all processes by program, on a host with a user named alice.
func byProgram(t *testing.T, by config.GroupBy, source func(o cpu.Options) cpu.Source) *testNode {
	n := newTestNode(t, func(c *Config) {
		c.Series.Processes = config.ProcessSeriesConfig{GroupBy: by}
		c.Metrics.ProcessCPUTime.Enabled = true
	})
	passwd := filepath.Join(n.host.Root(), "etc/passwd")
	require.NoError(t, os.MkdirAll(filepath.Dir(passwd), 0o755))
	require.NoError(t, os.WriteFile(passwd, []byte("root:x:0:0::/:\nalice:x:1000:1000::/:\n"), 0o600))
	if source != nil {
		n.opens(source)
	}
	n.host.Processes[10] = &hostsim.Process{Parent: 1, Comm: "make", Exe: "/usr/bin/make", UID: 1000}
	n.host.Processes[20] = &hostsim.Process{Parent: 1, Comm: "sh", Exe: "/usr/bin/dash", Cgroup: docker(idA), UID: 1000}
	n.start()
	return n
}

func TestProcessesAreReportedByProgram(t *testing.T) {
	n := byProgram(t, config.GroupByProgram, nil)
	n.host.Processes[11] = &hostsim.Process{Parent: 1, Comm: "make", Exe: "/usr/bin/make", UID: 1000, Start: int64(n.host.Uptime / hostsim.Tick)}
	n.run(100*joule, map[int]int64{1: 100, 10: 300, 11: 200, 20: 400})
	makes := n.one("process.energy", "process.executable.name=make")
	assert.InDelta(t, 50, makes.value, 1e-6)
	assert.Equal(t, "alice", makes.attributes["process.owner"])
	for _, without := range []string{"process.pid", "process.creation.time", "process.executable.path", "container.id", "process.descendants"} {
		assert.NotContains(t, makes.attributes, without)
	}
	assert.InDelta(t, 40, n.one("process.energy", "process.executable.name=dash", "container.id="+idA).value, 1e-6)
	assert.InDelta(t, 40, n.one("container.energy", "container.id="+idA).value, 1e-6)
	delete(n.host.Processes, 10)
	delete(n.host.Processes, 11)
	n.run(100*joule, map[int]int64{1: 1000})
	assert.InDelta(t, 50, n.one("process.energy", "process.executable.name=make").value, 1e-6, "its series goes on")
}

func TestByDefaultTheLargestProcessesHaveAPIDAndTheRestAProgram(t *testing.T) {
	n := newTestNode(t, func(c *Config) { c.Series.Processes = config.ProcessSeriesConfig{MinEnergy: 1, Max: 1} })
	n.host.Processes[10] = &hostsim.Process{Parent: 1, Comm: "large", Exe: "/usr/bin/large"}
	n.host.Processes[11] = &hostsim.Process{Parent: 1, Comm: "small", Exe: "/usr/bin/small"}
	n.host.Processes[12] = &hostsim.Process{Parent: 1, Comm: "small", Exe: "/usr/bin/small"}
	n.start()
	n.run(100*joule, map[int]int64{10: 600, 11: 300, 12: 100})
	assert.InDelta(t, 60, n.one("process.energy", pid(10)).value, 1e-6)
	small := n.one("process.energy", "process.executable.name=small")
	assert.InDelta(t, 40, small.value, 1e-6)
	assert.NotContains(t, small.attributes, "process.pid")
	assert.Zero(t, n.one("process.energy", "otel.metric.overflow=true").value)
}

func TestExitedProcessesHaveTheProgramOfTheirNameUserAndCgroup(t *testing.T) {
	source := &namedExits{}
	n := byProgram(t, "", func(o cpu.Options) cpu.Source { source.exactSource = exactSource{cpu.NewProcfs(o)}; return source })
	n.host.Processes[30] = &hostsim.Process{Parent: 1, Comm: "a-program-with-a", Exe: "/usr/bin/a-program-with-a-long-name", UID: 1000,
		Start: int64(n.host.Uptime / hostsim.Tick)}
	source.exits = []proc.Charge{ // 10 is make, and 20 the shell in the container
		exited("cc1", 1000, 10, 100), exited("cc1", 1000, 10, 200), exited("cc1", 0, 10, 50), exited("cc1", 1000, 20, 150), exited("", 7, 10, 10),
	}
	n.runUnseen(510)
	n.run(100*joule, map[int]int64{30: 490})
	cc1 := func(more ...string) float64 {
		return n.one("process.energy", append(more, "process.executable.name=cc1")...).value
	}
	assert.InDelta(t, 15, cc1("process.owner=alice", "container.id="+idA), 1e-6)
	assert.InDelta(t, 5, cc1("process.owner=root"), 1e-6)
	assert.InDelta(t, 1, n.one("process.energy", "process.executable.name=?", "process.owner=7").value, 1e-6)
	assert.InDelta(t, 50, n.sum("process.energy", attrs{"process.executable.name": "cc1"}), 1e-6)
	assert.InDelta(t, 15, n.one("container.energy", "container.id="+idA).value, 1e-6)
	assert.Zero(t, n.one("process.energy", "otel.metric.overflow=true").value, "nothing is nameless")

	source.exits = []proc.Charge{exited("a-program-with-", 1000, 10, 500), exited("a-program-with-", 0, 10, 500)}
	n.runUnseen(1000)
	n.run(20*joule, nil)
	assert.InDelta(t, 10, n.one("process.energy", "process.executable.name=a-program-with-").value, 1e-6, "root's is not known")
	assert.InDelta(t, 49+10, n.sum("process.energy", attrs{"process.executable.name": "a-program-with-a-long-name"}), 1e-6, "the name was cut")
}

func TestAProcessWithoutAnExecutableHasTheProgramOfItsName(t *testing.T) {
	source := &namedExits{}
	n := byProgram(t, config.GroupByProgram, func(o cpu.Options) cpu.Source { source.exactSource = exactSource{cpu.NewProcfs(o)}; return source })
	start := int64(n.host.Uptime / hostsim.Tick)
	n.host.Processes[30] = &hostsim.Process{Parent: 1, Comm: "a-program-with-", Exe: "/usr/bin/a-program-with-a-long-name", UID: 1000, Start: start}
	n.host.Processes[31] = &hostsim.Process{Parent: 1, Comm: "a-program-with-", UID: 1000, Start: start}
	n.host.Processes[32] = &hostsim.Process{Parent: 1, Comm: "a-program-with-", UID: 1001, Start: start}
	n.run(100*joule, map[int]int64{30: 500, 31: 300, 32: 200})
	long := attrs{"process.executable.name": "a-program-with-a-long-name"}
	assert.InDelta(t, 80, n.sum("process.energy", long), 1e-6)
	assert.InDelta(t, 20, n.one("process.energy", "process.executable.name=a-program-with-", "process.owner=1001").value, 1e-6)
	n.host.Processes[31].Exe = "/usr/bin/a-program-with-a-long-name" // it can be read now
	n.run(100*joule, map[int]int64{31: 1000})
	assert.InDelta(t, 180, n.one("process.energy", "process.executable.name=a-program-with-a-long-name").value, 1e-6, "the series continues")
}

func TestNamesDoNotMoveEnergyToAnotherUserOrContainer(t *testing.T) {
	source := &namedExits{}
	n := byProgram(t, config.GroupByProgram, func(o cpu.Options) cpu.Source { source.exactSource = exactSource{cpu.NewProcfs(o)}; return source })
	n.run(20*joule, map[int]int64{10: 500, 20: 500})
	source.exits = []proc.Charge{exited("make", 1001, 10, 250), exited("dash", 1000, 10, 250), exited("make", 1000, 20, 500)}
	n.runUnseen(1000)
	n.run(40*joule, nil)
	assert.InDelta(t, 10, n.one("process.energy", "process.executable.name=make", "process.owner=1001").value, 1e-6)
	assert.InDelta(t, 20, n.one("process.energy", "process.executable.name=make", "process.owner=alice", "container.id="+idA).value, 1e-6)
	assert.InDelta(t, 10, n.one("process.energy", "process.executable.name=dash", "container.id="+idA).value, 1e-6, "as before")
	assert.InDelta(t, 20, n.sum("process.energy", attrs{"process.executable.name": "dash"}), 1e-6)
	assert.InDelta(t, 40, n.sum("process.energy", attrs{"process.executable.name": "make"}), 1e-6)
}

// With procfs the child times of make show that it waited for children.
func TestDescendantsThatNoSourceNamesCountForTheirAncestor(t *testing.T) {
	n := byProgram(t, config.GroupByProgram, nil)
	n.host.Processes[10].CUser += 300
	n.host.Processes[20].CUser += 200
	n.runUnseen(500)
	n.run(100*joule, map[int]int64{10: 100, 20: 400})
	descendants := n.points("process.energy", attrs{"process.descendants": "true"})
	assert.Len(t, descendants, 2)
	assert.InDelta(t, 30, n.one("process.energy", "process.executable.name=make", "process.descendants=true", "process.owner=alice").value, 1e-6)
	assert.InDelta(t, 20, n.one("process.energy", "process.executable.name=dash", "process.descendants=true", "container.id="+idA).value, 1e-6)
	n.expect(energies{"A": 60, "others": 0}, 1e-6)
}

func TestWithoutOwnersProgramsAreMergedAcrossUsers(t *testing.T) {
	n := newTestNode(t, func(c *Config) {
		c.Series.Processes = config.ProcessSeriesConfig{GroupBy: config.GroupByProgram}
		c.ResourceAttributes.ProcessOwner.Enabled = false
	})
	n.host.Processes[10] = &hostsim.Process{Parent: 1, Comm: "sh", Exe: "/bin/sh", UID: 1000}
	n.host.Processes[11] = &hostsim.Process{Parent: 1, Comm: "sh", Exe: "/bin/sh", UID: 1001}
	n.start()
	n.run(10*joule, map[int]int64{10: 500, 11: 500})
	assert.InDelta(t, 10, n.one("process.energy", "process.executable.name=sh").value, 1e-6)
}

func TestTheParentIsThatOfTheFirstScan(t *testing.T) {
	n := newTestNode(t, func(c *Config) { c.ResourceAttributes.ProcessParentPid.Enabled = true })
	n.process(10, "sh")
	n.host.Processes[11] = &hostsim.Process{Parent: 10, Comm: "app", Exe: "/bin/app"}
	n.start()
	n.host.Processes[11].Parent = 1
	n.run(10*joule, map[int]int64{11: 1000})
	assert.Equal(t, "10", n.one("process.energy", pid(11)).attributes["process.parent_pid"])
}
