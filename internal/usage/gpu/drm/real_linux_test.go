// SPDX-License-Identifier: Apache-2.0

package drm

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/energyreceiver/energyreceiver/internal/kernfs"
	"github.com/energyreceiver/energyreceiver/internal/usage/cpu"
	"github.com/energyreceiver/energyreceiver/internal/usage/proc"
)

// watchThisMachine returns a source of a GPU that is not there and of the processes of this
// machine.
func watchThisMachine(t testing.TB) *watched {
	w := watch(t)
	w.source.reader.entries = nil
	w.addGPU(0, card, "amdgpu")
	require.NoError(t, w.Render())
	require.NoError(t, os.RemoveAll(filepath.Join(w.Root(), "proc")))
	require.NoError(t, os.Symlink("/proc", filepath.Join(w.Root(), "proc")))
	w.source.finder.self = selfOf(w.Root())
	require.NoError(t, w.processes.Scan(w.table, cpu.Request{}))
	if _, err := w.source.Read(time.Now(), w.table); err != nil {
		require.ErrorIs(t, err, errDenied)
	}
	return w
}

// On a kernel that reports the number of descriptors, a process whose descriptors stay the same is
// examined once.
func TestThisMachinesProcessesAreLookedAtOnce(t *testing.T) {
	w := watchThisMachine(t)
	known, changed := 0, 0
	w.source.finder.table = w.table
	for i := range w.table.Rows {
		p := &w.table.Rows[i]
		st, ok := w.source.processes.of(p)
		if !ok || st.denied || p.Is(proc.Kernel) || st.descriptors < 0 {
			continue
		}
		known++
		if w.source.finder.recount(p, st) {
			changed++
		}
	}
	t.Logf("of %d processes, the descriptors of %d are counted, and %d have others since", w.table.Len(), known, changed)
	if known == 0 {
		t.Skip("lacks Linux 6.2, from which on the size of /proc/<pid>/fd is the number of descriptors")
	}
	assert.LessOrEqual(t, changed, 5+known/2)
}

func TestTheProcessThatReadsIsNotLookedAt(t *testing.T) {
	w := watchThisMachine(t)
	assert.EqualValues(t, os.Getpid(), w.source.finder.self)
	for i := range w.table.Rows {
		p := &w.table.Rows[i]
		if p.PID == w.source.finder.self {
			_, known := w.source.processes.of(p)
			assert.False(t, known)
		}
	}
}

func TestATextThatIsKeptOpenKeepsNoDescriptor(t *testing.T) {
	r, write, err := os.Pipe()
	require.NoError(t, err)
	defer func() { assert.NoError(t, r.Close()) }()
	dir, text, name := kernfs.NewKillable("/proc"), new(kernfs.Kept), fmt.Sprint("fdinfo/", write.Fd())
	defer func() { assert.NoError(t, errors.Join(text.Close(), dir.Close())) }()
	require.NoError(t, dir.OpenOf(text, int32(os.Getpid()), name))
	buf := make([]byte, 512)
	for range 2 {
		got, err := dir.ReadKeptOf(text, int32(os.Getpid()), name, buf)
		require.NoError(t, err)
		assert.Contains(t, string(got), "flags:")
	}
	require.NoError(t, write.Close())
	_, err = r.Read(buf)
	require.ErrorIs(t, err, io.EOF, "the pipe has no writer any more")
}

func TestATextThatIsKeptOpenEndsWithItsProcess(t *testing.T) {
	sleep := exec.Command("sleep", "60")
	require.NoError(t, sleep.Start())
	dir, text, pid := kernfs.NewKillable("/proc"), new(kernfs.Kept), int32(sleep.Process.Pid)
	defer func() { assert.NoError(t, errors.Join(text.Close(), dir.Close())) }()
	require.NoError(t, dir.OpenOf(text, pid, "fdinfo/0"))
	buf := make([]byte, 512)
	_, err := dir.ReadKeptOf(text, pid, "fdinfo/0", buf)
	require.NoError(t, err)
	require.NoError(t, sleep.Process.Kill())
	require.Error(t, sleep.Wait(), "it was killed")
	_, err = dir.ReadKeptOf(text, pid, "fdinfo/0", buf)
	assert.True(t, gone(err), "%v", err)
}

// BenchmarkThisMachine measures what finding clients costs in the kernel: the number of a process's
// descriptors, a text, and a look at the links of a process.
func BenchmarkThisMachine(b *testing.B) {
	w := watchThisMachine(b)
	descriptors, n := int64(0), 0
	for i := range w.table.Rows {
		if st, ok := w.source.processes.of(&w.table.Rows[i]); ok && st.descriptors > 0 {
			descriptors += st.descriptors
			n++
		}
	}
	each := func(b *testing.B, measure func(i int)) {
		for b.Loop() {
			for i := range w.table.Rows {
				if st, ok := w.source.processes.of(&w.table.Rows[i]); ok && st.descriptors > 0 {
					measure(i)
				}
			}
		}
		b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(n), "ns/process")
		b.ReportMetric(float64(descriptors)/float64(n), "descriptors/process")
	}
	b.Run("number", func(b *testing.B) {
		each(b, func(i int) { _, _ = w.source.reader.count(subjectOf(&w.table.Rows[i])) })
	})
	b.Run("text", func(b *testing.B) {
		dir := kernfs.New("/proc")
		defer func() { assert.NoError(b, dir.Close()) }()
		each(b, func(i int) { _, _ = dir.ReadOf(w.table.Rows[i].PID, "fdinfo/0", w.source.reader.files().buf) })
	})
	b.Run("text-kept", func(b *testing.B) {
		dir, texts := kernfs.New("/proc"), make([]kernfs.Kept, len(w.table.Rows))
		defer func() { assert.NoError(b, dir.Close()) }()
		for i := range texts {
			_ = dir.OpenOf(&texts[i], w.table.Rows[i].PID, "fdinfo/0") // it may have exited
		}
		each(b, func(i int) {
			_, _ = dir.ReadKeptOf(&texts[i], w.table.Rows[i].PID, "fdinfo/0", w.source.reader.files().buf)
		})
		for i := range texts {
			require.NoError(b, texts[i].Close())
		}
	})
	b.Run("look", func(b *testing.B) {
		w.source.finder.table = w.table
		each(b, func(i int) { w.source.finder.lookAt(&w.table.Rows[i]) })
	})
}
