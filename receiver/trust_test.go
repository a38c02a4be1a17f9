// SPDX-License-Identifier: Apache-2.0

package energyreceiver

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/filter"
	"go.uber.org/zap/zapcore"

	"github.com/energyreceiver/energyreceiver/internal/test/hostsim"
	"github.com/energyreceiver/energyreceiver/receiver/internal/config"
)

const (
	aUser      = "user@1000.service"
	usersOwn   = "/user.slice/user-1000.slice/" + aUser
	aMachine   = "0a1b2c3d-0000-4000-8000-0000000000cc"
	podOfA     = "/kubepods/burstable/pod" + uidA + "/"
	machineOfA = `/machine.slice/machine-qemu\x2d1\x2dvm.scope`
)

// attacked is a node with a container in a pod, a virtual machine, and a user that imitates their
// names in cgroups and arguments. The user's processes use nine times as much.
func attacked(t *testing.T, forged string) *testNode {
	t.Helper()
	n := newTestNode(t)
	n.host.CPUs = 4
	machine := func(cgroup string) *hostsim.Process {
		return &hostsim.Process{
			Parent: 1, Comm: "qemu-system-x86", Exe: "/usr/bin/qemu-system-x86_64", Cgroup: "0::" + cgroup,
			Args: []string{"qemu-system-x86_64", "-name", "guest=vm", "-uuid", aMachine},
		}
	}
	n.host.Processes[10] = &hostsim.Process{Parent: 1, Comm: "app", Exe: "/bin/app", Cgroup: "0::" + podOfA + idA}
	n.host.Processes[20] = machine(machineOfA)
	n.host.Processes[30] = &hostsim.Process{Parent: 1, Comm: "x", Exe: "/bin/x", Cgroup: "0::" + forged + podOfA + idA}
	n.host.Processes[40] = machine(forged + machineOfA)
	n.host.Processes[50] = machine(forged)
	return n
}

func TestForgedCgroupsAndArgumentsShiftNoEnergy(t *testing.T) {
	for _, forged := range []string{usersOwn, usersOwn + "/docker.service", "/system.slice/ci.service", "/docker/" + idB} {
		t.Run(forged, func(t *testing.T) {
			n := attacked(t, forged)
			n.start()
			for range 3 {
				n.run(600*joule, map[int]int64{10: 100, 20: 100, 30: 300, 40: 300, 50: 300})
			}
			first := n.one("process.energy", pid(10)).value
			require.Positive(t, first)
			assert.InDelta(t, first, n.one("container.energy", "container.id="+idA).value, 1e-6)
			assert.InDelta(t, first, n.one("k8s.pod.energy", "k8s.pod.uid="+uidA).value, 1e-6)
			assert.InDelta(t, n.one("process.energy", pid(20)).value, n.one("vm.energy", "vm.id="+aMachine).value, 1e-6)
			requireEachSeriesOnce(t, n)
			assert.InDelta(t, n.sum("system.energy", nil, "energy.state=active"),
				n.sum("process.energy", nil)+n.sum("system.unattributed.energy", nil), 1e-5)
		})
	}
}

// requireEachSeriesOnce fails if two resources with the same attributes have the same metric.
func requireEachSeriesOnce(t *testing.T, n *testNode) {
	t.Helper()
	seen := map[string]bool{}
	for _, metric := range []string{"process.energy", "container.energy", "k8s.pod.energy", "vm.energy"} {
		for _, p := range n.points(metric, nil) {
			series := fmt.Sprint(metric, p.attributes)
			require.False(t, seen[series], series)
			seen[series] = true
		}
	}
}

func TestAForgedNameExcludesNoOtherWorkload(t *testing.T) {
	everyID := []filter.Config{{Regex: "."}}
	for name, tt := range map[string]struct {
		cgroup string
		config config.ExcludeConfig
	}{
		"namespace":             {"/docker/" + idB + podOfA + idB, config.ExcludeConfig{Namespace: everyID}},
		"cgroup":                {usersOwn + "/system.slice/etcd.service", config.ExcludeConfig{Cgroup: []filter.Config{{Regex: "/system.slice/etcd.service$"}}}},
		"cgroup's alternatives": {usersOwn + "/etcd.service", config.ExcludeConfig{Cgroup: []filter.Config{{Regex: "/a$|/etcd.service$"}}}},
	} {
		t.Run(name, func(t *testing.T) {
			n := sharedNode(t, func(a *config.AttributionConfig) { a.Exclude = tt.config })
			podLogs(t, n, "kube-system_etcd_"+uidA)
			delete(n.host.Processes, 20)
			n.host.Processes[30].Cgroup = "0::" + tt.cgroup
			n.start()
			n.run(600*joule, map[int]int64{10: 100, 30: 100})
			assert.InDelta(t, 60, n.sum("process.energy", attrs{"process.pid": "30"}), 2e-3)
		})
	}
}

func TestExclusionByExecutableNameIsForTrustedNodes(t *testing.T) {
	warnings := func(edit func(*config.AttributionConfig)) (found []string) {
		n := sharedNode(t, edit)
		n.start()
		for _, e := range n.logs.All() {
			if e.Level == zapcore.WarnLevel && strings.HasPrefix(e.Message, "Exclusion by executable name") {
				found = append(found, fmt.Sprint(e.ContextMap()["setting"]))
			}
		}
		return found
	}
	assert.Empty(t, warnings(func(a *config.AttributionConfig) { a.Exclude.Cgroup = []filter.Config{{Strict: "/a"}} }))
	assert.Equal(t, []string{"attribution::exclude::executable_name"},
		warnings(func(a *config.AttributionConfig) { a.Exclude.ExecutableName = []filter.Config{{Strict: "etcd"}} }))
}
