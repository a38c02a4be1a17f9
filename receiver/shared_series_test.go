// SPDX-License-Identifier: Apache-2.0

package energyreceiver

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/energyreceiver/energyreceiver/receiver/internal/config"
	"github.com/energyreceiver/energyreceiver/receiver/internal/metadata"
)

func TestDisablingAnIdentifyingAttributeLogsOneWarning(t *testing.T) {
	type attributes = metadata.ResourceAttributesConfig
	noContainers := func(c *Config) {
		m := &c.Metrics
		m.ContainerEnergy.Enabled, m.ContainerPower.Enabled, m.ContainerCPUTime.Enabled = false, false, false
	}
	for name, c := range map[string]struct {
		disable func(*attributes)
		metrics func(*Config)
		want    []string
	}{
		"none":                 {},
		"pid":                  {disable: func(a *attributes) { a.ProcessPid.Enabled = false }, want: []string{"process.pid"}},
		"creation time":        {disable: func(a *attributes) { a.ProcessCreationTime.Enabled = false }, want: []string{"process.creation.time"}},
		"pod":                  {disable: func(a *attributes) { a.K8sPodUID.Enabled = false }, want: []string{"k8s.pod.uid"}},
		"vm":                   {disable: func(a *attributes) { a.VMID.Enabled = false }, want: []string{"vm.id"}},
		"container":            {disable: func(a *attributes) { a.ContainerID.Enabled = false }, want: []string{"container.id"}},
		"container, no metric": {disable: func(a *attributes) { a.ContainerID.Enabled = false }, metrics: noContainers},
		"names": {disable: func(a *attributes) {
			a.ProcessExecutablePath.Enabled, a.ContainerRuntimeName.Enabled, a.VMName.Enabled = false, false, false
		}},
		"two": {disable: func(a *attributes) {
			a.ProcessPid.Enabled, a.ContainerID.Enabled = false, false
		}, want: []string{"process.pid", "container.id"}},
		"name by PID": {disable: func(a *attributes) { a.ProcessExecutableName.Enabled = false }},
		"name by program": {disable: func(a *attributes) {
			a.ProcessExecutableName.Enabled, a.ProcessPid.Enabled, a.ProcessOwner.Enabled = false, false, false
		}, metrics: func(c *Config) { c.Series.Processes.GroupBy = config.GroupByProgram }, want: []string{"process.executable.name"}},
		"container of programs": {disable: func(a *attributes) { a.ContainerID.Enabled = false },
			metrics: func(c *Config) { noContainers(c); c.Series.Processes.GroupBy = "" }, want: []string{"container.id"}},
	} {
		t.Run(name, func(t *testing.T) {
			n := newTestNode(t, func(cfg *Config) {
				if c.disable != nil {
					c.disable(&cfg.ResourceAttributes)
				}
				if c.metrics != nil {
					c.metrics(cfg)
				}
			})
			n.start()
			n.run(joule, nil)
			n.run(joule, nil)
			var warned []string
			for _, line := range n.logs.FilterMessageSnippet("Resource attribute disabled").All() {
				warned = append(warned, line.ContextMap()["attribute"].(string))
			}
			assert.Equal(t, c.want, warned)
		})
	}
}
