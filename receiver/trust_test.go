// SPDX-License-Identifier: Apache-2.0

package energyreceiver

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"go.opentelemetry.io/collector/filter"

	"github.com/energyreceiver/energyreceiver/receiver/internal/config"
)

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
