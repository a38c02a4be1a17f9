// SPDX-License-Identifier: Apache-2.0

//go:build linux

package kernfs

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
)

// text is a Job that reads the file cmdline.
type text struct {
	proc *Dir
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
		h := &host{T: t, root: t.TempDir(), now: time.Unix(1000, 0), state: inRead, blocked: map[string]chan struct{}{}}
		h.guard = h.newGuard(nil)
		h.begin(0) // the first scan, which waits longer
		h.begin(0)
		restore := InjectFaults(func(path string, got []byte, err error) ([]byte, error) {
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

// newGuard returns a Guard of command lines.
func (h *host) newGuard(waits *Waits) *Guard[*text] {
	g := guardTexts(h.root, waits)
	g.look = func(*thread) state { return h.state }
	return g
}

func guardTexts(root string, waits *Waits) *Guard[*text] {
	return NewGuard(GuardOptions[*text]{
		Root: root, Waits: waits, Everywhere: true,
		New: func() *text { return &text{proc: New(filepath.Join(root, "proc")), buf: make([]byte, 64)} },
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

// process returns the subject of a process whose user is unknown.
func process(pid int) Subject { return Subject{PID: int32(pid)} }

// read returns the command line of a process.
func (h *host) read(of Subject) (string, error) {
	job := h.guard.Job()
	job.pid = of.PID
	if err := h.guard.Do(of, (*text).read); err != nil {
		return "", err
	}
	return string(job.got), job.err
}

func (h *host) requireReads(pid int) {
	h.Helper()
	got, err := h.read(process(pid))
	require.NoError(h, err)
	require.Equal(h, fmt.Sprint("process ", pid), got)
}

func (h *host) requireUnread(pid int) {
	h.Helper()
	_, err := h.read(process(pid))
	require.ErrorIs(h, err, ErrUnread)
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
		assert.Equal(h, patience, h.guard.waits.left, "its read has not returned")
		assert.Len(h, h.guard.waits.missed, 1)
	})
}

func TestAnUnblockedProcessIsReadAfterAPause(t *testing.T) {
	onHost(t, func(h *host) {
		h.add(1, 1000, "cmdline")
		h.requireUnread(1)
		h.unblock(h.path(1, "cmdline"))
		synctest.Wait()
		h.begin(minPause - time.Second)
		h.requireUnread(1)
		h.begin(time.Second)
		h.requireReads(1)
		assert.Empty(h, h.guard.waits.missed)

		h.add(2, 1000, "cmdline")
		h.requireUnread(2)
		h.unblock(h.path(2, "cmdline"))
		synctest.Wait()
		h.begin(-time.Second) // the clock was set back
		h.requireReads(2)
	})
}

func TestReadsThatNeedCPUTimeDelayAScanByABound(t *testing.T) {
	onHost(t, func(h *host) {
		h.add(1, 1000)
		h.state = running
		for range 2 {
			require.NoError(h, h.readSlowly(1, maxStarved/2))
		}
		assert.Zero(h, h.guard.refused)
		assert.Equal(h, patience, h.guard.waits.left)
		require.NoError(h, h.guard.Err("command lines"))
		h.requireUnread(1)
		assert.Empty(h, h.guard.waits.missed, "its process does not block it")
		assert.Equal(h, h.guard.waits.scans, h.guard.refused)
		h.begin(time.Second)
		h.requireReads(1)
	})
}

func TestAScanWithoutTimeDoesNotFindTheUserOfABlockedRead(t *testing.T) {
	onHost(t, func(h *host) {
		h.add(1, 1000, "cmdline", "status")
		looks := 0
		h.guard.look = func(*thread) state {
			if looks++; looks <= 2 {
				return running
			}
			return inRead
		}
		h.guard.waits.starved = maxStarved - time.Millisecond
		h.requireUnread(1)
		assert.Len(h, h.guard.waits.missed, 1)
	})
}

// readSlowly reads a process with a read that takes some time.
func (h *host) readSlowly(pid int, duration time.Duration) error {
	job := h.guard.Job()
	job.pid = int32(pid)
	err := h.guard.Do(process(pid), func(t *text) {
		time.Sleep(duration)
		t.read()
	})
	if err != nil {
		return err
	}
	assert.Equal(h, fmt.Sprint("process ", pid), string(job.got))
	return job.err
}

// Either no CPU is free for the thread that reads, or the state of the thread cannot be read.
func TestAReadThatMayNotBeBlockedIsSlow(t *testing.T) {
	for _, state := range []state{running, unclear} {
		onHost(t, func(h *host) {
			h.add(1, 1000, "cmdline")
			h.add(2, 1000)
			h.state = state
			began := time.Now()
			h.requireUnread(1)
			assert.Equal(h, state == unclear, time.Since(began) == patience, "the thread may be blocked")
			h.begin(suspect)
			require.ErrorIs(h, h.guard.Err("command lines"), ErrSlow)
			h.requireUnread(1) // its read has not returned
			h.requireReads(2)  // of the same user
			h.unblock(h.path(1, "cmdline"))
			synctest.Wait()
			h.begin(time.Millisecond)
			h.requireReads(1)
			require.NoError(h, h.guard.Err("command lines"))
		})
	}
}

// While the Guard waits for a CPU, it cannot see the state of the read.
func TestTimeForWhichTheGuardWaitsForACPUDoesNotCountAsBlocked(t *testing.T) {
	onHost(t, func(h *host) {
		h.add(1, 1000)
		h.guard.look = func(*thread) state {
			time.Sleep(2 * patience)
			return inRead
		}
		require.NoError(h, h.readSlowly(1, 5*patience))
		assert.Greater(h, h.guard.waits.left, patience/2)
	})
}

// No collection waits for the first scan.
func TestTheFirstScanWaitsLonger(t *testing.T) {
	w := NewWaits()
	assert.Equal(t, firstPatience, w.left, "reads before it")
	w.Begin(time.Unix(1, 0))
	assert.Equal(t, firstPatience, w.left)
	assert.Equal(t, -firstPatience, w.starved)
	w.Begin(time.Unix(2, 0))
	assert.Equal(t, patience, w.left)
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
		got, err := h.read(Subject{PID: 1, Start: 7 * time.Second})
		require.NoError(h, err)
		assert.Equal(h, "process 1", got)
	})
}

func TestAUserCannotHaveOthersUnread(t *testing.T) {
	for name, hasUID := range map[string]bool{"the user is read": false, "the user is known": true} {
		t.Run(name, func(t *testing.T) {
			onHost(t, func(h *host) {
				of := func(pid int, uid uint32) Subject {
					return Subject{PID: int32(pid), UID: uid, HasUID: hasUID}
				}
				for pid := range 20 {
					h.add(100+pid, 1000, "cmdline")
				}
				h.add(120, 1000)
				h.add(121, 1001)
				for range 10 {
					h.begin(time.Second)
					for pid := range 20 {
						_, err := h.read(of(100+pid, 1000))
						require.ErrorIs(h, err, ErrUnread)
					}
					_, err := h.read(of(121, 1001))
					require.NoError(h, err)
				}
				_, err := h.read(of(120, 1000))
				require.ErrorIs(h, err, ErrUnread)
				assert.Len(h, h.guard.waits.missed, maxOfUser)
				h.begin(suspect)
				assert.ErrorContains(h, h.guard.Err("command lines"), ": user 1000 (8 processes)")
			})
		})
	}
}

// Any user can lock the directory of a process.
func TestALookupThatIsBlockedCountsAgainstNoUser(t *testing.T) {
	onHost(t, func(h *host) {
		h.state = inLookup
		for pid := range maxOfUser + 1 {
			h.add(100+pid, 1000, "cmdline")
			h.begin(time.Second)
			_, err := h.read(Subject{PID: int32(100 + pid), UID: 1000, HasUID: true})
			require.ErrorIs(h, err, ErrUnread)
		}
		h.add(200, 1000)
		h.begin(suspect)
		h.requireReads(200)
		assert.ErrorContains(h, h.guard.Err("command lines"), ": unknown user (9 processes)")
	})
}

func TestGuardsShareTheTimeAndTheThreadsOfAScan(t *testing.T) {
	onHost(t, func(h *host) {
		own := h.guard
		waits, guards := NewWaits(), make([]*Guard[*text], 6)
		for i := range guards {
			guards[i] = h.newGuard(waits)
			for pid := range 10 {
				h.add(1000*(i+1)+pid, 1000*(i+1)+pid, "cmdline")
			}
		}
		for scan := range 10 {
			h.now = h.now.Add(time.Second)
			waits.Begin(h.now)
			began := time.Now()
			for i, g := range guards {
				h.guard = g
				left := waits.left
				h.begin(0)
				assert.Equal(h, left, waits.left, "its Waits is shared")
				for pid := range 10 {
					h.requireUnread(1000*(i+1) + pid)
				}
			}
			if scan > 0 {
				assert.LessOrEqual(h, time.Since(began), 2*patience+2*haste)
			}
		}
		assert.Len(h, waits.missed, maxMissed)
		assert.Equal(h, patience, waits.left, "the last scan waited for no read")
		for _, g := range guards {
			require.NoError(h, g.Close())
		}
		h.guard = own
	})
}

func TestAProcessThatBlocksTheReadsOfAGuardIsReadByAnother(t *testing.T) {
	onHost(t, func(h *host) {
		for pid := range 2 * maxOfGuard {
			h.add(100+pid, 1000+pid, "cmdline")
		}
		for range 2 * maxOfGuard {
			h.begin(time.Second)
			for pid := range 2 * maxOfGuard {
				h.requireUnread(100 + pid)
			}
		}
		assert.Len(h, h.guard.waits.missed, maxOfGuard)
		other := h.newGuard(h.guard.waits)
		defer func() { assert.NoError(h, other.Close()) }()
		for pid := range 2 * maxOfGuard {
			require.NoError(h, other.Do(process(100+pid), func(*text) {}))
		}
		require.NoError(h, other.Err("CPU times"))
		require.Error(h, h.guard.Err("command lines"))
	})
}

func TestAUserMayBlockAScanThatHasNotWaited(t *testing.T) {
	onHost(t, func(h *host) {
		h.add(1, 1000)
		for range 2 {
			err := h.guard.Do(Subject{PID: 1, UID: 1000, HasUID: true}, func(*text) { time.Sleep(2 * haste) })
			require.NoError(h, err)
		}
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
			err := h.guard.Do(process(100+pid), func(t *text) {
				time.Sleep(13 * time.Millisecond)
				t.read()
			})
			if pid > 10 { // the user is read from then on
				require.ErrorIs(h, err, ErrUnread)
			}
		}
		for pid := range 20 {
			h.requireReads(200 + pid)
		}
		assert.Equal(h, h.guard.waits.scans, h.guard.refused)
		h.begin(time.Second)
		h.guard.waits.left = patience / 3
		h.requireReads(101)
	})
}

func TestAfterAWaitAQuickReadSucceeds(t *testing.T) {
	onHost(t, func(h *host) {
		h.add(1, 1000, "cmdline")
		h.add(2, 1001)
		h.requireUnread(1)
		assert.Less(h, h.guard.waits.left, haste)
		h.requireReads(2)
	})
}

func TestAProcessWhoseUserCannotBeReadIsNotRead(t *testing.T) {
	onHost(t, func(h *host) {
		h.add(1, 1000, "cmdline", "status")
		h.add(2, 1000)
		h.requireUnread(1)
		assert.Len(h, h.guard.waits.missed, 2, "a thread for each file")
		h.begin(time.Second)
		h.requireReads(2)
		assert.ErrorContains(h, h.guard.Err("command lines"), ": unknown user (1 process)")
		h.unblock(h.path(1, "cmdline"))
		synctest.Wait()
		h.begin(2 * minPause)
		h.requireUnread(1)
		assert.Len(h, h.guard.waits.missed, 1, "the read of its user has not returned")
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
		_, err := h.read(process(os.Getpid()))
		require.NoError(h, err)
		assert.NotNil(h, h.guard.idle.requests)
	})
}

func TestTheRealUserIDIsRead(t *testing.T) {
	onHost(t, func(h *host) {
		h.add(1, uint32(4294967294))
		u, ok := h.guard.userOf(process(1))
		assert.True(h, ok)
		assert.Equal(h, user(4294967294), u)
		u, ok = h.guard.userOf(process(2))
		assert.True(h, ok, "it has ended")
		assert.Equal(h, noUser, u)
	})
}

func TestAReadAllocatesNothing(t *testing.T) {
	root := t.TempDir()
	require.NoError(t, os.MkdirAll(filepath.Join(root, "proc/1"), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(root, "proc/1/cmdline"), []byte("process 1"), 0o644))
	guard := guardTexts(root, nil)
	defer func() { assert.NoError(t, guard.Close()) }()
	read := func() {
		guard.Begin(time.Unix(1, 0))
		guard.Job().pid = 1
		_ = guard.Do(process(1), (*text).read)
	}
	assert.Zero(t, testing.AllocsPerRun(100, read))
	assert.Equal(t, "process 1", string(guard.Job().got))
}

func TestReadsThatAreOnlySlowAreReported(t *testing.T) {
	onHost(t, func(h *host) {
		h.add(1, 1000)
		for range 2 { // one scan alone is not reported
			require.NoError(h, h.guard.Err("command lines"))
			h.begin(time.Second)
			h.guard.waits.left = -2 * patience // the scan has waited for others
			h.requireUnread(1)
		}
		require.EqualError(h, h.guard.Err("command lines"), "command lines of some processes were not read, because reads below /proc are slow")
		h.begin(time.Second)
		h.requireReads(1)
		require.NoError(h, h.guard.Err("command lines"))
	})
}
