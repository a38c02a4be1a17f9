// SPDX-License-Identifier: Apache-2.0

package energyreceiver

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
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
