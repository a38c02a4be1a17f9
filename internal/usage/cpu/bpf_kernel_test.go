// SPDX-License-Identifier: Apache-2.0

//go:build linux && (amd64 || arm64)

package cpu

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/energyreceiver/energyreceiver/internal/units"
	"github.com/energyreceiver/energyreceiver/internal/usage/cpu/tasks"
	"github.com/energyreceiver/energyreceiver/internal/usage/proc"
)

// These tests measure processes of the kernel that they run on.

const us = units.CPUTime(time.Microsecond)

// schedulerTick is the most CPU time of a running process that the kernel's sums lack if CONFIG_HZ
// is 100.
const schedulerTick = 10 * ms

// observed is this kernel, measured with BPF.
type observed struct {
	testing.TB
	source *BPF
	table  proc.Table
	scans  int

	billed  map[proc.ID]units.CPUTime // Used plus LastSlice
	inside  map[uint64]units.CPUTime  // the same by cgroup, with charges of processes without a row
	lost    units.CPUTime
	partial bool // all scans but some list the processes that ran
}

// observe makes the first scan. It skips the test if this machine cannot run the programs.
func observe(t testing.TB) *observed {
	t.Helper()
	o := &observed{
		TB: t, source: openHere(t),
		billed: map[proc.ID]units.CPUTime{}, inside: map[uint64]units.CPUTime{},
	}
	if ofWhoRan {
		o.partial = true
		o.source.attachHook(t)
	}
	o.scan()
	return o
}

// ofWhoRan makes observe attach the hook on context switches.
var ofWhoRan bool

// attachHook attaches the hook on context switches for good. It skips the test if this kernel lacks
// what the hook needs.
func (b *BPF) attachHook(t testing.TB) {
	t.Helper()
	v, err := b.hook.open()
	if b.hook.refused = err; err != nil {
		b.counting.check(&b.hook)
		v, err = b.hook.open()
	}
	skipUnlessPossible(t, err)
	b.hook.visitor, b.hook.changed, b.hook.most = v, math.MaxInt64, ranRoom
}

func openHere(t testing.TB) *BPF {
	t.Helper()
	return openHereWith(t, Options{})
}

func openHereWith(t testing.TB, o Options) *BPF {
	t.Helper()
	o.Root = "/"
	source, err := OpenBPF(o)
	skipUnlessPossible(t, err)
	t.Cleanup(func() { assert.NoError(t, source.Close()) })
	return source
}

// skipUnlessPossible skips a test if the error says that this machine lacks something, and fails it
// for any other error.
func skipUnlessPossible(t testing.TB, err error) {
	t.Helper()
	switch _, btf := os.Stat("/sys/kernel/btf/vmlinux"); {
	case err == nil:
	case errors.Is(err, unix.EPERM) || errors.Is(err, unix.EACCES):
		t.Skip("needs root, or CAP_BPF and CAP_PERFMON:", err)
	case errors.Is(btf, fs.ErrNotExist):
		t.Skip("the kernel has no BTF:", err)
	case errors.Is(err, ebpf.ErrNotSupported):
		t.Skip("the kernel lacks what the programs need:", err)
	default:
		require.NoError(t, err)
	}
}

var tryScan = sync.OnceValue(func() error {
	rescan, err := openScan(tasks.Options{})
	if err != nil {
		return err
	}
	return rescan.Close()
})

// bothLists runs a test with each way to list processes, and with scans of those that ran.
func bothLists(t *testing.T, test func(t *testing.T)) {
	t.Run("scan", func(t *testing.T) {
		skipUnlessPossible(t, tryScan())
		test(t)
	})
	t.Run("stream", func(t *testing.T) {
		refuse(t, &openScan, errNoKfunc)
		test(t)
	})
	t.Run("ran", func(t *testing.T) {
		skipUnlessPossible(t, tryScan())
		ofWhoRan = true
		t.Cleanup(func() { ofWhoRan = false })
		test(t)
	})
}

var errNoKfunc = fmt.Errorf("load the task scan: %w", ebpf.ErrNotSupported)

// replace sets a variable for the time of a test.
func replace[T any](t testing.TB, variable *T, with T) {
	was := *variable
	*variable = with
	t.Cleanup(func() { *variable = was })
}

// refuse makes one of the functions that open programs fail.
func refuse[T any](t testing.TB, open *func(tasks.Options) (T, error), err error) {
	replace(t, open, func(tasks.Options) (T, error) { var none T; return none, err })
}

func (o *observed) scan() {
	o.Helper()
	all := !o.partial || o.scans%8 == 0
	require.NoError(o, scanFor(o.source, &o.table, Request{Want: Want{All: all}}))
	o.scans++
	t := &o.table
	o.lost += t.Unseen.Untraced
	for _, slot := range t.Active {
		p := &t.Rows[slot]
		o.billed[p.ID] += p.Used
		o.inside[p.Cgroup] += p.Used
	}
	for i := range t.Ended {
		e := &t.Ended[i]
		o.billed[e.ID] += e.LastSlice
		o.inside[e.Cgroup] += e.LastSlice
	}
	for i := range t.Charges {
		if c := &t.Charges[i]; c.Slot >= 0 {
			o.inside[t.Rows[c.Slot].Cgroup] += c.CPU
		}
	}
}

// until scans until a condition holds. It must hold eventually, however slow the machine is.
func (o *observed) until(what string, holds func() bool) {
	o.Helper()
	for end := time.Now().Add(time.Minute); ; time.Sleep(5 * time.Millisecond) {
		if o.scan(); holds() {
			return
		}
		if time.Now().After(end) {
			require.FailNow(o, "not within a minute: "+what)
		}
	}
}

// row returns the row of a running process, which must be the only one.
func (o *observed) row(pid int) *proc.Process {
	var row *proc.Process
	for p := range o.table.All() {
		if p.PID == int32(pid) && !p.Is(proc.Zombie) {
			require.Nil(o, row, "process %d has two rows", pid)
			row = p
		}
	}
	return row
}

// spin uses CPU time in one thread. Reading the thread's CPU time updates the kernel's sums, whose
// delay the tests are about. The last quarter is therefore as many loops as that much time took
// before.
func spin(d time.Duration) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	few := int(d / 50)
	first := threadTime()
	turns, used := 0, time.Duration(0)
	for used < d/4*3 {
		turn(few)
		turns += few
		used = threadTime() - first
	}
	turn(int(float64(turns) * max(0, float64(d-used)) / float64(used)))
}

func turn(n int) {
	x := 0
	for i := range n {
		x ^= i
	}
	runtime.KeepAlive(x)
}

func threadTime() time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t); err != nil {
		panic(err)
	}
	return time.Duration(t.Nano())
}

func waited(cmd *exec.Cmd) units.CPUTime {
	return units.CPUTime(cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime())
}

// burnerDir is the directory of the compiled test program.
var burnerDir string

var buildBurner = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "burner")
	if err != nil {
		return "", err
	}
	burnerDir = dir
	path := filepath.Join(dir, "burn")
	out, err := exec.Command("gcc", "-O1", "-static", "-pthread", "-o", path, "testdata/burn.c").CombinedOutput()
	if err != nil {
		return dir, fmt.Errorf("gcc: %w: %s", err, out)
	}
	return path, nil
})

// burner is a running testdata/burn.c.
type burner struct {
	testing.TB
	*exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
}

// startBurner starts testdata/burn.c, in a cgroup if one is given.
func startBurner(t testing.TB, group *realCgroup, acts ...string) *burner {
	t.Helper()
	if _, err := exec.LookPath("gcc"); err != nil {
		t.Skip("there is no gcc to build testdata/burn.c with")
	}
	path, err := buildBurner()
	require.NoError(t, err)
	b := &burner{TB: t, Cmd: exec.Command(path, acts...)}
	if group != nil {
		b.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: int(group.dir.Fd())}
	}
	in, err := b.StdinPipe()
	require.NoError(t, err)
	out, err := b.StdoutPipe()
	require.NoError(t, err)
	b.in, b.out = in, bufio.NewReader(out)
	require.NoError(t, b.Start())
	t.Cleanup(func() {
		if b.ProcessState == nil {
			_ = b.Process.Kill()
			_ = b.Wait()
		}
	})
	return b
}

// said waits for the program to report its progress.
func (b *burner) said() {
	b.Helper()
	_, err := b.out.ReadString('\n')
	require.NoError(b, err)
}

// resume lets the program continue from where it waits.
func (b *burner) resume() {
	b.Helper()
	_, err := b.in.Write([]byte{1})
	require.NoError(b, err)
}

// end lets the program continue from where it waits, and waits for its end.
func (b *burner) end() units.CPUTime {
	b.Helper()
	require.NoError(b, b.in.Close())
	require.NoError(b, b.Wait())
	return waited(b.Cmd)
}

// realCgroup is a cgroup of the v2 hierarchy. Its cpu.stat is an independent measurement of CPU
// time.
type realCgroup struct {
	testing.TB
	dir *os.File
	id  uint64
}

// ownCgroupDir returns this process's directory in the v2 hierarchy.
func ownCgroupDir(t testing.TB) string {
	t.Helper()
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	require.NoError(t, err)
	own, err := os.ReadFile("/proc/self/cgroup")
	require.NoError(t, err)
	for line := range strings.Lines(string(mounts)) {
		before, after, _ := strings.Cut(line, " - ")
		if f := strings.Fields(before); strings.HasPrefix(after, "cgroup2 ") && len(f) > 4 {
			for line := range strings.Lines(string(own)) {
				if path, ok := strings.CutPrefix(strings.TrimSpace(line), "0::"); ok {
					return filepath.Join(f[4], path)
				}
			}
		}
	}
	t.Skip("no cgroup v2 hierarchy is mounted")
	return ""
}

func newCgroup(t testing.TB) *realCgroup {
	t.Helper()
	path, err := os.MkdirTemp(ownCgroupDir(t), "energy-test-")
	if err != nil {
		t.Skip("cgroups cannot be made here: ", err)
	}
	dir, err := os.Open(path)
	require.NoError(t, err)
	t.Cleanup(func() {
		assert.NoError(t, dir.Close())
		assert.Eventually(t, func() bool { return os.Remove(path) == nil }, 10*time.Second, 5*time.Millisecond, "its processes end")
	})
	info, err := dir.Stat()
	require.NoError(t, err)
	return &realCgroup{TB: t, dir: dir, id: info.Sys().(*syscall.Stat_t).Ino}
}

// newCgroupWithARow returns a cgroup with one waiting process. Short-lived processes of the cgroup
// are charged to the cgroup.
func newCgroupWithARow(t testing.TB) (*realCgroup, *burner) {
	t.Helper()
	group := newCgroup(t)
	anchor := startBurner(t, group, "say", "wait")
	anchor.said()
	return group, anchor
}

// used returns the CPU time of everything that ran in the cgroup, in microseconds.
func (c *realCgroup) used() units.CPUTime {
	c.Helper()
	text, err := os.ReadFile(filepath.Join(c.dir.Name(), "cpu.stat"))
	require.NoError(c, err)
	rest, ok := strings.CutPrefix(string(text), "usage_usec ")
	require.True(c, ok, "%q", text)
	line, _, _ := strings.Cut(rest, "\n")
	n, err := strconv.ParseUint(line, 10, 64)
	require.NoError(c, err)
	return units.CPUTime(n) * us
}

// unlessMissed makes up to ten attempts, until one finds everything. Linux (6.18 at least) misses
// calls of a tracepoint for some milliseconds after another program has left it, and tests of other
// packages come and go at the same time. Time that is counted twice is an error at once.
func unlessMissed(t *testing.T, attempt func(t *testing.T) (missing string)) {
	t.Helper()
	for range 9 {
		missing := attempt(t)
		if missing == "" {
			return
		}
		t.Log("once more:", missing)
	}
	assert.Empty(t, attempt(t), "missing ten times")
}

// soon scans until a condition holds that may never hold, some hundreds of times.
func (o *observed) soon(holds func() bool) bool {
	o.Helper()
	for range 200 {
		if o.scan(); holds() {
			return true
		}
		time.Sleep(5 * time.Millisecond)
	}
	return false
}

// The time of a process with one thread is exact. If a process has more, the time of a thread that
// is freed after the first one comes from the kernel's sum, which lacks the time since its last
// update. That is longer on a busy CPU.
func TestBPFFindsTheTimeOfACgroupHoweverItsProcessesLive(t *testing.T) {
	const exact, threads = 0.99998, 0.7
	cases := map[string]struct {
		least float64
		acts  []string
	}{
		"one thread":                              {exact, []string{"burn:50"}},
		"threads that are waited for":             {threads, []string{"threads:200:300"}},
		"threads whose end wakes no process":      {threads, []string{"loose:150:300"}},
		"many threads at once":                    {threads, []string{"crowd:60:3000"}},
		"the first thread leaves":                 {threads, []string{"burn:20", "leave:30", "threads:10:1000"}},
		"another thread executes a program":       {threads, []string{"burn:20", "exec:30", "burn:10"}},
		"one executes, and again from a thread":   {threads, []string{"threads:5:2000", "exec:10", "threads:5:2000", "exec:10", "burn:5"}},
		"short-lived children":                    {exact, []string{"fork:200:500"}},
		"orphans":                                 {exact, []string{"orphan:100:500"}},
		"children whose end its parent ignores":   {exact, []string{"ignore", "fork:100:500"}},
		"the first thread leaves, others execute": {threads, []string{"leave:10", "exec:10", "threads:5:1000", "fork:20:1000"}},
	}
	bothLists(t, func(t *testing.T) {
		o := observe(t)
		for name, c := range cases {
			t.Run(name, func(t *testing.T) {
				o.TB = t
				unlessMissed(t, func(t *testing.T) string {
					group, anchor := newCgroupWithARow(t)
					o.scan()
					worker := startBurner(t, group, c.acts...)
					done := make(chan error, 1)
					go func() { done <- worker.Wait() }()
					o.until("it ends", func() bool {
						select {
						case err := <-done:
							require.NoError(t, err)
							return true
						default:
							return false
						}
					})
					found := o.soon(func() bool { return float64(o.inside[group.id]) >= c.least*float64(group.used()) })
					for range 3 { // no time is found again
						o.scan()
					}
					off := time.Duration(o.inside[group.id]) - time.Duration(group.used())
					require.LessOrEqual(t, off, 2*time.Microsecond)
					assert.Zero(t, o.lost)
					t.Logf("%v by cgroup, found %v", time.Duration(group.used()), off)
					anchor.end()
					if !found {
						return off.String()
					}
					return ""
				})
			})
		}
	})
}

// otherThanBPF returns the name of the source that takes the place of BPF.
func otherThanBPF() string {
	if checkClocks("/") != nil {
		return "procfs"
	}
	return "clocks"
}

// Errors of a kernel that does not allow BPF, has no types of itself (BTF), or whose verifier
// rejects a program.
func TestClocksAreReadIfTheKernelRefusesBPFAndOneLineIsLogged(t *testing.T) {
	for name, why := range map[string]error{
		"locked down":       fmt.Errorf("load the task scan: %w", unix.EPERM),
		"no types":          fmt.Errorf("load the task scan: no BTF found for kernel version 5.4.0: %w", ebpf.ErrNotSupported),
		"no BPF at all":     unix.ENOSYS,
		"verifier":          &ebpf.VerifierError{Cause: unix.EACCES, Log: []string{"0: R1=ctx()", "processed 1 insns"}},
		"map is not mapped": fmt.Errorf("map the task scan's results: %w", unix.ENOMEM),
	} {
		t.Run(name, func(t *testing.T) {
			refuse(t, &openScan, why)
			refuse(t, &openStream, why)
			source, rejected, err := Open(Options{Kind: Auto, Root: "/"})
			require.NoError(t, err)
			defer func() { require.NoError(t, source.Close()) }()
			assert.Equal(t, otherThanBPF(), source.Traits().Name)
			require.ErrorIs(t, rejected, why)
			assert.NotContains(t, rejected.Error(), "\n")
			_, _, err = Open(Options{Kind: KindBPF, Root: "/"})
			require.ErrorIs(t, err, why)
		})
	}
}
