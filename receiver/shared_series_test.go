// SPDX-License-Identifier: Apache-2.0

package energyreceiver

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/energyreceiver/energyreceiver/receiver/internal/config"
)

func TestDisablingAnIdentifyingAttributeLogsOneWarning(t *testing.T) {
	noContainers := func(c *Config) {
		m := &c.Metrics
		m.ContainerEnergy.Enabled, m.ContainerPower.Enabled, m.ContainerCPUTime.Enabled = false, false, false
	}
	by := func(group config.GroupBy) func(*Config) {
		return func(c *Config) { c.Series.Processes.GroupBy = group }
	}
	for name, c := range map[string]struct {
		disabled string
		want     []string
		edit     []func(*Config)
	}{
		"none":                  {},
		"pid":                   {disabled: "process.pid", want: []string{"process.pid"}},
		"creation time":         {disabled: "process.creation.time", want: []string{"process.creation.time"}},
		"pod":                   {disabled: "k8s.pod.uid", want: []string{"k8s.pod.uid"}},
		"vm":                    {disabled: "vm.id", want: []string{"vm.id"}},
		"container":             {disabled: "container.id", want: []string{"container.id"}},
		"container, no metric":  {disabled: "container.id", edit: []func(*Config){noContainers}},
		"names":                 {disabled: "process.executable.path container.runtime.name vm.name"},
		"two":                   {disabled: "process.pid container.id", want: []string{"process.pid", "container.id"}},
		"name by PID":           {disabled: "process.executable.name"},
		"container of programs": {"container.id", []string{"container.id"}, []func(*Config){noContainers, by("")}},
		"name by program": {"process.executable.name process.pid process.owner", []string{"process.executable.name"},
			[]func(*Config){by(config.GroupByProgram)}},
	} {
		t.Run(name, func(t *testing.T) {
			n := newTestNode(t, append(c.edit, func(cfg *Config) {
				for attribute := range strings.FieldsSeq(c.disabled) {
					*enabledBy(&cfg.ResourceAttributes)[attribute] = false
				}
			})...)
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
