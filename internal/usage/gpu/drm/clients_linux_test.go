// SPDX-License-Identifier: Apache-2.0

package drm

import (
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
	info   []string
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
			if strings.HasPrefix(line, "drm-") {
				n.info = append(n.info, strings.Join(strings.Fields(line), " "))
			}
		}
		t.Logf("%s of %s: %q", path, n.device, n.info)
		nodes = append(nodes, n)
	}
	return nodes
}

// client returns the ID that the kernel prints, empty if it prints none.
func (n *openNode) client() string {
	for _, line := range n.info {
		if id, ok := strings.CutPrefix(line, "drm-client-id: "); ok {
			return id
		}
	}
	return ""
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
		if id := n.client(); id != "" && isGPU[n.device] {
			clients[n.device+" "+id] = pid
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
