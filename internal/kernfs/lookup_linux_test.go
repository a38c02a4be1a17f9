// SPDX-License-Identifier: Apache-2.0

package kernfs

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// newProcess starts a process of which no file was looked up, and returns its PID.
func newProcess(t testing.TB) int32 {
	t.Helper()
	cmd := exec.Command("sleep", "1000")
	cmd.Stdin = strings.NewReader("") // descriptor 0 is a pipe
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		assert.NoError(t, cmd.Process.Kill())
		_ = cmd.Wait() // killed
	})
	return int32(cmd.Process.Pid)
}

func cachedAndKillable(t testing.TB) (cached, killable *Dir) {
	t.Helper()
	if !resolves() {
		require.False(t, hasResolveCached(), "the release of the kernel is new enough")
		t.Skip("lacks openat2(2) with RESOLVE_CACHED for procfs, Linux 5.16")
	}
	cached, killable = NewCached("/proc"), NewKillable("/proc")
	t.Cleanup(func() {
		assert.NoError(t, cached.Close())
		assert.NoError(t, killable.Close())
	})
	return cached, killable
}

func TestAProbeThatIsBlockedIsNotWaitedFor(t *testing.T) {
	before := proc()
	defer found.Store(before)
	found.Store(nil)
	unblock := make(chan struct{})
	await(func() *probed { <-unblock; return before }, time.Millisecond)
	assert.Nil(t, found.Load())
	assert.Equal(t, before.resolves, resolves())
	buf := make([]byte, 4096)
	for _, d := range []*Dir{NewCached("/proc"), NewKillable("/proc")} {
		_, err := d.ReadOf(int32(os.Getpid()), "stat", buf)
		require.NoError(t, err)
		require.NoError(t, d.Close())
	}
	close(unblock)
	require.Eventually(t, func() bool { return found.Load() != nil }, time.Minute, time.Millisecond)
}

func TestACachedDirReadsOnlyNamesThatWereLookedUp(t *testing.T) {
	cached, killable := cachedAndKillable(t)
	pid, buf := newProcess(t), make([]byte, 4096)
	for name, read := range map[string]func(*Dir) error{
		"stat": func(d *Dir) error { _, err := d.ReadOf(pid, "stat", buf); return err },
		"exe":  func(d *Dir) error { _, err := d.LinkOf(pid, "exe", buf); return err },
		"fd":   func(d *Dir) error { _, err := d.SizeOf(pid, "fd"); return err },
		"status": func(d *Dir) error {
			var k Kept
			err := d.OpenOf(&k, pid, "status")
			_ = k.Close() // it was not even read from
			return err
		},
	} {
		require.ErrorIs(t, read(cached), ErrNotCached, name)
		require.NoError(t, read(killable), name)
		require.NoError(t, read(cached), name)
		require.NoError(t, read(killable), name)
	}
	require.ErrorIs(t, cached.EachOf(pid, "task", func([]byte) bool { return true }), ErrNotCached)
	assert.True(t, cached.Has("self/no-such-file"), "it is not known")
	assert.False(t, killable.Has("self/no-such-file"))
}

func TestTheFirstLookupCachesOtherNamesThatWillBeRead(t *testing.T) {
	cached, _ := cachedAndKillable(t)
	pid, buf, d := newProcess(t), make([]byte, 4096), NewKillable("/proc", "limits")
	defer func() { assert.NoError(t, d.Close()) }()
	_, err := d.ReadOf(pid, "stat", buf)
	require.NoError(t, err)
	_, err = cached.ReadOf(pid, "limits", buf)
	require.NoError(t, err)
	_, err = cached.ReadOf(pid, "status", buf)
	require.ErrorIs(t, err, ErrNotCached)
	d.LookUpOf(pid, "exe")
	_, err = cached.LinkOf(pid, "exe", buf)
	require.NoError(t, err)
}

func TestAKillableDirReadsWhatAnyDirReads(t *testing.T) {
	_, killable := cachedAndKillable(t)
	anyDir, pid := newDir(t, "/proc"), newProcess(t)
	for _, name := range []string{"cmdline", "cgroup", "fdinfo/0", "task/" + strconv.Itoa(int(pid)) + "/comm"} {
		got, err := killable.ReadOf(pid, name, make([]byte, 4096))
		require.NoError(t, err, name)
		expected, err := anyDir.ReadOf(pid, name, make([]byte, 4096))
		require.NoError(t, err, name)
		assert.Equal(t, expected, got, name)
	}
	for _, name := range []string{"exe", "fd/0"} {
		got, err := killable.LinkOf(pid, name, make([]byte, 4096))
		require.NoError(t, err, name)
		expected, err := anyDir.LinkOf(pid, name, make([]byte, 4096))
		require.NoError(t, err, name)
		assert.Equal(t, expected, got, name)
	}
	for _, name := range []string{"no-such-file", "fdinfo/1000", "no/such/file"} {
		_, err := killable.ReadOf(pid, name, make([]byte, 1))
		require.ErrorIs(t, err, unix.ENOENT, name)
	}
	_, err := killable.ReadOf(1<<30, "stat", make([]byte, 1))
	require.ErrorIs(t, err, unix.ENOENT)
	_, err = killable.ReadOf(pid, "stat/x", make([]byte, 1))
	require.ErrorIs(t, err, unix.ENOTDIR)
}

func TestDescriptorsOfDevicesAreKnownByTheirMajorNumbers(t *testing.T) {
	_, killable := cachedAndKillable(t)
	null, err := os.Open(os.DevNull)
	require.NoError(t, err)
	defer func() { assert.NoError(t, null.Close()) }()
	path, err := unix.Open(os.DevNull, unix.O_PATH|unix.O_CLOEXEC, 0)
	require.NoError(t, err)
	defer func() { assert.NoError(t, unix.Close(path)) }()
	file, err := os.Create(filepath.Join(t.TempDir(), "null"))
	require.NoError(t, err)
	defer func() { assert.NoError(t, file.Close()) }()
	for fd, want := range map[int]uint32{int(null.Fd()): 1, path: 0, int(file.Fd()): 0} {
		major, err := killable.MajorOf(int32(os.Getpid()), "fd/"+strconv.Itoa(fd))
		require.NoError(t, err)
		assert.Equal(t, want, major)
	}
	_, err = killable.MajorOf(int32(os.Getpid()), "fd/1000")
	require.ErrorIs(t, err, unix.ENOENT)
}

func TestEveryDirReadsTreesThatAreNotProcfs(t *testing.T) {
	root := t.TempDir()
	write(t, "x", root, "7", "stat")
	require.NoError(t, os.Symlink("there", filepath.Join(root, "7", "exe")))
	for _, d := range []*Dir{NewCached(root), NewKillable(root)} {
		b, err := d.ReadIn("7", "stat", make([]byte, 10))
		require.NoError(t, err)
		assert.Equal(t, "x", string(b))
		b, err = d.LinkOf(7, "exe", make([]byte, 10))
		require.NoError(t, err)
		assert.Equal(t, "there", string(b))
		assert.True(t, d.Has("7"))
		assert.False(t, d.Has("8"))
		require.NoError(t, d.Close())
	}
}

func TestLookupsAllocateNothingAndLeaveNoDescriptorOpen(t *testing.T) {
	cached, killable := cachedAndKillable(t)
	pid, buf := int32(os.Getpid()), make([]byte, 4096)
	read := func() {
		for _, d := range []*Dir{killable, cached} {
			_, _ = d.ReadOf(pid, "stat", buf)
			_, _ = d.LinkOf(pid, "exe", buf)
			_, _ = d.SizeOf(pid, "fd")
			_, _ = d.ReadOf(pid, "fdinfo/0", buf)
			_, _ = d.ReadOf(pid, "no-such-file", buf)
			d.Has("self/stat")
			_, _ = d.MajorOf(pid, "fd/0")
		}
	}
	read()
	before, err := os.ReadDir("/proc/self/fd")
	require.NoError(t, err)
	assert.Zero(t, testing.AllocsPerRun(20, read))
	after, err := os.ReadDir("/proc/self/fd")
	require.NoError(t, err)
	assert.Len(t, after, len(before))
}

// BenchmarkReadOf measures reads of a file that was looked up before, and first reads of files of new processes.
func BenchmarkReadOf(b *testing.B) {
	cached, killable := cachedAndKillable(b)
	pid, buf := newProcess(b), make([]byte, 4096)
	for name, d := range map[string]*Dir{"any": New("/proc"), "cached": cached, "killable": killable} {
		for _, file := range []string{"stat", "fdinfo/0"} {
			b.Run(file+"/"+name, func(b *testing.B) {
				_, _ = killable.ReadOf(pid, file, buf)
				for b.Loop() {
					_, _ = d.ReadOf(pid, file, buf)
				}
			})
		}
		b.Run("major/"+name, func(b *testing.B) {
			for b.Loop() {
				_, _ = d.MajorOf(pid, "fd/0")
			}
		})
		b.Run("link/"+name, func(b *testing.B) {
			for b.Loop() {
				_, _ = d.LinkOf(pid, "fd/0", buf)
			}
		})
		b.Run("first/"+name, func(b *testing.B) {
			const processes = 100
			for b.Loop() {
				b.StopTimer()
				started := make([]*exec.Cmd, processes)
				for i := range started {
					started[i] = exec.Command("sleep", "1000")
					require.NoError(b, started[i].Start())
				}
				require.NoError(b, d.Each(func([]byte) {}))
				b.StartTimer()
				for _, cmd := range started {
					for _, file := range []string{"stat", "cgroup", "cmdline"} {
						_, _ = d.ReadOf(int32(cmd.Process.Pid), file, buf)
					}
				}
				b.StopTimer()
				for _, cmd := range started {
					_ = cmd.Process.Kill()
					_ = cmd.Wait()
				}
				b.StartTimer()
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/processes/3, "ns/file")
		})
	}
}
