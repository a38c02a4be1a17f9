// SPDX-License-Identifier: Apache-2.0

package drm

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/energyreceiver/energyreceiver/internal/kernfs"
	"github.com/energyreceiver/energyreceiver/internal/test/unprivileged"
	"github.com/energyreceiver/energyreceiver/internal/usage/cpu"
)

// watchThisMachine returns a source of a GPU that is not there and of the processes of this machine.
func watchThisMachine(t testing.TB) *watched {
	w := watch(t)
	w.source.entries, w.source.clock = nil, time.Now
	w.addGPU(0, card, "amdgpu")
	require.NoError(t, w.Render())
	require.NoError(t, os.RemoveAll(filepath.Join(w.Root(), "proc")))
	require.NoError(t, os.Symlink("/proc", filepath.Join(w.Root(), "proc")))
	w.source.self = selfOf(w.Root())
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
		t.Skip("lacks Linux 6.2, from which on the size of /proc/<pid>/fd is the number of descriptors")
	}
	assert.LessOrEqual(t, changed, 5+known/2)
}

func TestTheProcessThatReadsIsNotLookedAt(t *testing.T) {
	w := watchThisMachine(t)
	assert.EqualValues(t, os.Getpid(), w.source.self)
	for i := range w.table.Processes {
		p := &w.table.Processes[i]
		if p.PID == w.source.self {
			_, known := w.source.processes.of(p)
			assert.False(t, known)
		}
	}
}

func TestATextThatIsKeptOpenKeepsNoDescriptor(t *testing.T) {
	r, write, err := os.Pipe()
	require.NoError(t, err)
	defer func() { assert.NoError(t, r.Close()) }()
	text := kernfs.File{Path: fmt.Sprint("/proc/self/fdinfo/", write.Fd())}
	defer func() { assert.NoError(t, text.Close()) }()
	buf := make([]byte, 512)
	for range 2 {
		got, err := text.Read(buf)
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
	text := kernfs.File{Path: fmt.Sprintf("/proc/%d/fdinfo/0", sleep.Process.Pid)}
	defer func() { assert.NoError(t, text.Close()) }()
	buf := make([]byte, 512)
	_, err := text.Read(buf)
	require.NoError(t, err)
	require.NoError(t, sleep.Process.Kill())
	require.Error(t, sleep.Wait(), "it was killed")
	_, err = text.Read(buf)
	assert.True(t, gone(err), "%v", err)
}

// BenchmarkThisMachine measures what finding clients costs in the kernel: the number of a process's descriptors, and a look at
// them by their links and, as another user with CAP_SYS_PTRACE, by their texts.
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
	b.Run("text", func(b *testing.B) {
		each(b, func(i int) { _, _ = w.source.proc.ReadOf(w.table.Processes[i].PID, "fdinfo/0", w.source.text) })
	})
	b.Run("text-kept", func(b *testing.B) {
		texts := make([]kernfs.File, len(w.table.Processes))
		for i := range texts {
			texts[i].Path = fmt.Sprintf("/proc/%d/fdinfo/0", w.table.Processes[i].PID)
		}
		each(b, func(i int) { _, _ = texts[i].Read(w.source.text) })
		for i := range texts {
			require.NoError(b, texts[i].Close())
		}
	})
	b.Run("look", func(b *testing.B) {
		w.source.look.table = &w.table
		each(b, func(i int) { w.source.lookAt(&w.table.Processes[i]) })
	})
	b.Run("look-by-texts", func(b *testing.B) {
		defer unprivileged.Reads(b)()
		w.source.look.table = &w.table
		each(b, func(i int) { w.source.lookAt(&w.table.Processes[i]) })
	})
}

// needsTracing skips a test that needs root with CAP_SYS_PTRACE.
func needsTracing(t *testing.T) {
	t.Helper()
	var caps [2]unix.CapUserData
	require.NoError(t, unix.Capget(&unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}, &caps[0]))
	if os.Geteuid() != 0 || caps[0].Effective&(1<<unix.CAP_SYS_PTRACE) == 0 {
		t.Skip("needs root with CAP_SYS_PTRACE")
	}
}

// The right to trace processes is enough, from Linux 5.14 on.
func TestThisMachinesOtherUsersAreLookedAtByTexts(t *testing.T) {
	needsTracing(t)
	other := exec.CommandContext(t.Context(), "sleep", "100")
	require.NoError(t, other.Start())
	defer func() { _, _ = other.Process.Kill(), other.Wait() }()
	w := watchThisMachine(t)
	i := slices.IndexFunc(w.table.Processes, func(p cpu.Process) bool { return int(p.PID) == other.Process.Pid })
	require.GreaterOrEqual(t, i, 0)
	row := &w.table.Processes[i]
	w.source.look.table = &w.table
	look := func() process {
		w.source.lookAt(row)
		st, _ := w.source.processes.of(row)
		return *st
	}
	byLinks := look()
	require.False(t, w.source.look.byText)
	require.False(t, byLinks.denied)

	defer unprivileged.Reads(t)()
	byTexts := look()
	assert.True(t, w.source.look.byText)
	if byTexts.denied {
		t.Skip("Linux before 5.14")
	}
	assert.Equal(t, byLinks.seen, byTexts.seen)
	assert.Positive(t, w.source.look.texts)
}
