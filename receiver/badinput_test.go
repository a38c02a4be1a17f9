// SPDX-License-Identifier: Apache-2.0

package energyreceiver

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/pmetric"

	"github.com/energyreceiver/energyreceiver/internal/test/hostsim"
)

func TestProcessesThatCannotBeReadAreNotLoggedOneByOne(t *testing.T) {
	n := newTestNode(t)
	for p := 10; p < 210; p++ {
		n.process(p, "app")
	}
	n.start()
	n.run(100*joule, map[int]int64{10: 100, 20: 100})
	before := n.logs.Len()
	for p := 10; p < 210; p++ {
		dir := filepath.Join(n.host.Root(), "proc", fmt.Sprint(p))
		for _, name := range []string{"stat", "exe", "cgroup", "cmdline"} {
			if p%2 == 0 || name != "stat" {
				require.NoError(t, os.RemoveAll(filepath.Join(dir, name)))
				require.NoError(t, os.Mkdir(filepath.Join(dir, name), 0o755)) // exists, and cannot be read
			}
		}
	}
	for range 3 {
		n.scrapeAsIs()
		n.balance()
	}
	assert.Equal(t, before, n.logs.Len(), "%v", n.logs.All()[before:])
}

func TestProcessesCannotMakeACollectionLarge(t *testing.T) {
	n := newTestNode(t)
	const hypervisors = 33
	used := map[int]int64{}
	for p := 10; p < 10+hypervisors; p++ {
		n.host.Processes[p] = &hostsim.Process{Parent: 1, Comm: "qemu", Exe: "/tmp/qemu-system-x86_64",
			Args: []string{"qemu", "-name", "guest=" + strings.Repeat("x", 130_000)}}
		used[p] = 10
	}
	n.start()
	n.run(100*joule, used)
	assert.Len(t, n.points("vm.energy", nil), hypervisors)
	var m pmetric.ProtoMarshaler
	assert.Less(t, m.MetricsSize(n.md), 100_000)
}
