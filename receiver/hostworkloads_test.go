// SPDX-License-Identifier: Apache-2.0

package energyreceiver

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/energyreceiver/energyreceiver/internal/test/hostsim"
	"github.com/energyreceiver/energyreceiver/internal/usage/cpu"
	"github.com/energyreceiver/energyreceiver/internal/usage/proc"
)

const (
	slurmJob  = "/system.slice/slurmstepd.scope/job_7"
	slurmStep = slurmJob + "/step_0/user/task_0"
)

// 60 J of 600 are active in each interval for each second of CPU time. Two processes of step 0, one of which is in a
// container, the batch script, and another that only pretends to be in the job.
func TestStepsOfASlurmJobHaveTheEnergyOfTheirProcesses(t *testing.T) {
	n := newTestNode(t)
	for pid, cgroup := range map[int]string{
		10: slurmStep, 11: slurmStep + "/libpod-" + idA, 12: slurmJob + "/step_batch/user/task_0",
		13: "/user.slice/user-1000.slice/user@1000.service/slurmstepd.scope/job_7/step_0",
	} {
		n.host.Processes[pid] = &hostsim.Process{Parent: 1, Comm: "solve", Exe: "/usr/bin/solve", Cgroup: "0::" + cgroup}
	}
	n.start()
	n.run(600*joule, map[int]int64{10: 100, 11: 100, 12: 50, 13: 50})
	step0 := n.one("slurm.step.energy", "slurm.job.id=7", "slurm.step.id=0").value
	batch := n.one("slurm.step.energy", "slurm.job.id=7", "slurm.step.id=batch").value
	processes := n.one("process.energy", pid(10)).value + n.one("process.energy", pid(11)).value
	assert.Positive(t, step0)
	assert.InDelta(t, processes, step0, 2e-6)
	assert.InDelta(t, n.one("process.energy", pid(12)).value, batch, 1e-6)
	assert.InDelta(t, step0+batch, n.sum("slurm.step.energy", attrs{"slurm.job.id": "7"}), 1e-9, "and no other process's")
	assert.InDelta(t, step0/10, n.one("slurm.step.power", "slurm.step.id=0").value, 1e-6)
	assert.InDelta(t, processes, n.sum("process.energy", attrs{"slurm.job.id": "7", "slurm.step.id": "0"}), 1e-9)
	assert.InDelta(t, n.one("process.energy", pid(11)).value, n.one("container.energy").value, 1e-6)

	// The series of a step ends with its processes. One that goes on is not touched by that.
	delete(n.host.Processes, 12)
	n.run(600*joule, map[int]int64{10: 100, 11: 100})
	n.run(600*joule, map[int]int64{10: 100, 11: 100})
	assert.Empty(t, n.points("slurm.step.energy", attrs{"slurm.step.id": "batch"}))
	assert.Greater(t, n.one("slurm.step.energy", "slurm.step.id=0").value, step0)
}

// slurmstepd runs as root. It is the only process of the step extern until a session joins the step.
func TestAStepHasTheUserOfItsFirstProcessThatDoesNotRunAsRoot(t *testing.T) {
	n := newTestNode(t, func(c *Config) { c.ResourceAttributes.SlurmJobUser.Enabled = true })
	n.named("etc/passwd", "alice:x:1000:1000::/:/bin/sh\n")
	run := func(pid, uid int, cgroup string) {
		n.host.Processes[pid] = &hostsim.Process{Parent: 1, Comm: "solve", Exe: "/usr/bin/solve", UID: uid, Cgroup: "0::" + slurmJob + cgroup,
			Start: int64(n.host.Uptime / hostsim.Tick), IgnoresSIGCHLD: uid == 0} // so that processes of root have a status
	}
	userOf := func(step string) any {
		return n.one("slurm.step.energy", "slurm.step.id="+step).attributes["slurm.job.user"]
	}
	n.start()
	run(10, 0, "/step_0/slurm")
	run(11, 1000, "/step_0/user/task_0")
	run(12, 1001, "/step_0/user/task_0")
	run(13, 0, "/step_extern/user/task_special")
	n.run(600*joule, map[int]int64{10: 10, 11: 100, 12: 100, 13: 10})
	assert.Equal(t, "alice", userOf("0"))
	assert.Empty(t, userOf("extern"))
	run(14, 1000, "/step_extern/user/task_special")
	n.run(600*joule, map[int]int64{12: 100, 14: 100})
	assert.Equal(t, "alice", userOf("0"))
	assert.Empty(t, userOf("extern"), "the attributes of a series never change")
}

// An exact source shows in which cgroups short-lived processes ran, with and without a process that a scan saw.
func TestAnExactSourceReportsShortLivedTimeOfStepsAndUnits(t *testing.T) {
	n := newTestNode(t, func(c *Config) { c.Metrics.SystemdUnitEnergy.Enabled = true })
	n.host.Processes[10] = &hostsim.Process{Parent: 1, Comm: "nginx", Exe: "/usr/bin/nginx", Cgroup: "0::/system.slice/nginx.service"}
	source := new(shortLivedSource)
	n.reads(&source.Procfs, source)
	n.start()
	source.in = []proc.Charge{
		{Slot: -1, Path: slurmStep, CPU: 100 * cpu.Tick}, {Slot: -1, Path: "/system.slice/cron.service", CPU: 300 * cpu.Tick},
	}
	n.host.Processes[10].CUser += 200 // of children in the same cgroup
	n.runUnseen(600)
	n.run(100*joule, map[int]int64{10: 100})
	assert.InDelta(t, 10, n.one("slurm.step.energy", "slurm.job.id=7", "slurm.step.id=0").value, 1e-6)
	assert.InDelta(t, 30, n.one("systemd.unit.energy", "systemd.unit.name=cron.service").value, 1e-6)
	assert.InDelta(t, 10, n.one("systemd.unit.energy", "systemd.unit.name=slurmstepd.scope").value, 1e-6)
	assert.InDelta(t, 10, n.one("process.energy", pid(10)).value, 1e-6)
	assert.InDelta(t, 30, n.one("systemd.unit.energy", "systemd.unit.name=nginx.service").value, 1e-6)
}

func TestUnitsAreReportedWhereTheirMetricsAreEnabled(t *testing.T) {
	for _, enabled := range []bool{false, true} {
		n := newTestNode(t, func(c *Config) { c.Metrics.SystemdUnitEnergy.Enabled = enabled })
		for pid, cgroup := range map[int]string{
			10: "/system.slice/nginx.service", 11: "/system.slice/nginx.service/worker", 12: "/system.slice/docker-" + idA + ".scope",
			13: "/user.slice/user-1000.slice/user@1000.service/app.slice/nginx.service",
		} {
			n.host.Processes[pid] = &hostsim.Process{Parent: 1, Comm: "app", Exe: "/usr/bin/app", Cgroup: "0::" + cgroup}
		}
		n.start()
		n.run(600*joule, map[int]int64{10: 100, 11: 100, 12: 50, 13: 50})
		if !enabled {
			require.Empty(t, n.points("systemd.unit.energy", nil))
			require.Empty(t, n.points("process.energy", attrs{"systemd.unit.name": "nginx.service"}))
			continue
		}
		processes := n.one("process.energy", pid(10)).value + n.one("process.energy", pid(11)).value
		assert.InDelta(t, processes, n.one("systemd.unit.energy", "systemd.unit.name=nginx.service").value, 2e-6)
		assert.InDelta(t, processes, n.sum("process.energy", attrs{"systemd.unit.name": "nginx.service"}), 1e-9)
		assert.InDelta(t, n.one("container.energy").value, n.one("systemd.unit.energy", "systemd.unit.name=docker-"+idA+".scope").value, 1e-6)
		assert.InDelta(t, n.one("process.energy", pid(13)).value, n.one("systemd.unit.energy", "systemd.unit.name=user@1000.service").value, 1e-6)

		n.host.Processes[11].Cgroup = "0::/system.slice/ssh.service"
		n.run(600*joule, map[int]int64{10: 100, 11: 100})
		assert.Positive(t, n.one("systemd.unit.energy", "systemd.unit.name=ssh.service").value)
		assert.InDelta(t, n.sum("systemd.unit.energy", nil), n.sum("process.energy", attrs{})-n.withoutUnit(), 1e-5)
	}
}

// withoutUnit is the energy of processes that are in no unit.
func (n *testNode) withoutUnit() (sum float64) {
	for _, p := range n.points("process.energy", nil) {
		if _, ok := p.attributes["systemd.unit.name"]; !ok {
			sum += p.value
		}
	}
	return sum
}
