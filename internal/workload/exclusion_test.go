// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

// An ID with a slash was chosen by a user or a container. The name of a kernel thread may have one, too.
func TestSlashesCountInIDsAndNotInNamesOfExecutables(t *testing.T) {
	all := func(string) bool { return true }
	for name, c := range map[string]struct {
		by       Excluded
		identity Identity
		excluded bool
	}{
		"an executable":                {Excluded{Executable: all}, Identity{Executable: "etcd"}, true},
		"a kernel thread":              {Excluded{Executable: all}, Identity{Executable: "ksoftirqd/0"}, true},
		"a container":                  {Excluded{Container: all}, Identity{Placement: contained("a", "docker", "")}, true},
		"a container that a user made": {Excluded{Container: all}, Identity{Placement: contained("user@1000.service/a", "docker", "")}, false},
		"a pod":                        {Excluded{Pod: all}, Identity{Placement: podded("", "", "", uidA, "")}, true},
		"a pod that a user made":       {Excluded{Pod: all}, Identity{Placement: podded("", "", "", "user@1000.service/"+uidA, "")}, false},
	} {
		assert.Equal(t, c.excluded, NewExclusion(c.by, NewPodLogs("/var/log/pods")).Excludes(&c.identity, time.Time{}), name)
	}
}
