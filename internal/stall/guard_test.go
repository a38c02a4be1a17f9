// SPDX-License-Identifier: Apache-2.0

//go:build linux

package stall

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/energyreceiver/energyreceiver/internal/kernfs"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// text is a Job that reads the file cmdline.
type text struct {
	proc *kernfs.Dir
	pid  int32
	buf  []byte
	got  []byte
	err  error
}

func (t *text) Close() error { return t.proc.Close() }

func (t *text) read() { t.got, t.err = t.proc.ReadOf(t.pid, "cmdline", t.buf) }

// host is a tree of processes, some of which block their command lines: these are FIFOs, which
// cannot be opened while they have no writer.
type host struct {
	*testing.T
	root  string
	now   time.Time
	guard *Guard[*text]
}

func newHost(t *testing.T) *host {
	h := &host{T: t, root: t.TempDir(), now: time.Unix(1000, 0)}
	h.guard = New(Options[*text]{
		Root: h.root, Everywhere: true,
		New: func() *text {
			return &text{proc: kernfs.New(filepath.Join(h.root, "proc")), buf: make([]byte, 64)}
		},
	})
	h.guard.options.Haste = 2 * time.Second
	h.begin(0) // the first scan, which waits longer
	h.begin(0)
	t.Cleanup(func() {
		fifos, err := filepath.Glob(filepath.Join(h.root, "proc/*/*"))
		require.NoError(t, err)
		for _, path := range fifos {
			if info, err := os.Stat(path); err == nil && info.Mode()&os.ModeNamedPipe != 0 {
				unblock(t, path)
			}
		}
		assert.NoError(t, h.guard.Close())
	})
	return h
}

// unblock has whoever opens a FIFO succeed, until the test ends.
func unblock(t *testing.T, path string) {
	t.Helper()
	fifo, err := os.OpenFile(path, os.O_RDWR|unix.O_NONBLOCK, 0)
	require.NoError(t, err)
	_, err = fifo.WriteString("unblocked")
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, fifo.Close()) })
}

func (h *host) path(pid int, name string) string {
	return filepath.Join(h.root, "proc", strconv.Itoa(pid), name)
}

// add adds a process of a user.
func (h *host) add(pid int, uid any, blocked ...string) {
	h.Helper()
	require.NoError(h, os.MkdirAll(h.path(pid, ""), 0o755))
	texts := map[string]string{
		"cmdline": fmt.Sprint("process ", pid),
		"status":  fmt.Sprintf("Name:\tapp\nPid:\t%d\nUid:\t%d\t0\t0\t0\nGid:\t0\t0\t0\t0\n", pid, uid),
	}
	for _, name := range blocked {
		delete(texts, name)
		require.NoError(h, unix.Mkfifo(h.path(pid, name), 0o644))
	}
	for name, text := range texts {
		require.NoError(h, os.WriteFile(h.path(pid, name), []byte(text), 0o644))
	}
}

// begin begins a scan after some time.
func (h *host) begin(after time.Duration) {
	h.now = h.now.Add(after)
	h.guard.Begin(h.now)
}

// read returns the command line of a process, which started as many seconds after boot.
func (h *host) read(pid, start int) (string, error) {
	job := h.guard.Job()
	job.pid = int32(pid)
	if err := h.guard.Run(int32(pid), time.Duration(start)*time.Second, (*text).read); err != nil {
		return "", err
	}
	return string(job.got), job.err
}

func (h *host) requireReads(pid int) {
	h.Helper()
	got, err := h.read(pid, 0)
	require.NoError(h, err)
	require.Equal(h, fmt.Sprint("process ", pid), got)
}

func (h *host) requireBlocked(pid int) {
	h.Helper()
	_, err := h.read(pid, 0)
	require.ErrorIs(h, err, ErrBlocked)
}

func TestReadsReturnWhatFilesHold(t *testing.T) {
	h := newHost(t)
	h.add(1, 0)
	h.requireReads(1)
	_, err := h.read(2, 0)
	require.ErrorIs(t, err, os.ErrNotExist)
	require.NoError(t, h.guard.Err("command lines"))
}

func TestABlockedReadDelaysOnlyItsScan(t *testing.T) {
	h := newHost(t)
	h.add(1, 1000, "cmdline")
	h.add(2, 1000)
	began := time.Now()
	h.requireBlocked(1)
	assert.GreaterOrEqual(t, time.Since(began), patience)
	h.requireReads(2)
	require.NoError(t, h.guard.Err("command lines"), "it may return soon")
	h.begin(suspect)
	require.EqualError(t, h.guard.Err("command lines"), "command lines of some processes cannot be read, because processes of these users block "+
		"reads of their files in /proc: user 1000 (1 process)")
	h.begin(time.Hour)
	h.requireBlocked(1)
	assert.Equal(t, patience, h.guard.left, "its read has not returned")
	assert.Len(t, h.guard.missed, 1)
}

func TestAnUnblockedProcessIsReadAfterAPause(t *testing.T) {
	h := newHost(t)
	h.add(1, 1000, "cmdline")
	h.requireBlocked(1)
	require.NoError(t, os.Rename(h.path(1, "cmdline"), h.path(1, "before")))
	h.add(1, 1000)
	unblock(t, h.path(1, "before"))
	require.Eventually(t, func() bool { return h.guard.missed[0].hasEnded() }, time.Minute, time.Millisecond)
	h.begin(pause - time.Second)
	h.requireBlocked(1)
	h.begin(time.Second)
	h.requireReads(1)
	assert.Empty(t, h.guard.missed)
}

// On a machine without a free CPU, each read takes as long as one that is blocked. Here the system call takes that
// long.
func TestAReadThatNeedsCPUTimeIsNotBlocked(t *testing.T) {
	h := newHost(t)
	h.add(1, 1000)
	for range 3 {
		require.NoError(t, h.readSlowly(1, 3*patience/2))
	}
	h.requireReads(1)
	assert.Empty(t, h.guard.missed)
	assert.Greater(t, h.guard.left, patience/2)
	require.NoError(t, h.guard.Err("command lines"))
}

func TestReadsThatNeedCPUTimeDelayAScanByABound(t *testing.T) {
	h := newHost(t)
	h.add(1, 1000)
	for range 2 {
		require.NoError(t, h.readSlowly(1, maxStarved/2))
	}
	h.requireBlocked(1)
	assert.Empty(t, h.guard.missed, "its process does not block it")
	h.begin(time.Second)
	h.requireReads(1)
}

// readSlowly reads a process by system calls that take so long.
func (h *host) readSlowly(pid int, duration time.Duration) error {
	random := make([]byte, 32<<20)
	job := h.guard.Job()
	job.pid = int32(pid)
	err := h.guard.Run(int32(pid), 0, func(t *text) {
		for began := time.Now(); time.Since(began) < duration; {
			if _, err := unix.Getrandom(random, 0); err != nil {
				t.err = err
				return
			}
		}
		t.read()
	})
	if err != nil {
		return err
	}
	assert.Equal(h, fmt.Sprint("process ", pid), string(job.got))
	return job.err
}

// No collection waits for the first scan.
func TestTheFirstScanWaitsLonger(t *testing.T) {
	g := New(Options[*text]{Root: t.TempDir()})
	g.Begin(time.Unix(1, 0))
	assert.Equal(t, 10*patience, g.left)
	g.Begin(time.Unix(2, 0))
	assert.Equal(t, patience, g.left)
}

func TestAnotherProcessWithTheNumberIsRead(t *testing.T) {
	h := newHost(t)
	h.add(1, 1000, "cmdline")
	h.requireBlocked(1)
	require.NoError(t, os.Rename(h.path(1, "cmdline"), h.path(1, "before")))
	h.add(1, 1000)
	h.requireBlocked(1)
	got, err := h.read(1, 7)
	require.NoError(t, err)
	assert.Equal(t, "process 1", got)
}

func TestAUserCannotHaveOthersUnread(t *testing.T) {
	h := newHost(t)
	for pid := range 10 {
		h.add(100+pid, 1000, "cmdline")
	}
	h.add(110, 1000)
	h.add(111, 1001)
	for range 3 {
		h.begin(time.Second)
		for pid := range 10 {
			h.requireBlocked(100 + pid)
		}
		h.requireBlocked(110) // of the same user
		h.begin(0)            // with time for another wait
		h.requireReads(111)
		assert.Len(t, h.guard.missed, maxOfUser)
	}
	assert.ErrorContains(t, h.guard.Err("command lines"), ": user 1000 (2 processes)")
}

// The processes block the reads of their users, too.
func TestAKnownUserCannotHaveOthersUnread(t *testing.T) {
	h := newHost(t)
	read := func(pid, uid int) error {
		h.guard.Job().pid = int32(pid)
		return h.guard.RunOf(uint32(uid), int32(pid), 0, (*text).read)
	}
	for pid := range 40 {
		h.add(100+pid, 1000, "cmdline", "status")
		h.begin(time.Second)
		require.ErrorIs(t, read(100+pid, 1000), ErrBlocked)
	}
	assert.Len(t, h.guard.missed, maxOfUser)
	h.add(200, 1001)
	require.NoError(t, read(200, 1001))
}

// Each read blocks for less than the deadline, so that none is missed.
func TestAUserCannotUseUpTheTimeOfAScan(t *testing.T) {
	h := newHost(t)
	h.guard.options.Haste = haste
	for pid := range 30 {
		h.add(100+pid, 1000)
	}
	for pid := range 20 {
		h.add(200+pid, 1001)
	}
	for pid := range 30 {
		h.guard.Job().pid = int32(100 + pid)
		err := h.guard.Run(int32(100+pid), 0, func(t *text) {
			poll := []unix.PollFd{}
			_, _ = unix.Poll(poll, 13) // sleeps in a system call, as a blocked read does
			t.read()
		})
		if pid > 10 {
			require.ErrorIs(t, err, ErrBlocked)
		}
	}
	for pid := range 20 {
		h.requireReads(200 + pid)
	}
	assert.True(t, h.guard.exhausted)
}

func TestManyUsersCannotDelayAScan(t *testing.T) {
	h := newHost(t)
	for pid := range 100 {
		h.add(100+pid, 1000+pid, "cmdline")
	}
	h.guard.options.Haste = haste
	began := time.Now()
	for pid := range 100 {
		h.requireBlocked(100 + pid)
	}
	assert.Less(t, time.Since(began), 50*patience, "100 waits take longer")
	for range 20 {
		h.begin(time.Second)
		for pid := range 100 {
			h.requireBlocked(100 + pid)
		}
	}
	assert.Equal(t, patience, h.guard.left, "the last scan waited for nothing")
	assert.LessOrEqual(t, len(h.guard.missed), maxMissed)
	assert.ErrorContains(t, h.guard.Err("command lines"), " more")
}

func TestAfterAWaitAQuickReadSucceeds(t *testing.T) {
	h := newHost(t)
	h.add(1, 1000, "cmdline")
	h.add(2, 1001)
	h.requireBlocked(1)
	assert.Less(t, h.guard.left, haste)
	h.requireReads(2)
	h.guard.left = -2 * patience
	h.requireBlocked(2)
	h.begin(time.Second)
	h.requireReads(2)
}

func TestAProcessWhoseUserCannotBeReadIsNotRead(t *testing.T) {
	h := newHost(t)
	h.add(1, 1000, "cmdline", "status")
	h.add(2, 1000)
	h.requireBlocked(1)
	assert.Len(t, h.guard.missed, 1)
	h.begin(time.Second)
	h.requireReads(2)
	assert.ErrorContains(t, h.guard.Err("command lines"), ": unknown user (1 process)")
	unblock(t, h.path(1, "cmdline"))
	require.Eventually(t, h.guard.missed[0].read.Load, time.Minute, time.Millisecond)
	h.begin(2 * pause)
	assert.Len(t, h.guard.missed, 1, "the read of its user has not returned")
}

func TestAProcessThatBlocksTheReadsOfTwoFilesCountsOnce(t *testing.T) {
	h := newHost(t)
	h.guard.options.Haste = haste
	for pid := range maxMissed - 1 {
		h.add(100+pid, 1000+pid, "cmdline", "status")
		h.begin(time.Second)
		h.requireBlocked(100 + pid)
	}
	assert.Len(t, h.guard.missed, maxMissed-1)
	h.guard.options.Haste = 2 * time.Second
	h.add(1, 1)
	h.begin(time.Second)
	h.requireReads(1)
}

func TestFilesThatNoProcessBlocksAreReadByTheCaller(t *testing.T) {
	h := newHost(t)
	h.guard.options.Everywhere = false
	h.add(1, 1000)
	h.requireReads(1)
	assert.Nil(t, h.guard.idle.requests, "no goroutine was started")
	require.NoError(t, os.RemoveAll(filepath.Join(h.root, "proc")))
	require.NoError(t, os.Symlink("/proc", filepath.Join(h.root, "proc")))
	require.NoError(t, h.guard.Close())
	h.guard.found = false
	_, err := h.read(os.Getpid(), 0)
	require.NoError(t, err)
	assert.NotNil(t, h.guard.idle.requests)
}

func TestTheRealUserIDIsRead(t *testing.T) {
	h := newHost(t)
	h.add(1, uint32(4294967294))
	u, missed := h.guard.userOf(1)
	assert.Nil(t, missed)
	assert.Equal(t, user(4294967294), u)
	u, missed = h.guard.userOf(2)
	assert.Nil(t, missed, "it has ended")
	assert.Equal(t, noUser, u)
}

func TestAReadAllocatesNothing(t *testing.T) {
	h := newHost(t)
	h.add(1, 0)
	read := func() { _, _ = h.guard.Job(), h.guard.Run(1, 0, (*text).read) }
	h.guard.Job().pid = 1
	assert.Zero(t, testing.AllocsPerRun(100, read))
}

func BenchmarkRun(b *testing.B) {
	pid := int32(os.Getpid())
	job := func() *text { return &text{proc: kernfs.New("/proc"), buf: make([]byte, 4096), pid: pid} }
	b.Run("guarded", func(b *testing.B) {
		g := New(Options[*text]{Root: "/", New: job})
		defer func() { assert.NoError(b, g.Close()) }()
		b.ReportAllocs()
		for b.Loop() {
			g.left = patience
			if err := g.Run(pid, 0, (*text).read); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("direct", func(b *testing.B) {
		t := job()
		defer func() { assert.NoError(b, t.Close()) }()
		b.ReportAllocs()
		for b.Loop() {
			t.read()
		}
	})
}

func TestReadsThatAreOnlySlowAreReported(t *testing.T) {
	h := newHost(t)
	h.add(1, 1000)
	for range 2 { // one scan alone is not reported
		require.NoError(t, h.guard.Err("command lines"))
		h.begin(time.Second)
		h.guard.left = -2 * patience // the scan has waited for others
		h.requireBlocked(1)
	}
	require.EqualError(t, h.guard.Err("command lines"), "command lines of some processes were not read, because reads below /proc are slow")
	h.begin(time.Second)
	h.requireReads(1)
	require.NoError(t, h.guard.Err("command lines"))
}
