// SPDX-License-Identifier: Apache-2.0

package cgroup

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// BenchmarkReadCPUTime measures what it takes to read the counters of 1,000 cgroups, a second after
// they were read last: with files that stay open, and with files that are opened each time. In each
// cgroup a shell starts a program each second, or none does. The floor is to read open files and
// nothing else.
func BenchmarkReadCPUTime(b *testing.B) {
	const cgroups, pause = 1000, time.Second
	mount := cgroupfs(b)
	outer := filepath.Join(mount, fmt.Sprintf("counters-%d", os.Getpid()))
	makeCgroup(b, outer)
	dirs := make([]string, cgroups)
	for i := range dirs {
		dirs[i] = filepath.Join(outer, fmt.Sprintf("docker-%064x.scope", i+1))
		makeCgroup(b, dirs[i])
	}
	for _, running := range []int{0, cgroups} {
		for _, dir := range dirs[:running] {
			run(b, dir)
		}
		for name, room := range map[string]int{"kept open": cgroups + 1, "opened": 0} {
			b.Run(fmt.Sprintf("%s/%d run", name, running), func(b *testing.B) {
				tree := New(Options{Root: "/"})
				tree.kept.Most = room
				for _, dir := range dirs {
					tree.Enter("/"+filepath.Base(outer)+"/"+filepath.Base(dir), true)
				}
				measure(b, pause, cgroups, tree.ReadCPUTime)
				require.NoError(b, tree.Close())
			})
		}
		b.Run(fmt.Sprintf("floor/%d run", running), func(b *testing.B) {
			var files []int
			for _, dir := range append([]string{outer}, dirs...) {
				fd, err := unix.Open(filepath.Join(dir, "cpu.stat"), unix.O_RDONLY|unix.O_CLOEXEC, 0)
				require.NoError(b, err)
				files = append(files, fd)
			}
			buf := make([]byte, 1024)
			measure(b, pause, cgroups, func() {
				for _, fd := range files {
					_, _ = unix.Pread(fd, buf, 0)
				}
			})
			for _, fd := range files {
				require.NoError(b, unix.Close(fd))
			}
		})
	}
}

// run starts a shell in a cgroup that starts a program each second, until the benchmark ends.
func run(b *testing.B, cgroup string) {
	command := exec.Command("sh", "-c", "while :; do sleep 1; done")
	require.NoError(b, command.Start())
	b.Cleanup(func() {
		require.NoError(b, os.WriteFile(filepath.Join(cgroup, "cgroup.kill"), []byte("1"), 0))
		_ = command.Wait() // killed
		for range 300 {    // the program that it started may take a moment to end
			if os.Remove(cgroup) == nil {
				return
			}
			time.Sleep(10 * time.Millisecond)
		}
	})
	pid := strconv.Itoa(command.Process.Pid)
	require.NoError(b, os.WriteFile(filepath.Join(cgroup, "cgroup.procs"), []byte(pid), 0))
}

// measure reports the CPU time of an operation on so many items, which takes place after each
// pause.
func measure(b *testing.B, pause time.Duration, items int, operation func()) {
	used := func() time.Duration {
		var u unix.Rusage
		require.NoError(b, unix.Getrusage(unix.RUSAGE_THREAD, &u))
		return time.Duration(u.Utime.Nano() + u.Stime.Nano())
	}
	operation()
	runtime.LockOSThread() // whose CPU time is measured
	defer runtime.UnlockOSThread()
	var sum time.Duration
	for b.Loop() {
		time.Sleep(pause)
		before := used()
		operation()
		sum += used() - before
	}
	b.ReportMetric(float64(sum.Nanoseconds())/1000/float64(b.N)/float64(items), "cpu-µs/cgroup")
}
