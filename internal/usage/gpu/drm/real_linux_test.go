// SPDX-License-Identifier: Apache-2.0

package drm

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// watchThisMachine returns a source of a GPU that is not there and of the processes of this machine.
func watchThisMachine(t testing.TB) *watched {
	w := watch(t)
	w.addGPU(0, card, "amdgpu")
	require.NoError(t, w.Render())
	require.NoError(t, os.RemoveAll(filepath.Join(w.Root(), "proc")))
	require.NoError(t, os.Symlink("/proc", filepath.Join(w.Root(), "proc")))
	require.NoError(t, w.processes.ReadProcesses(&w.table))
	if _, err := w.source.Read(time.Now(), &w.table); err != nil {
		require.ErrorIs(t, err, errDenied)
	}
	return w
}

// On a kernel that tells the number of descriptors, a process whose descriptors stay the same is looked at once.
func TestThisMachinesProcessesAreLookedAtOnce(t *testing.T) {
	w := watchThisMachine(t)
	known, changed := 0, 0
	for i := range w.table.Processes {
		p := &w.table.Processes[i]
		st, ok := w.source.processes.of(p)
		if !ok || st.denied || p.Kernel || st.descriptors < 0 {
			continue
		}
		known++
		if w.source.recount(p, st) {
			changed++
		}
	}
	t.Logf("of %d processes, the descriptors of %d are counted, and %d have others since", len(w.table.Processes), known, changed)
	if known == 0 {
		t.Skip("Linux before 6.2")
	}
	assert.LessOrEqual(t, changed, 5+known/2)
}

// BenchmarkThisMachine measures what finding clients costs in the kernel: the number of a process's descriptors, and a look at
// them.
func BenchmarkThisMachine(b *testing.B) {
	w := watchThisMachine(b)
	descriptors, n := int64(0), 0
	for i := range w.table.Processes {
		if st, ok := w.source.processes.of(&w.table.Processes[i]); ok && st.descriptors > 0 {
			descriptors += st.descriptors
			n++
		}
	}
	each := func(b *testing.B, measure func(i int)) {
		for b.Loop() {
			for i := range w.table.Processes {
				if st, ok := w.source.processes.of(&w.table.Processes[i]); ok && st.descriptors > 0 {
					measure(i)
				}
			}
		}
		b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(n), "ns/process")
		b.ReportMetric(float64(descriptors)/float64(n), "descriptors/process")
	}
	b.Run("number", func(b *testing.B) {
		each(b, func(i int) { _, _ = w.source.numberOf(w.table.Processes[i].PID) })
	})
	b.Run("look", func(b *testing.B) {
		w.source.look.table = &w.table
		each(b, func(i int) { w.source.lookAt(&w.table.Processes[i]) })
	})
}
