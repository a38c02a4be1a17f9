// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

// The name of a kernel thread may have a slash.
func TestSlashesDoNotCountInNamesOfExecutables(t *testing.T) {
	all := func(string) bool { return true }
	for name, c := range map[string]struct {
		by       Excluded
		identity Identity
		excluded bool
	}{
		"an executable":   {Excluded{Executable: all}, Identity{Executable: "etcd"}, true},
		"a kernel thread": {Excluded{Executable: all}, Identity{Executable: "ksoftirqd/0"}, true},
	} {
		assert.Equal(t, c.excluded, NewExclusion(c.by, NewPodLogs("/var/log/pods")).Excludes(&c.identity, time.Time{}), name)
	}
}
