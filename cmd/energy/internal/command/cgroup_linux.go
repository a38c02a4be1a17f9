// SPDX-License-Identifier: Apache-2.0

package command

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"

	"github.com/energyreceiver/energyreceiver/internal/kernfs"
	"github.com/energyreceiver/energyreceiver/internal/units"
)

// prefix is how the names of groups' cgroups begin. This process's ID and a number follow.
const prefix = "energy-measure-"

var made atomic.Uint64 // number of groups

// cgroup is a cgroup that was made for a group, a child of this process's own.
//
// The command runs in a leaf below it. In version 2 only a cgroup without processes can have
// children with controllers (cgroup-v2.rst, No Internal Process Constraint), and container runtimes
// make such children.
type cgroup struct {
	*hierarchy
	parent, dir, leaf string
	named             string   // the path of dir in the hierarchy
	held              *os.File // dir, locked: it is in use
	counter           kernfs.File
	buf               []byte
}

// hierarchy describes one kind of cgroup hierarchy.
type hierarchy struct {
	name    Method
	isMount func(*procfs.MountInfo) bool
	isOwn   func(*procfs.Cgroup) bool
	file    string // with the CPU time in a line
	prefix  string // of that line
	unit    units.CPUTime
}

var (
	// A cpu.stat has usage_usec without an enabled controller, too (cgroup-v2.rst, cpu.stat).
	unified = hierarchy{
		name:    CgroupV2,
		isMount: func(m *procfs.MountInfo) bool { return m.FSType == "cgroup2" },
		isOwn:   func(c *procfs.Cgroup) bool { return c.HierarchyID == 0 },
		file:    "cpu.stat", prefix: "usage_usec ", unit: units.CPUTime(time.Microsecond),
	}
	cpuacct = hierarchy{
		name: CgroupV1,
		isMount: func(m *procfs.MountInfo) bool {
			_, ok := m.SuperOptions["cpuacct"]
			return ok && m.FSType == "cgroup"
		},
		isOwn: func(c *procfs.Cgroup) bool { return slices.Contains(c.Controllers, "cpuacct") },
		file:  "cpuacct.usage", unit: 1,
	}
)

// own returns the directory of this process's own cgroup, and its path in the hierarchy.
func (h *hierarchy) own(root string) (dir, path string, err error) {
	proc, err := procfs.NewFS(filepath.Join(root, "proc"))
	if err != nil {
		return "", "", err
	}
	self, err := proc.Self()
	if err != nil {
		return "", "", err
	}
	cgroups, err := self.Cgroups()
	mounts, failed := self.MountInfo()
	if err := errors.Join(err, failed); err != nil {
		return "", "", err
	}
	in := slices.IndexFunc(cgroups, func(c procfs.Cgroup) bool { return h.isOwn(&c) })
	for _, m := range mounts {
		if in < 0 || !h.isMount(m) {
			continue
		}
		if below, ok := pathBelow(cgroups[in].Path, m.Root); ok {
			return filepath.Join(m.MountPoint, below), cgroups[in].Path, nil
		}
	}
	return "", "", fmt.Errorf("%s: this process's cgroup is not mounted", h.name)
}

// pathBelow returns the path of a cgroup below the root of a mount. It is not ok if the cgroup is
// not there.
func pathBelow(path, root string) (below string, ok bool) {
	if strings.HasPrefix(path, "/..") {
		return "", false // outside of the cgroup namespace
	}
	below, ok = strings.CutPrefix(path, strings.TrimSuffix(root, "/"))
	return below, ok && (below == "" || below[0] == '/')
}

// newCgroup makes a cgroup.
func newCgroup(h *hierarchy, root string) (c *cgroup, err error) {
	parent, path, err := h.own(root)
	if err != nil {
		return nil, err
	}
	removeStale(parent)
	for range attempts { // until it is locked, another process may take it for stale
		c, err = makeCgroup(h, parent, path)
		if !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, unix.EWOULDBLOCK) && !errors.Is(err, unix.ENODEV) {
			break
		}
	}
	return c, err
}

// makeCgroup makes a cgroup below another, which has a directory and a path.
func makeCgroup(h *hierarchy, parent, path string) (*cgroup, error) {
	name := fmt.Sprintf("%s%d-%d", prefix, os.Getpid(), made.Add(1))
	dir := filepath.Join(parent, name)
	c := &cgroup{
		hierarchy: h, parent: parent, dir: dir, leaf: filepath.Join(dir, "command"), named: filepath.Join(path, name),
		counter: kernfs.File{Path: filepath.Join(dir, h.file)}, buf: make([]byte, 4096),
	}
	err := os.Mkdir(c.dir, 0o750)
	if err != nil {
		return nil, fmt.Errorf("make a cgroup: %w", err)
	}
	if c.held, err = os.Open(c.dir); err == nil {
		err = unix.Flock(int(c.held.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	}
	if err == nil {
		err = os.Mkdir(c.leaf, 0o750)
	}
	if err == nil {
		_, err = c.Used()
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("use a cgroup: %w", err), c.close())
	}
	return c, nil
}

// removeStale removes the cgroups of groups whose process was killed, unless a process runs in them.
func removeStale(parent string) {
	stale, err := filepath.Glob(filepath.Join(parent, prefix+"*"))
	if err != nil {
		return
	}
	for _, dir := range stale {
		f, err := os.Open(dir)
		if err != nil {
			continue
		}
		if unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) == nil {
			_ = removeTree(dir)
		}
		_ = f.Close()
	}
}

// removeTree removes a cgroup and those below it. It fails if a process is in one of them.
func removeTree(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.IsDir() {
			_ = removeTree(filepath.Join(dir, e.Name())) // what stays makes the last line fail, too
		}
	}
	return unix.Rmdir(dir)
}

func (h *hierarchy) method() Method { return h.name }

// path implements counter.
func (c *cgroup) path() string { return c.named }

// start implements counter for version 2.
func (c *cgroup) start(fork func(cgroup int) error) error {
	leaf, err := os.Open(c.leaf)
	if err != nil {
		return fmt.Errorf("%w: %w", errGroup, err)
	}
	defer func() { _ = leaf.Close() }()
	return fork(int(leaf.Fd()))
}

// Used implements Members.
func (c *cgroup) Used() (units.CPUTime, error) {
	text, err := c.counter.Read(c.buf)
	if err != nil {
		return 0, err
	}
	for line := range bytes.Lines(text) {
		if number, ok := bytes.CutPrefix(line, []byte(c.prefix)); ok {
			n, err := kernfs.ParseUintLine(number)
			if err != nil {
				return 0, fmt.Errorf("%s: %w", c.counter.Path, err)
			}
			return units.CPUTime(n) * c.unit, nil
		}
	}
	return 0, fmt.Errorf("%s: it has no %s", c.counter.Path, c.prefix)
}

// Processes implements Members.
func (c *cgroup) Processes(yield func(pid int32)) error { return c.eachProcess(c.dir, yield) }

// eachProcess calls yield with each process of a cgroup and of those below it.
func (c *cgroup) eachProcess(dir string, yield func(pid int32)) error {
	listed, err := readWhole(dir+"/cgroup.procs", &c.buf)
	if err != nil {
		return err
	}
	for line := range bytes.Lines(listed) {
		if pid, err := strconv.ParseInt(string(bytes.TrimSpace(line)), 10, 32); err == nil && pid > 0 {
			yield(int32(pid)) // 0 is a process that this PID namespace does not show
		}
	}
	var stat unix.Stat_t
	if err := unix.Stat(dir, &stat); err != nil || stat.Nlink == 2 {
		return err // no cgroup is below it (fs/kernfs/inode.c, kernfs_refresh_inode)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.IsDir() {
			if err := c.eachProcess(dir+"/"+e.Name(), yield); err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, unix.ENODEV) {
				return err
			}
		}
	}
	return nil
}

// attempts is how often a cgroup is made that another process removes, and how often processes are
// moved out of a cgroup while new ones may be made there.
const attempts = 20

// close moves the processes that are in the cgroup itself or in its leaf to the one around it, and
// removes the cgroup. Other cgroups below it stay with their processes.
func (c *cgroup) close() error {
	_ = c.counter.Close()                 // it was only read from
	defer func() { _ = c.held.Close() }() // it may not be open
	var err error
	for range attempts {
		if err = removeTree(c.dir); err == nil || !errors.Is(err, unix.EBUSY) {
			break
		}
		if moved := c.moveUp(); moved == 0 {
			time.Sleep(time.Millisecond) // processes that end leave the cgroup a moment later
		}
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove the cgroup %s: %w", c.dir, err)
	}
	return nil
}

// moveUp moves processes to the cgroup around, and returns how many.
func (c *cgroup) moveUp() (moved int) {
	for _, dir := range []string{c.leaf, c.dir} {
		listed, err := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
		if err != nil {
			continue // it is gone
		}
		for pid := range bytes.Lines(listed) {
			if os.WriteFile(filepath.Join(c.parent, "cgroup.procs"), pid, 0) == nil {
				moved++
			}
		}
	}
	return moved
}

// cgroupV1 counts in a cgroup of the cpuacct hierarchy.
//
// A child is in the cgroup of the thread that forks it, so a thread of this process enters the
// leaf. The kernel delays it by milliseconds (a grace period of RCU, kernel/cgroup/cgroup.c). The
// meters are opened in the meantime.
type cgroupV1 struct {
	*cgroup
	forks  chan func() error // to the thread
	done   chan error        // their results, until the thread has ended
	thread int32             // its clock
	before units.CPUTime     // its CPU time before
}

func newCgroupV1(root string) (*cgroupV1, error) {
	c, err := newCgroup(&cpuacct, root)
	if err != nil {
		return nil, err
	}
	v1 := &cgroupV1{cgroup: c, forks: make(chan func() error), done: make(chan error)}
	begun := make(chan struct{})
	go v1.forkInside(begun)
	<-begun
	return v1, nil
}

// forkInside closes begun once c.thread is set, enters the leaf, and calls the functions that it
// receives. The thread stays locked, so it ends with the goroutine.
func (c *cgroupV1) forkInside(begun chan<- struct{}) {
	const perThread, scheduler = 4, 2 // include/linux/posix-timers.h, make_thread_cpuclock
	defer close(c.done)
	runtime.LockOSThread()
	tid := unix.Gettid()
	c.thread = int32(^tid<<3 | perThread | scheduler)
	c.before = clock(c.thread)
	close(begun)
	entered := os.WriteFile(filepath.Join(c.leaf, "tasks"), []byte(strconv.Itoa(tid)), 0)
	for fork := range c.forks {
		if entered != nil {
			c.done <- fmt.Errorf("%w: enter the cgroup: %w", errGroup, entered)
		} else {
			c.done <- fork()
		}
	}
}

// start implements counter.
func (c *cgroupV1) start(fork func(cgroup int) error) (err error) {
	if c.forks == nil {
		return errGroup // it is closed
	}
	c.forks <- func() error { return fork(-1) }
	return <-c.done
}

// Processes implements Members. This process, whose thread is in the leaf, does not belong to the
// group.
func (c *cgroupV1) Processes(yield func(pid int32)) error {
	self := int32(os.Getpid())
	return c.cgroup.Processes(func(pid int32) {
		if pid != self {
			yield(pid)
		}
	})
}

func (c *cgroupV1) close() error {
	if c.forks != nil {
		close(c.forks)
		for range c.done { // until it is closed
		}
		c.forks = nil
	}
	return c.cgroup.close()
}

// Used implements Members. The time of the thread of this process does not count.
func (c *cgroupV1) Used() (units.CPUTime, error) {
	used, err := c.cgroup.Used()
	return units.Advance(units.Advance(c.before, clock(c.thread)), used), err
}
