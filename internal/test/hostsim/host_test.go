// SPDX-License-Identifier: Apache-2.0

package hostsim

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/procfs"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// These tests parse the rendered trees with prometheus/procfs. The tests of the receiver's readers
// rely on trees that look like a kernel's.

func render(t testing.TB, h *Host) procfs.FS {
	t.Helper()
	require.NoError(t, h.Render())
	proc, err := procfs.NewFS(filepath.Join(h.Root(), "proc"))
	require.NoError(t, err)
	return proc
}

func text(t testing.TB, h *Host, path string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(h.Root(), path))
	require.NoError(t, err)
	return string(b)
}

func TestRenderedProcessesParseAsGiven(t *testing.T) {
	h := New(t.TempDir())
	h.Processes[2] = &Process{Comm: "kthreadd", Kernel: true}
	h.Processes[4194304] = &Process{
		Parent: 1, Comm: "a) b (c", State: 'Z', Threads: 7, Start: 12345, User: 10, System: 20, CUser: 30, CSystem: 40,
		Exe: "/usr/bin/a", Args: []string{"a", "", "two words"}, Cgroup: "0::/system.slice/a.service",
	}
	proc := render(t, h)

	all, err := proc.AllProcs()
	require.NoError(t, err)
	assert.Len(t, all, 3)

	p, err := proc.Proc(4194304)
	require.NoError(t, err)
	stat, err := p.Stat()
	require.NoError(t, err)
	assert.Equal(t, procfs.ProcStat{
		PID: 4194304, Comm: "a) b (c", State: "Z", PPID: 1, PGRP: 4194304, Session: 4194304, TPGID: -1, Flags: 0x400000,
		UTime: 10, STime: 20, CUTime: 30, CSTime: 40, Priority: 20, NumThreads: 7, Starttime: 12345,
	}, withoutHidden(stat))
	exe, err := p.Executable()
	require.NoError(t, err)
	assert.Equal(t, "/usr/bin/a", exe)
	args, err := p.CmdLine()
	require.NoError(t, err)
	assert.Equal(t, []string{"a", "", "two words"}, args)
	cgroups, err := p.Cgroups()
	require.NoError(t, err)
	require.Len(t, cgroups, 1)
	assert.Equal(t, "/system.slice/a.service", cgroups[0].Path)

	kernel, err := proc.Proc(2)
	require.NoError(t, err)
	stat, err = kernel.Stat()
	require.NoError(t, err)
	assert.NotZero(t, stat.Flags&0x00200000, "PF_KTHREAD")
	assert.Equal(t, uint(1), uint(stat.NumThreads), "threads when none are given")
	_, err = kernel.Executable()
	require.NoError(t, err, "no link at all reads as none")
	args, err = kernel.CmdLine()
	require.NoError(t, err)
	assert.Empty(t, args)
}

// withoutHidden clears the fields that only prometheus/procfs itself can compare.
func withoutHidden(s procfs.ProcStat) procfs.ProcStat {
	return procfs.ProcStat{
		PID: s.PID, Comm: s.Comm, State: s.State, PPID: s.PPID, PGRP: s.PGRP, Session: s.Session, TPGID: s.TPGID,
		Flags: s.Flags, UTime: s.UTime, STime: s.STime, CUTime: s.CUTime, CSTime: s.CSTime, Priority: s.Priority,
		NumThreads: s.NumThreads, Starttime: s.Starttime,
	}
}

func TestRenderedNodeParsesAsGiven(t *testing.T) {
	h := New(t.TempDir())
	h.CPU = CPU{User: 100, Nice: 200, System: 300, Idle: 400, IOWait: 500, IRQ: 600, SoftIRQ: 700, Steal: 800, Guest: 900, GuestNice: 1000}
	h.Processes[2] = &Process{Threads: 5}
	h.HiddenThreads = 3
	proc := render(t, h)

	stat, err := proc.Stat()
	require.NoError(t, err)
	assert.Equal(t, procfs.CPUStat{
		User: 1, Nice: 2, System: 3, Idle: 4, Iowait: 5, IRQ: 6, SoftIRQ: 7, Steal: 8, Guest: 9, GuestNice: 10,
	}, stat.CPUTotal)
	assert.Equal(t, h.Booted, time.Unix(int64(stat.BootTime), 0).UTC())
	assert.True(t, strings.HasPrefix(text(t, h, "proc/uptime"), "1000.00 "))
	load, err := proc.LoadAvg()
	require.NoError(t, err)
	assert.NotNil(t, load)
	assert.Contains(t, text(t, h, "proc/loadavg"), "/9 ", "threads of all processes, and the hidden ones")
	first, err := proc.Proc(1)
	require.NoError(t, err)
	mounts, err := first.MountInfo()
	require.NoError(t, err)
	require.Len(t, mounts, 1)
	assert.Equal(t, "cgroup2", mounts[0].FSType)
	assert.Equal(t, "/sys/fs/cgroup", mounts[0].MountPoint)
}

func TestRunAdvancesTimeConsistently(t *testing.T) {
	h := New(t.TempDir())
	h.CPUs = 4
	h.Processes[2] = &Process{}
	idle, now := h.CPU.Idle, h.Now()
	h.Run(10*time.Second, map[int]int64{1: 100, 2: 900})
	assert.Equal(t, 1010*time.Second, h.Uptime)
	assert.Equal(t, 10*time.Second, h.Now().Sub(now))
	assert.Equal(t, int64(100), h.Processes[1].User)
	assert.Equal(t, int64(900), h.Processes[2].User)
	assert.Equal(t, int64(1000), h.CPU.User)
	assert.Equal(t, int64(4*1000-1000), h.CPU.Idle-idle)

	idle = h.CPU.Idle
	h.Run(time.Second, map[int]int64{1: 1000})
	assert.Equal(t, idle, h.CPU.Idle, "never less idle, even where more was used than there is")
}

func TestRenderedZonesParseAsGiven(t *testing.T) {
	h := New(t.TempDir())
	h.Zones["intel-rapl:0"] = &Zone{Name: "package-0", Energy: 18446744073709551615, Max: 262143328850}
	h.Zones["intel-rapl:0:0"] = &Zone{Name: "core", Content: "garbage", Max: 1}
	h.Zones["dtpm"] = &Zone{Name: "dtpm", NoMax: true}
	require.NoError(t, h.Render())
	assert.Equal(t, "18446744073709551615\n", text(t, h, "sys/class/powercap/intel-rapl:0/energy_uj"))
	assert.Equal(t, "garbage", text(t, h, "sys/class/powercap/intel-rapl:0:0/energy_uj"))
	assert.NoFileExists(t, filepath.Join(h.Root(), "sys/class/powercap/dtpm/max_energy_range_uj"))

	delete(h.Zones, "dtpm")
	h.Zones["intel-rapl:0:0"] = &Zone{Name: "core", Energy: 5, Max: 1}
	require.NoError(t, h.Render())
	assert.NoDirExists(t, filepath.Join(h.Root(), "sys/class/powercap/dtpm"))
	assert.Equal(t, "5\n", text(t, h, "sys/class/powercap/intel-rapl:0:0/energy_uj"))
	zones, err := filepath.Glob(filepath.Join(h.Root(), "sys/class/powercap/*/energy_uj"))
	require.NoError(t, err)
	assert.Len(t, zones, 2)
}

func TestRenderingAgainShowsChanges(t *testing.T) {
	h := New(t.TempDir())
	h.Processes[7] = &Process{Comm: "old", Exe: "/bin/old"}
	h.Processes[8] = &Process{Comm: "gone"}
	h.Cgroups["/system.slice/a.service"] = 1500 * time.Microsecond
	proc := render(t, h)
	assert.Contains(t, text(t, h, "sys/fs/cgroup/system.slice/a.service/cpu.stat"), "usage_usec 1500\n")

	h.Processes[7] = &Process{Comm: "new", Exe: "/bin/new"}
	delete(h.Processes, 8)
	h.Processes[9] = &Process{Comm: "born"}
	h.Processes[1].Exe = ""
	render(t, h)
	all, err := proc.AllProcs()
	require.NoError(t, err)
	var pids []int
	for _, p := range all {
		pids = append(pids, p.PID)
	}
	assert.ElementsMatch(t, []int{1, 7, 9}, pids)
	exe, err := os.Readlink(filepath.Join(h.Root(), "proc/7/exe"))
	require.NoError(t, err)
	assert.Equal(t, "/bin/new", exe)
	assert.NoFileExists(t, filepath.Join(h.Root(), "proc/1/exe"))
	assert.Contains(t, text(t, h, "proc/7/stat"), "(new)")
}

func TestOpenDescriptorsSeeLaterRenders(t *testing.T) {
	h := New(t.TempDir())
	require.NoError(t, h.Render())
	dir, err := os.Open(filepath.Join(h.Root(), "proc"))
	require.NoError(t, err)
	defer func() { _ = dir.Close() }()
	file, err := os.Open(filepath.Join(h.Root(), "proc/1/stat"))
	require.NoError(t, err)
	defer func() { _ = file.Close() }()

	h.Processes[7] = &Process{}
	h.Processes[1].User = 4711
	require.NoError(t, h.Render())
	names, err := dir.Readdirnames(-1)
	require.NoError(t, err)
	assert.Contains(t, names, "7")
	b := make([]byte, 200)
	n, err := file.ReadAt(b, 0)
	assert.Positive(t, n)
	require.Error(t, err, "the whole file fits")
	assert.Contains(t, string(b[:n]), " 4711 ")
}

func TestOpenCountersOfRemovedCgroupsAreEmpty(t *testing.T) {
	h := New(t.TempDir())
	var paths []string
	for i := range 10 {
		pod := fmt.Sprintf("/pod-%d", i)
		paths = append(paths, pod, pod+"/container")
	}
	for _, path := range paths {
		h.Cgroups[path] = time.Second
	}
	require.NoError(t, h.Render())
	var open []*os.File
	for _, path := range paths {
		f, err := os.Open(filepath.Join(h.Root(), "sys/fs/cgroup", path, "cpu.stat"))
		require.NoError(t, err)
		defer func() { _ = f.Close() }() // it was only read from
		open = append(open, f)
	}
	clear(h.Cgroups)
	require.NoError(t, h.Render())
	for _, f := range open {
		text, err := io.ReadAll(f)
		require.NoError(t, err)
		assert.Empty(t, text, f.Name())
		assert.NoFileExists(t, f.Name())
	}
}

func TestRenderReportsFilesItCannotWrite(t *testing.T) {
	h := New(t.TempDir())
	require.NoError(t, os.WriteFile(filepath.Join(h.Root(), "proc"), nil, 0o600))
	assert.Error(t, h.Render())

	h = New(t.TempDir())
	require.NoError(t, os.MkdirAll(filepath.Join(h.Root(), "proc/1/stat"), 0o700))
	require.Error(t, h.Render())
	require.NoError(t, os.Remove(filepath.Join(h.Root(), "proc/1/stat")))
	assert.NoError(t, h.Render(), "the error of one rendering is not the next one's")
}

func TestEveryFieldOfAProcessMakesItRenderedAgain(t *testing.T) {
	fields := reflect.TypeFor[Process]()
	for i := range fields.NumField() {
		var p Process
		switch field := reflect.ValueOf(&p).Elem().Field(i); field.Kind() {
		case reflect.String:
			field.SetString("x")
		case reflect.Bool:
			field.SetBool(true)
		case reflect.Uint8:
			field.SetUint(1)
		case reflect.Slice:
			field.Set(reflect.MakeSlice(field.Type(), 1, 1))
		default:
			field.SetInt(1)
		}
		elsewhere := []string{"Files", "Fraction"}
		assert.Equal(t, slices.Contains(elsewhere, fields.Field(i).Name), p.same(&Process{}), fields.Field(i).Name)
	}
}

func TestACachedHostRendersLikeAnUncachedOne(t *testing.T) {
	hosts := []*Host{New(t.TempDir()), New(t.TempDir())}
	hosts[1].Cached = true
	check := func(gone bool) {
		for _, h := range hosts {
			require.NoError(t, h.Render())
			_, err := os.Stat(filepath.Join(h.Root(), "proc/2"))
			assert.Equal(t, gone, os.IsNotExist(err))
		}
		for _, name := range []string{"proc/1/stat", "proc/loadavg", "sys/fs/cgroup/a/cpu.stat", "sys/fs/cgroup/a/memory.current"} {
			assert.Equal(t, text(t, hosts[0], name), text(t, hosts[1], name))
		}
		if !gone {
			assert.Equal(t, text(t, hosts[0], "proc/2/stat"), text(t, hosts[1], "proc/2/stat"))
		}
	}
	change := func(to func(*Host)) {
		for _, h := range hosts {
			to(h)
		}
	}
	change(func(h *Host) {
		h.Processes[2] = &Process{Comm: "a"}
		h.Cgroups["/a"], h.Memory["/a"] = time.Second, 4096
	})
	check(false)
	change(func(h *Host) { h.Processes[2].User, h.Memory["/a"] = 7, 8192 })
	check(false)
	change(func(h *Host) { delete(h.Processes, 2); h.Cgroups["/a"] += time.Second })
	check(true)
	change(func(h *Host) { h.Processes[2] = &Process{Comm: "a", User: 7} })
	check(false)
}
