// SPDX-License-Identifier: Apache-2.0

package drm

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/energyreceiver/energyreceiver/internal/kernfs"
	"github.com/energyreceiver/energyreceiver/internal/units"
	"github.com/energyreceiver/energyreceiver/internal/usage/cpu"
	"github.com/energyreceiver/energyreceiver/internal/usage/proc"
)

// holdsEnv makes the test binary a process that has its descriptors open until its standard input
// ends.
const holdsEnv = "ENERGY_TEST_HOLDS"

func TestMain(m *testing.M) {
	if os.Getenv(holdsEnv) != "" {
		_, _ = io.Copy(io.Discard, os.Stdin) // its end is all that matters
		return
	}
	os.Exit(m.Run())
}

// openNode is a DRM node of this machine that the test has opened.
type openNode struct {
	*os.File
	device string // as the source names it
	client string // the ID that the kernel prints, empty if it prints none
}

// openNodes opens each DRM node of this machine that may be opened.
func openNodes(t *testing.T) (nodes []openNode) {
	t.Helper()
	paths, err := filepath.Glob("/dev/dri/*[0-9]")
	require.NoError(t, err)
	for _, path := range paths {
		fd, err := syscall.Open(path, syscall.O_RDWR|syscall.O_CLOEXEC, 0)
		if err != nil {
			t.Log(path, err)
			continue
		}
		n := openNode{File: os.NewFile(uintptr(fd), path)}
		t.Cleanup(func() { _ = n.Close() }) // twice for some
		device, err := filepath.EvalSymlinks(filepath.Join("/sys/class/drm", filepath.Base(path), "device"))
		require.NoError(t, err)
		n.device = filepath.Base(device)
		text, err := os.ReadFile(fmt.Sprint("/proc/self/fdinfo/", fd))
		require.NoError(t, err)
		for line := range strings.Lines(string(text)) {
			if id, ok := strings.CutPrefix(line, "drm-client-id:"); ok {
				n.client = strings.TrimSpace(id)
			}
		}
		nodes = append(nodes, n)
	}
	return nodes
}

// holdsToo starts a process that has the nodes, too, until the test ends, and returns its PID.
func holdsToo(t *testing.T, nodes []openNode) int32 {
	t.Helper()
	child := exec.Command("/proc/self/exe")
	child.Env = append(os.Environ(), holdsEnv+"=yes")
	for _, n := range nodes {
		child.ExtraFiles = append(child.ExtraFiles, n.File)
	}
	input, err := child.StdinPipe()
	require.NoError(t, err)
	require.NoError(t, child.Start())
	t.Cleanup(func() { assert.NoError(t, input.Close()); assert.NoError(t, child.Wait()) })
	return int32(child.Process.Pid)
}

// clientsOf returns the clients of nodes, as those of a process.
func clientsOf(nodes []openNode, pid int32) map[string]int32 {
	isGPU := map[string]bool{} // a device that has a render node
	for _, n := range nodes {
		isGPU[n.device] = isGPU[n.device] || strings.Contains(n.Name(), "renderD")
	}
	clients := map[string]int32{}
	for _, n := range nodes {
		if n.client != "" && isGPU[n.device] {
			clients[n.device+" "+n.client] = pid
		}
	}
	return clients
}

// Whatever opens the GPUs of this machine is found as often as the kernel's own files say, and once
// if several descriptors and processes share it. A driver that prints no clients does not report
// the users of its GPU.
func TestClientsOfThisMachineAreFoundOnce(t *testing.T) {
	nodes := slices.Concat(openNodes(t), openNodes(t))
	if len(nodes) == 0 {
		t.Skip("lacks a DRM node that may be opened")
	}
	self, child := int32(os.Getpid()), holdsToo(t, nodes)
	processes, source := cpu.NewProcfs(cpu.Options{Root: "/"}), New(Options{Root: "/"})
	source.finder.self = 0 // this process stands for another
	t.Cleanup(func() { assert.NoError(t, processes.Close()); assert.NoError(t, source.Close()) })

	wanted := func() map[string]int32 { return clientsOf(nodes, self) }
	table := proc.New(processes.Traits().Traits)
	found := func() map[string]int32 {
		require.NoError(t, processes.Scan(table, cpu.Request{}))
		if _, err := source.Read(time.Now(), table); err != nil {
			require.ErrorIs(t, err, errDenied) // of others' processes
		}
		got := map[string]int32{}
		for _, c := range source.clients.list {
			if c.pid == self || c.pid == child {
				got[fmt.Sprintf("%s %d", c.device.name, c.id)] = c.pid
			}
		}
		return got
	}
	assert.Equal(t, wanted(), found(), "the clients belong to the process that opened them, not to its child")

	nodes = append(nodes, openNodes(t)...)
	for began := time.Now(); !maps.Equal(wanted(), found()); time.Sleep(50 * time.Millisecond) {
		require.Less(t, time.Since(began), time.Minute, "clients that a process opened later")
	}
}

func TestOnlyADescriptorOfAProcessThatSleptIsNotCheckedAgain(t *testing.T) {
	for name, c := range map[string]struct{ exact, ran, missed, want bool }{
		"it slept":                       {exact: true, want: true},
		"it ran":                         {exact: true, ran: true},
		"it may have run for a moment":   {},
		"the Read before did not see it": {exact: true, missed: true},
	} {
		table, seen, last := proc.New(proc.Traits{Exact: c.exact}), proc.Sight{ID: proc.ID{PID: 10}}, time.Now()
		for range 2 {
			s := table.Begin(0)
			s.See(&seen)
			s.End(0)
			if c.ran {
				seen.CPU++
			}
		}
		cs, held := clients{table: table, last: last}, client{holder: holder{pid: 10}, since: last}
		if c.missed {
			cs.last = last.Add(1)
		}
		assert.Equal(t, c.want, cs.descriptorOf(&held).checked, name)
	}
}

// Any user can name a directory dri. Only a device is of DRM.
func TestTextsOfOtherFilesThanDevicesAreNotRead(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "dri")
	require.NoError(t, os.Mkdir(dir, 0o755))
	path := filepath.Join(dir, "renderD128")
	require.NoError(t, os.WriteFile(path, nil, 0o600))
	file, err := os.Open(path)
	require.NoError(t, err)
	defer func() { assert.NoError(t, file.Close()) }()
	f := newFiles("/")
	defer func() { assert.NoError(t, f.Close()) }()
	f.pid, f.fd = int32(os.Getpid()), int32(file.Fd())
	_, ok := nodeOf([]byte(path))
	require.True(t, ok)
	f.readText()
	assert.ErrorIs(t, f.err, unix.ENOENT)
	assert.Empty(t, f.text)

	kept := new(kernfs.Kept)
	require.NoError(t, f.proc.OpenOf(kept, f.pid, fmt.Sprint("fdinfo/", f.fd)))
	f.batch = []descriptor{{pid: f.pid, fd: f.fd, kept: kept}}
	f.readBatch()
	assert.ErrorIs(t, f.batch[0].err, unix.ENOENT)
	assert.Empty(t, f.text)
}

// A FIFO stands for a text that depends on a lock of the process.
func TestATextThatIsBlockedIsReadLater(t *testing.T) {
	w := watch(t)
	w.guardEverything()
	w.addGPU(0, card, "amdgpu")
	w.add(10, 1, render(3, 1))
	w.add(11, 1, render(3, 2, gfx(0)))
	w.pass()
	require.Len(t, w.source.clients.list, 2)
	w.Processes[11].Files[0] = render(3, 2, gfx(300*ms))
	w.Run(time.Second, map[int]int64{10: 1, 11: 1})
	require.NoError(t, w.Render())
	path := filepath.Join(w.Root(), "proc/10/fdinfo/3")
	require.NoError(t, w.source.Close())
	require.NoError(t, os.Rename(path, path+"-before"))
	require.NoError(t, unix.Mkfifo(path, 0o644))

	require.NoError(t, w.processes.Scan(w.table, cpu.Request{}))
	first, err := w.source.Read(w.Now(), w.table)
	require.NoError(t, err, "the read may return soon")
	usedFirst := used(t, first)[11]
	assert.Len(t, w.source.clients.list, 2)
	w.Run(time.Second, nil)
	require.NoError(t, w.processes.Scan(w.table, cpu.Request{}))
	usage, err := w.source.Read(w.Now(), w.table)
	require.ErrorContains(t, err, "GPU usage of some processes cannot be read, because processes of these users block reads")
	assert.Equal(t, 300*ms, usedFirst+used(t, usage)[11], "others are read, at the latest by the next Read")

	fifo, err := os.OpenFile(path, os.O_RDWR|unix.O_NONBLOCK, 0)
	require.NoError(t, err)
	_, err = fifo.WriteString("\n")
	require.NoError(t, err)
	require.Eventually(t, func() bool { return w.source.reader.guard.Err("x") == nil }, time.Minute, time.Millisecond)
	require.NoError(t, fifo.Close())
	require.NoError(t, os.Rename(path+"-before", path))
	w.Processes[10].Files[0] = render(3, 1, gfx(200*ms))
	w.Run(2*time.Minute, map[int]int64{10: 1})
	usage, err = w.read()
	require.NoError(t, err)
	assert.Equal(t, map[int32]units.CPUTime{10: 200 * ms, 11: 0}, used(t, usage))
}

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

// The kernel makes each text anew, as the design of clients requires.
func TestATextThatIsKeptOpenKeepsNeitherADescriptorNorAProcess(t *testing.T) {
	r, write, err := os.Pipe()
	require.NoError(t, err)
	defer func() { assert.NoError(t, r.Close()) }()
	sleep := exec.Command("sleep", "60")
	sleep.ExtraFiles = []*os.File{write}
	require.NoError(t, sleep.Start())
	require.NoError(t, write.Close())
	dir, text, pid, buf := kernfs.NewKillable("/proc"), new(kernfs.Kept), int32(sleep.Process.Pid), make([]byte, 512)
	defer func() { assert.NoError(t, errors.Join(text.Close(), dir.Close())) }()
	require.NoError(t, dir.OpenOf(text, pid, "fdinfo/3"))
	for range 2 {
		got, err := dir.ReadKeptOf(text, pid, "fdinfo/3", buf)
		require.NoError(t, err)
		assert.Contains(t, string(got), "flags:")
	}
	require.NoError(t, sleep.Process.Kill())
	require.Error(t, sleep.Wait(), "it was killed")
	_, err = dir.ReadKeptOf(text, pid, "fdinfo/3", buf)
	assert.True(t, gone(err), "%v", err)
	_, err = r.Read(buf)
	require.ErrorIs(t, err, io.EOF, "the pipe has no writer any more")
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
