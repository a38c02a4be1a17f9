// SPDX-License-Identifier: Apache-2.0

package energyreceiver

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/energyreceiver/energyreceiver/internal/test/hostsim"
)

// The traps that other implementations fall into, each tested on the whole receiver. Traps of a single package are
// tested there as well.

func TestTrap09NoProcessCanFailTheScanOrLoseItsEnergy(t *testing.T) {
	n := newTestNode(t)
	n.host.Processes[10] = &hostsim.Process{Parent: 1, Comm: "a ) (b\n\xff"}
	n.host.Processes[20] = &hostsim.Process{Parent: 1, Comm: "gone", Exe: "/bin/gone (deleted)"}
	n.start()
	n.run(100*joule, map[int]int64{10: 500, 20: 500})
	name := n.one("process.energy", pid(10)).attributes["process.executable.name"]
	assert.Equal(t, "a ) (b\n\uFFFD", name)
	gone := n.one("process.energy", pid(20))
	assert.Equal(t, "gone", gone.attributes["process.executable.name"])
	assert.Equal(t, "/bin/gone", gone.attributes["process.executable.path"])

	// It ends between the listing and the read: the directory exists, the file does not.
	n.host.Run(10*time.Second, map[int]int64{10: 500})
	n.host.Zones["intel-rapl:0"].Energy += 50 * joule
	require.NoError(t, n.host.Render())
	require.NoError(t, os.Remove(filepath.Join(n.host.Root(), "proc/20/stat")))
	md, err := n.s.scrape(t.Context())
	require.NoError(t, err)
	n.md = md
	n.expect(energies{"10": 75, "20": 50}, 1e-6)
}

func TestTrap12VirtualMachinesAreReadFromArgumentsAndScopes(t *testing.T) {
	n := newTestNode(t)
	qemu := func(args ...string) *hostsim.Process {
		return &hostsim.Process{Parent: 1, Comm: "qemu-system-x86", Exe: "/usr/bin/qemu-system-x86_64",
			Args: append([]string{"/usr/bin/qemu-system-x86_64"}, args...)}
	}
	const uuid = "6f9619ff-8b86-d011-b42d-00cf4fc964ff"
	n.host.Processes[10] = qemu("-name", "guest=vm7,debug-threads=on", "-uuid", uuid)
	n.host.Processes[11] = qemu("-name", "same")
	n.host.Processes[12] = qemu("-name", "same")
	n.host.Processes[13] = &hostsim.Process{Parent: 1, Comm: "vim", Exe: "/usr/bin/vim", Args: []string{"vim", "qemu-system-x86_64", "-uuid", uuid}}
	scope := `0::/machine.slice/machine-qemu\x2d3\x2dweb.scope/libvirt/`
	n.host.Processes[14] = &hostsim.Process{Parent: 1, Comm: "emulator", Exe: "/usr/sbin/helper", Cgroup: scope + "emulator"}
	n.host.Processes[15] = &hostsim.Process{Parent: 1, Comm: "vcpu", Exe: "/usr/sbin/helper", Cgroup: scope + "vcpu0"}
	n.start()
	n.run(100*joule, map[int]int64{10: 100, 11: 100, 12: 100, 13: 100, 14: 100, 15: 100})
	assert.InDelta(t, 10, n.one("vm.energy", "vm.id="+uuid, "vm.name=vm7").value, 1e-6, "not the editor's")
	assert.Len(t, n.points("vm.energy", nil, "vm.name=same"), 2, "a name is no identity")
	scoped := n.one("vm.energy", "vm.name=web").value
	assert.InDelta(t, 20, scoped, 1e-6, "both cgroups of the machine")
	t.Attr("vm-scope", fmt.Sprintf("%.6g J", scoped))
	assert.Len(t, n.points("vm.energy", nil), 4)
	assert.Equal(t, uuid, n.one("process.energy", pid(10)).attributes["vm.id"])
	assert.NotContains(t, n.one("process.energy", pid(13)).attributes, "vm.id")
}

// Time of processes that no scan shows is never energy of a bystander, the process 20.
func TestTrap03TimeOfUnseenProcessesGoesToNoBystander(t *testing.T) {
	child := func(n *testNode, pid int) {
		n.host.Processes[pid] = &hostsim.Process{Parent: 30, Comm: "child", Exe: "/bin/child", Start: ticksSince(n.host)}
	}
	waited := func(n *testNode) { n.host.Processes[10].CUser += 500; n.runUnseen(500) }
	for name, c := range map[string]struct {
		before, meanwhile func(n *testNode)
		used              map[int]int64
		want              energies
	}{
		"children of a container that their parent waited for": {
			func(n *testNode) { n.process(10, "sh", docker(idA)) }, waited,
			map[int]int64{10: 100, 20: 100}, energies{"10": 10, "20": 10, "others": 50, "A": 60, "unattributed": 0},
		},
		"children outside containers": {
			func(n *testNode) { n.process(10, "make") }, waited,
			map[int]int64{10: 100, 20: 100}, energies{"10": 10, "20": 10, "others": 50, "unattributed": 0},
		},
		"the last slice of a process that ended": {
			func(n *testNode) { n.process(10, "sh"); n.process(11, "worker", docker(idA)).Parent = 10 },
			func(n *testNode) {
				n.host.Run(0, map[int]int64{11: 200})
				n.host.CPU.Idle -= 200
				n.host.Processes[10].CUser += n.host.Processes[11].User
				delete(n.host.Processes, 11)
			},
			map[int]int64{20: 100}, energies{"11": 20, "A": 20, "20": 10, "10": 0},
		},
		"children that only the counter of a cgroup shows": {
			func(n *testNode) { n.process(10, "sh", docker(idA)); n.host.Cgroups[scope(idA)] = 77 * time.Second },
			func(n *testNode) { n.runUnseen(600); n.host.Cgroups[scope(idA)] += 8 * time.Second },
			map[int]int64{10: 200}, energies{"10": 20, "A": 80},
		},
		"an orphan that ended": {
			func(n *testNode) { n.process(10, "orphan").Parent = 0 },
			func(n *testNode) { delete(n.host.Processes, 10); n.runUnseen(300) },
			map[int]int64{20: 100}, energies{"20": 10, "unattributed": 30},
		},
		"hidden processes": {
			func(n *testNode) { n.host.HiddenThreads = 300 }, func(n *testNode) { n.runUnseen(400) },
			map[int]int64{20: 100}, energies{"20": 10, "unattributed": 40},
		},
		"children of a parent that ignores SIGCHLD": {
			func(n *testNode) { n.process(30, "server").IgnoresSIGCHLD = true; child(n, 100) },
			func(n *testNode) { delete(n.host.Processes, 100); child(n, 101); n.runUnseen(500) },
			map[int]int64{20: 500}, energies{"20": 50, "unattributed": 50},
		},
	} {
		n := newTestNode(t)
		n.process(20, "bystander")
		c.before(n)
		n.start()
		n.run(0, nil)
		c.meanwhile(n)
		n.run(100*joule, c.used)
		n.expect(c.want, 0.3, name)
	}
}
