// SPDX-License-Identifier: Apache-2.0

//go:build linux

package stall

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

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

// host is a tree of processes, some of which block reads of their files. It lives in a bubble of synctest, in which
// time passes only while all goroutines wait.
type host struct {
	*testing.T
	root  string
	now   time.Time
	guard *Guard[*text]
	state state // of the thread of each read that has not returned

	mu      sync.Mutex
	blocked map[string]chan struct{} // by path; closed to unblock the file
}

// onHost calls test with a host, in a bubble.
func onHost(t *testing.T, test func(h *host)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		h := &host{T: t, root: t.TempDir(), now: time.Unix(1000, 0), state: asleep, blocked: map[string]chan struct{}{}}
		h.guard = newGuard(h.root)
		h.guard.look = func(*thread) state { return h.state }
		h.begin(0) // the first scan, which waits longer
		h.begin(0)
		restore := kernfs.InjectFaults(func(path string, got []byte, err error) ([]byte, error) {
			h.mu.Lock()
			blocked := h.blocked[path]
			h.mu.Unlock()
			if blocked != nil {
				<-blocked
			}
			return got, err
		})
		defer restore()
		defer func() {
			for path := range h.blocked {
				h.unblock(path)
			}
			synctest.Wait()
			assert.NoError(t, h.guard.Close())
		}()
		test(h)
	})
}

// newGuard returns a Guard of the command lines below root.
func newGuard(root string) *Guard[*text] {
	return New(Options[*text]{
		Root: root, Everywhere: true,
		New: func() *text {
			return &text{proc: kernfs.New(filepath.Join(root, "proc")), buf: make([]byte, 64)}
		},
	})
}

// unblock lets blocked reads of a file return.
func (h *host) unblock(path string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	close(h.blocked[path])
	delete(h.blocked, path)
}

func (h *host) path(pid int, name string) string {
	return filepath.Join(h.root, "proc", strconv.Itoa(pid), name)
}

// add adds a process of a user, which blocks reads of some of its files.
func (h *host) add(pid int, uid any, blocked ...string) {
	h.Helper()
	require.NoError(h, os.MkdirAll(h.path(pid, ""), 0o755))
	for name, text := range map[string]string{
		"cmdline": fmt.Sprint("process ", pid),
		"status":  fmt.Sprintf("Name:\tapp\nPid:\t%d\nUid:\t%d\t0\t0\t0\nGid:\t0\t0\t0\t0\n", pid, uid),
	} {
		require.NoError(h, os.WriteFile(h.path(pid, name), []byte(text), 0o644))
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, name := range blocked {
		h.blocked[h.path(pid, name)] = make(chan struct{})
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

func (h *host) requireUnread(pid int) {
	h.Helper()
	_, err := h.read(pid, 0)
	require.ErrorIs(h, err, ErrUnread)
}

func TestReadsReturnWhatFilesHold(t *testing.T) {
	onHost(t, func(h *host) {
		h.add(1, 0)
		h.requireReads(1)
		_, err := h.read(2, 0)
		require.ErrorIs(h, err, os.ErrNotExist)
		require.NoError(h, h.guard.Err("command lines"))
	})
}

func TestABlockedReadDelaysOnlyItsScan(t *testing.T) {
	onHost(t, func(h *host) {
		h.add(1, 1000, "cmdline")
		h.add(2, 1000)
		began := time.Now()
		h.requireUnread(1)
		assert.Equal(h, patience, time.Since(began))
		h.requireReads(2)
		require.NoError(h, h.guard.Err("command lines"), "it may return soon")
		h.begin(suspect)
		require.EqualError(h, h.guard.Err("command lines"), "command lines of some processes cannot be read, because processes of these users block "+
			"reads of their files in /proc: user 1000 (1 process)")
		h.begin(time.Hour)
		h.requireUnread(1)
		assert.Equal(h, patience, h.guard.left, "its read has not returned")
		assert.Len(h, h.guard.missed, 1)
	})
}

func TestAnUnblockedProcessIsReadAfterAPause(t *testing.T) {
	onHost(t, func(h *host) {
		h.add(1, 1000, "cmdline")
		h.requireUnread(1)
		h.unblock(h.path(1, "cmdline"))
		synctest.Wait()
		h.begin(pause - time.Second)
		h.requireUnread(1)
		h.begin(time.Second)
		h.requireReads(1)
		assert.Empty(h, h.guard.missed)
	})
}

func TestAReadThatNeedsCPUTimeIsNotBlocked(t *testing.T) {
	onHost(t, func(h *host) {
		h.add(1, 1000)
		h.state = running
		for range 3 {
			require.NoError(h, h.readSlowly(1, 3*patience/2))
		}
		h.requireReads(1)
		assert.Empty(h, h.guard.missed)
		assert.Equal(h, patience, h.guard.left)
		require.NoError(h, h.guard.Err("command lines"))
	})
}

func TestReadsThatNeedCPUTimeDelayAScanByABound(t *testing.T) {
	onHost(t, func(h *host) {
		h.add(1, 1000)
		h.state = running
		for range 2 {
			require.NoError(h, h.readSlowly(1, maxStarved/2))
		}
		assert.False(h, h.guard.exhausted)
		h.requireUnread(1)
		assert.Empty(h, h.guard.missed, "its process does not block it")
		assert.True(h, h.guard.exhausted)
		h.begin(time.Second)
		h.requireReads(1)
	})
}

// readSlowly reads a process with a read that takes some time.
func (h *host) readSlowly(pid int, duration time.Duration) error {
	job := h.guard.Job()
	job.pid = int32(pid)
	err := h.guard.Run(int32(pid), 0, func(t *text) {
		time.Sleep(duration)
		t.read()
	})
	if err != nil {
		return err
	}
	assert.Equal(h, fmt.Sprint("process ", pid), string(job.got))
	return job.err
}

func TestAReadForWhichNoCPUIsFreeIsSlowAndNotBlocked(t *testing.T) {
	onHost(t, func(h *host) {
		h.add(1, 1000, "cmdline")
		h.add(2, 1000, "cmdline")
		h.add(3, 1000)
		h.state = running
		for pid := 1; pid <= 2; pid++ {
			h.requireUnread(pid)
			h.begin(suspect)
		}
		err := h.guard.Err("command lines")
		require.ErrorIs(h, err, ErrSlow)
		require.EqualError(h, err, "command lines of some processes were not read, because reads below /proc are slow")
		h.requireUnread(1) // its read has not returned
		h.requireReads(3)  // of the same user
		h.unblock(h.path(1, "cmdline"))
		h.unblock(h.path(2, "cmdline"))
		synctest.Wait()
		h.begin(time.Millisecond)
		h.requireReads(1)
		h.requireReads(2)
		require.NoError(h, h.guard.Err("command lines"))
	})
}

func TestAReadByAThreadWhoseStateCannotBeReadIsSlowAndNotBlocked(t *testing.T) {
	onHost(t, func(h *host) {
		h.add(1, 1000, "cmdline")
		h.state = unclear
		began := time.Now()
		h.requireUnread(1)
		assert.Equal(h, patience, time.Since(began), "it may be blocked")
		h.begin(suspect)
		require.ErrorIs(h, h.guard.Err("command lines"), ErrSlow)
		h.unblock(h.path(1, "cmdline"))
		synctest.Wait()
		h.begin(time.Millisecond)
		h.requireReads(1)
	})
}

// While the Guard waits for a CPU, it cannot see the state of the read.
func TestTimeForWhichTheGuardWaitsForACPUDoesNotCountAsBlocked(t *testing.T) {
	onHost(t, func(h *host) {
		h.add(1, 1000)
		h.guard.look = func(*thread) state {
			time.Sleep(2 * patience)
			return asleep
		}
		require.NoError(h, h.readSlowly(1, 5*patience))
		assert.Greater(h, h.guard.left, patience/2)
	})
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
	onHost(t, func(h *host) {
		h.add(1, 1000, "cmdline")
		h.requireUnread(1)
		h.mu.Lock()
		h.blocked["the file of the first process"] = h.blocked[h.path(1, "cmdline")]
		delete(h.blocked, h.path(1, "cmdline"))
		h.mu.Unlock()
		h.requireUnread(1)
		got, err := h.read(1, 7)
		require.NoError(h, err)
		assert.Equal(h, "process 1", got)
	})
}

func TestAUserCannotHaveOthersUnread(t *testing.T) {
	onHost(t, func(h *host) {
		for pid := range 10 {
			h.add(100+pid, 1000, "cmdline")
		}
		h.add(110, 1000)
		h.add(111, 1001)
		for range 3 {
			h.begin(time.Second)
			for pid := range 10 {
				h.requireUnread(100 + pid)
			}
			h.requireUnread(110) // of the same user
			h.begin(0)           // with time for another wait
			h.requireReads(111)
			assert.Len(h, h.guard.missed, maxOfUser)
		}
		assert.ErrorContains(h, h.guard.Err("command lines"), ": user 1000 (2 processes)")
	})
}

// The processes block the reads of their users, too.
func TestAKnownUserCannotHaveOthersUnread(t *testing.T) {
	onHost(t, func(h *host) {
		read := func(pid, uid int) error {
			h.guard.Job().pid = int32(pid)
			return h.guard.RunOf(uint32(uid), int32(pid), 0, (*text).read)
		}
		for pid := range 40 {
			h.add(100+pid, 1000, "cmdline", "status")
			h.begin(time.Second)
			require.ErrorIs(h, read(100+pid, 1000), ErrUnread)
		}
		assert.Len(h, h.guard.missed, maxOfUser)
		h.add(200, 1001)
		require.NoError(h, read(200, 1001))
	})
}

// Each read blocks for less than the deadline, so that none is missed.
func TestAUserCannotUseUpTheTimeOfAScan(t *testing.T) {
	onHost(t, func(h *host) {
		for pid := range 30 {
			h.add(100+pid, 1000)
		}
		for pid := range 20 {
			h.add(200+pid, 1001)
		}
		for pid := range 30 {
			h.guard.Job().pid = int32(100 + pid)
			err := h.guard.Run(int32(100+pid), 0, func(t *text) {
				time.Sleep(13 * time.Millisecond)
				t.read()
			})
			if pid > 10 {
				require.ErrorIs(h, err, ErrUnread)
			}
		}
		for pid := range 20 {
			h.requireReads(200 + pid)
		}
		assert.True(h, h.guard.exhausted)
	})
}

func TestManyUsersCannotDelayAScan(t *testing.T) {
	onHost(t, func(h *host) {
		for pid := range 100 {
			h.add(100+pid, 1000+pid, "cmdline")
		}
		began := time.Now()
		for pid := range 100 {
			h.requireUnread(100 + pid)
		}
		assert.LessOrEqual(h, time.Since(began), 2*patience+2*haste)
		for range 20 {
			h.begin(time.Second)
			for pid := range 100 {
				h.requireUnread(100 + pid)
			}
		}
		assert.Equal(h, patience, h.guard.left, "the last scan waited for nothing")
		assert.LessOrEqual(h, len(h.guard.missed), maxMissed)
		assert.ErrorContains(h, h.guard.Err("command lines"), " more")
	})
}

func TestAfterAWaitAQuickReadSucceeds(t *testing.T) {
	onHost(t, func(h *host) {
		h.add(1, 1000, "cmdline")
		h.add(2, 1001)
		h.requireUnread(1)
		assert.Less(h, h.guard.left, haste)
		h.requireReads(2)
		h.guard.left = -2 * patience
		h.requireUnread(2)
		h.begin(time.Second)
		h.requireReads(2)
	})
}

func TestAProcessWhoseUserCannotBeReadIsNotRead(t *testing.T) {
	onHost(t, func(h *host) {
		h.add(1, 1000, "cmdline", "status")
		h.add(2, 1000)
		h.requireUnread(1)
		assert.Len(h, h.guard.missed, 1)
		h.begin(time.Second)
		h.requireReads(2)
		assert.ErrorContains(h, h.guard.Err("command lines"), ": unknown user (1 process)")
		h.unblock(h.path(1, "cmdline"))
		synctest.Wait()
		h.begin(2 * pause)
		assert.Len(h, h.guard.missed, 1, "the read of its user has not returned")
	})
}

func TestAProcessThatBlocksTheReadsOfTwoFilesCountsOnce(t *testing.T) {
	onHost(t, func(h *host) {
		for pid := range maxMissed - 1 {
			h.add(100+pid, 1000+pid, "cmdline", "status")
			h.begin(time.Second)
			h.requireUnread(100 + pid)
		}
		assert.Len(h, h.guard.missed, maxMissed-1)
		h.add(1, 1)
		h.begin(time.Second)
		h.requireReads(1)
	})
}

func TestFilesThatNoProcessBlocksAreReadByTheCaller(t *testing.T) {
	onHost(t, func(h *host) {
		h.guard.options.Everywhere = false
		h.add(1, 1000)
		h.requireReads(1)
		assert.Nil(h, h.guard.idle.requests, "no goroutine was started")
		require.NoError(h, os.RemoveAll(filepath.Join(h.root, "proc")))
		require.NoError(h, os.Symlink("/proc", filepath.Join(h.root, "proc")))
		require.NoError(h, h.guard.Close())
		h.guard.found = false
		_, err := h.read(os.Getpid(), 0)
		require.NoError(h, err)
		assert.NotNil(h, h.guard.idle.requests)
	})
}

func TestTheRealUserIDIsRead(t *testing.T) {
	onHost(t, func(h *host) {
		h.add(1, uint32(4294967294))
		u, missed := h.guard.userOf(1)
		assert.Nil(h, missed)
		assert.Equal(h, user(4294967294), u)
		u, missed = h.guard.userOf(2)
		assert.Nil(h, missed, "it has ended")
		assert.Equal(h, noUser, u)
	})
}

func TestAReadAllocatesNothing(t *testing.T) {
	root := t.TempDir()
	require.NoError(t, os.MkdirAll(filepath.Join(root, "proc/1"), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(root, "proc/1/cmdline"), []byte("process 1"), 0o644))
	guard := newGuard(root)
	defer func() { assert.NoError(t, guard.Close()) }()
	read := func() {
		guard.Begin(time.Unix(1, 0))
		guard.Job().pid = 1
		_ = guard.Run(1, 0, (*text).read)
	}
	assert.Zero(t, testing.AllocsPerRun(100, read))
	assert.Equal(t, "process 1", string(guard.Job().got))
}

func BenchmarkRun(b *testing.B) {
	pid := int32(os.Getpid())
	job := func() *text { return &text{proc: kernfs.New("/proc"), buf: make([]byte, 4096), pid: pid} }
	b.Run("guarded", func(b *testing.B) {
		g := New(Options[*text]{Root: "/", New: job})
		defer func() { assert.NoError(b, g.Close()) }()
		b.ReportAllocs()
		for b.Loop() {
			g.left, g.starved = patience, 0
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
	onHost(t, func(h *host) {
		h.add(1, 1000)
		for range 2 { // one scan alone is not reported
			require.NoError(h, h.guard.Err("command lines"))
			h.begin(time.Second)
			h.guard.left = -2 * patience // the scan has waited for others
			h.requireUnread(1)
		}
		require.EqualError(h, h.guard.Err("command lines"), "command lines of some processes were not read, because reads below /proc are slow")
		h.begin(time.Second)
		h.requireReads(1)
		require.NoError(h, h.guard.Err("command lines"))
	})
}
