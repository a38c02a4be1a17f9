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
	"go.opentelemetry.io/collector/filter"

	"github.com/energyreceiver/energyreceiver/internal/test/hostsim"
	"github.com/energyreceiver/energyreceiver/internal/usage/cpu"
	"github.com/energyreceiver/energyreceiver/internal/usage/proc"
	"github.com/energyreceiver/energyreceiver/receiver/internal/config"
)

const (
	uidA = "0a1b2c3d-0000-4000-8000-00000000000a"
	uidB = "0a1b2c3d0000400080000000000000bb" // of a static pod
)

// etcd is a service of the host, or one of an operator that has moved itself into a cgroup below.
func TestAServiceIsExcludedByItsCgroup(t *testing.T) {
	const service = "/system.slice/etcd.service"
	for path, f := range map[string]filter.Config{
		service:            {Strict: service},
		service + "/child": {Regex: "^" + service},
	} {
		n := sharedNode(t, func(a *config.AttributionConfig) { a.Exclude.Cgroup = []filter.Config{f} })
		n.host.Processes[40].Cgroup = "2:cpu,cpuacct:/\n1:name=systemd:" + service + "\n0::" + path
		n.start()
		n.run(600*joule, map[int]int64{10: 100, 20: 100, 40: 500})
		requireFigures(t, figures{60, 60, 0, 0, 120}, n.figures("active"), path)

		n.host.Processes[40].Cgroup = "0::/user.slice"
		before := n.figures("active")
		n.run(600*joule, map[int]int64{10: 100, 20: 100, 40: 500})
		requireFigures(t, figures{60, 60, 0, 300, 420}, n.figures("active").less(before), "it has left the cgroup")
	}
}

func podLogs(t *testing.T, n *testNode, names ...string) {
	t.Helper()
	for _, name := range names {
		require.NoError(t, os.MkdirAll(filepath.Join(n.host.Root(), "var/log/pods", name), 0o755))
	}
}

func TestPodsAreExcludedByTheirNamespace(t *testing.T) {
	withoutNames := func(c *Config) { c.Names.Disable() }
	for name, c := range map[string]struct {
		f    filter.Config
		edit []func(*Config)
	}{
		"strict":        {filter.Config{Strict: "kube-system"}, nil},
		"a pattern":     {filter.Config{Regex: "^kube-.*"}, nil},
		"without names": {filter.Config{Strict: "kube-system"}, []func(*Config){withoutNames}},
	} {
		n := sharedNode(t, func(a *config.AttributionConfig) { a.Exclude.Namespace = []filter.Config{c.f} }, c.edit...)
		n.host.Processes[10].Cgroup = "0::/kubepods/burstable/pod" + uidA + "/" + idA
		n.host.Processes[20].Cgroup = "0::/kubepods/burstable/pod" + uidB + "/" + idB
		podLogs(t, n, "shop_web_"+uidA, "kube-system_etcd-node1_"+uidB, "junk")
		n.start()
		n.run(600*joule, map[int]int64{10: 100, 20: 500})
		requireFigures(t, figures{a: 60, node: 60}, n.figures("active"), name)
		assert.Empty(t, n.status, name)
	}
}

// A pod of a user is named etcd, too.
func TestKubeWattExcludesTheStaticPodsOfTheControlPlane(t *testing.T) {
	n := sharedNode(t, func(a *config.AttributionConfig) {
		a.Preset, a.StaticPower = config.PresetKubeWatt, allStatic(config.StaticUtilization)
	})
	n.host.Processes[10].Cgroup = "0::/kubepods/burstable/pod" + uidA + "/" + idA
	n.host.Processes[20].Cgroup = "0::/kubepods/burstable/pod" + uidB + "/" + idB
	podLogs(t, n, "shop_etcd-0_"+uidA, "kube-system_etcd-node1_"+uidB)
	n.start()
	logged := n.logs.FilterMessage("Control plane excluded: its energy is idle energy")
	n.run(600*joule, map[int]int64{10: 100, 20: 500})
	requireFigures(t, figures{a: 60, node: 60}, n.figures("active"))
	t.Attr("excluded-pods", fmt.Sprint(n.figures("active"), " J"))
	require.Equal(t, 1, logged.Len())
	assert.Equal(t, map[string]any{"pods": []any{"etcd-node1"}}, logged.All()[0].ContextMap())
	assert.Equal(t, 1, n.logs.FilterMessage(logged.All()[0].Message).Len(), "once")
}

// As on a worker, and with distributions whose control plane is a service of the host.
func TestKubeWattLogsOnceThatThereIsNoControlPlane(t *testing.T) {
	n := sharedNode(t, func(a *config.AttributionConfig) {
		a.Preset, a.StaticPower = config.PresetKubeWatt, allStatic(config.StaticUtilization)
	})
	n.start()
	n.run(600*joule, map[int]int64{10: 100})
	assert.Equal(t, 1, n.logs.FilterMessage("Static pods of the control plane not found on this node").Len())
}

// As if the directory were mounted late.
func TestRunningProcessesAreExcludedOnceTheirNamespaceIsKnown(t *testing.T) {
	n := sharedNode(t, func(a *config.AttributionConfig) { a.Exclude.Namespace = []filter.Config{{Strict: "kube-system"}} })
	n.host.Processes[10].Cgroup = "0::/kubepods/burstable/pod" + uidA + "/" + idA
	n.host.Processes[20].Cgroup = "0::/kubepods/burstable/pod" + uidB + "/" + idB
	n.start()
	n.run(600*joule, map[int]int64{10: 100, 20: 500})
	requireFigures(t, figures{a: 60, b: 300, node: 360}, n.figures("active"))
	podLogs(t, n, "shop_web_"+uidA, "kube-system_etcd-node1_"+uidB)
	before := n.figures("active")
	n.run(600*joule, map[int]int64{10: 100, 20: 500})
	requireFigures(t, figures{a: 60, node: 60}, n.figures("active").less(before))
	assert.Equal(t, []string{"Degraded exclusion", "Recovered exclusion"}, n.logged())
}

// An exact source reports the time of short-lived processes by cgroup. With procfs it appears as child time of the
// parent, whose children may be in any cgroup.
func TestShortLivedProcessesAreExcludedWithTheirCgroup(t *testing.T) {
	const service = "/system.slice/etcd.service"
	byCgroup := config.ExcludeConfig{Cgroup: []filter.Config{{Strict: service}}}
	byName := config.ExcludeConfig{ExecutableName: []filter.Config{{Strict: "etcd"}}}
	static, active := figures{60, 60, 0, 0, 120}, figures{60, 60, 0, 0, 360}
	for name, c := range map[string]struct {
		exclude config.ExcludeConfig
		exact   bool
		want    figures
	}{
		"by its cgroup":              {byCgroup, true, static},
		"by a name":                  {byName, true, active},
		"by its cgroup, with procfs": {byCgroup, false, active},
		"by a name, with procfs":     {byName, false, active},
	} {
		n := sharedNode(t, func(a *config.AttributionConfig) { a.Exclude = c.exclude })
		if c.exact {
			n.openExact()
		}
		n.host.Processes[40].Cgroup = "0::" + service
		n.start()
		child := &hostsim.Process{Parent: 40, Comm: "x"}
		n.host.Processes[50] = child
		n.host.Run(10*time.Second, map[int]int64{10: 100, 20: 100, 50: 400})
		delete(n.host.Processes, 50)
		n.host.Processes[40].CUser += child.User
		for _, z := range n.host.Zones {
			z.Energy += 600 * joule
		}
		n.scrape()
		requireFigures(t, c.want, n.figures("active"), name)
		assert.InDelta(t, c.want.node-120, n.sum("process.energy", attrs{"otel.metric.overflow": "true"}), 1e-3, name)
		assert.Zero(t, n.sum("system.unattributed.energy", nil), name)
	}
}

func TestAnExcludedServiceThatLivedBetweenTwoScansIsExcluded(t *testing.T) {
	n := sharedNode(t, func(a *config.AttributionConfig) { a.Exclude.Cgroup = []filter.Config{{Regex: "^/system.slice/cron"}} })
	source := new(shortLivedSource)
	n.reads(&source.Procfs, source)
	n.start()
	source.in = []proc.Charge{{Slot: -1, Path: "/system.slice/cron.service", CPU: 400 * cpu.Tick}}
	n.runUnseen(400)
	n.run(600*joule, map[int]int64{10: 100, 20: 100})
	requireFigures(t, figures{60, 60, 0, 0, 120}, n.figures("active"))
	assert.Zero(t, n.sum("process.energy", attrs{"otel.metric.overflow": "true"}))
}

func TestConditionsPersistWhileScansFail(t *testing.T) {
	n := sharedNode(t, func(a *config.AttributionConfig) { a.Exclude.Namespace = []filter.Config{{Strict: "kube-system"}} })
	n.host.Processes[20].Cgroup = "0::/kubepods/burstable/pod" + uidB + "/" + idB
	source := new(failingSource)
	n.reads(&source.Procfs, source)
	n.start()
	n.run(600*joule, map[int]int64{10: 100})
	source.fail = errRefused
	n.run(600*joule, map[int]int64{10: 100})
	source.fail = nil
	n.run(600*joule, map[int]int64{10: 100})
	assert.NotContains(t, n.logged(), "Recovered exclusion")
}

const usersOwn = "/user.slice/user-1000.slice/user@1000.service"

func TestAForgedNameExcludesNoOtherWorkload(t *testing.T) {
	everyID := []filter.Config{{Regex: "."}}
	for name, tt := range map[string]struct {
		cgroup string
		config config.ExcludeConfig
	}{
		"namespace":             {"/docker/" + idB + "/kubepods/burstable/pod" + uidA + "/" + idB, config.ExcludeConfig{Namespace: everyID}},
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
