// SPDX-License-Identifier: Apache-2.0

package cgroup

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// BenchmarkReadCPUTime reads the counters of 1,000 cgroups, from files that stay open or that are
// opened for each read.
func BenchmarkReadCPUTime(b *testing.B) {
	const cgroups = 1000
	outer := filepath.Join(cgroupfs(b), fmt.Sprintf("counters-%d", os.Getpid()))
	makeCgroup(b, outer)
	for i := range cgroups {
		makeCgroup(b, filepath.Join(outer, fmt.Sprintf("docker-%064x.scope", i+1)))
	}
	for name, room := range map[string]int{"kept open": cgroups + 1, "opened": 0} {
		b.Run(name, func(b *testing.B) {
			tree := New(Options{Root: "/"})
			tree.kept.Most = room
			for i := range cgroups {
				tree.Enter(fmt.Sprintf("/%s/docker-%064x.scope", filepath.Base(outer), i+1), true)
			}
			tree.ReadCPUTime()
			for b.Loop() {
				tree.ReadCPUTime()
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/cgroups, "ns/cgroup")
			require.NoError(b, tree.Close())
		})
	}
}
