// SPDX-License-Identifier: Apache-2.0

package kernfs

import (
	"bytes"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// ErrNotCached reports that a name is not in the kernel's name cache, or that the kernel cannot
// find it in the cache without a lock.
var ErrNotCached = errors.New("not in the kernel's name cache")

// lookup is the method of a Dir to find files by name. The kernel looks up a name that is not in
// its cache under the lock of the directory. Any user with permission to list the directory can
// hold this lock forever (dev/kernel-reads.md).
type lookup uint8

const (
	lookupAny      lookup = iota // waits for locks uninterruptibly: not even SIGKILL ends the thread
	lookupCached                 // does not wait
	lookupKillable               // waits for locks in getdents64(2), which SIGKILL ends
)

// NewCached returns the directory at path like New. Its methods never wait for the lock of a
// directory: they return ErrNotCached for a name that is not in the kernel's cache. Has returns
// true for such a name. In file systems other than procfs, names are looked up as by New, because
// cgroup file systems never look up a name without a lock (fs/kernfs/dir.c, kernfs_dop_revalidate).
//
// Before Linux 5.16, or if openat2(2) is not permitted, names are looked up as by New.
func NewCached(path string) *Dir { return &Dir{path: path, lookup: lookupCached} }

// NeverWaits reports whether the methods never wait for the lock of a directory, regardless of the
// contents of the kernel's cache.
func (d *Dir) NeverWaits() bool {
	return d.lookup == lookupCached && d.open() == nil && d.isProc && resolves()
}

// NewKillable returns the directory at path like New. Its methods wait for the locks of directories
// killably: SIGKILL ends the wait. Since Linux 5.16, this always holds for files of procfs. There
// are two exceptions: other file systems, and descriptors in /proc/PID/fd and fdinfo that are
// closed during the lookup. If a lock is taken within the few microseconds between two system calls
// there, SIGKILL does not end the wait.
//
// The first lookup in a directory /proc/PID also caches the names in also, which costs less than
// separate lookups later. If also has names, most lookups are expected to be the first of a
// process: the Dir then does not try to open the whole path from the kernel's cache.
func NewKillable(path string, also ...string) *Dir {
	return &Dir{path: path, lookup: lookupKillable, also: also}
}

// resolveCached is RESOLVE_CACHED of openat2(2), Linux 5.12.
const resolveCached = 0x20

// probePatience is the maximum wait for the first probe. The probe is delayed only if a user locks
// the directory of this process.
const probePatience = time.Second

// probed holds the results of a probe of procfs.
type probed struct {
	resolves  bool             // RESOLVE_CACHED finds names of procfs (Linux 5.16: pid_revalidate)
	positions map[string]int64 // of the names in a directory /proc/PID, which are the same for all processes
}

// found is the result of the probe, or nil until it has returned.
var found atomic.Pointer[probed]

// expected is the result while the probe has not returned. Names that are not cached are then
// looked up uninterruptibly.
var expected = sync.OnceValue(func() *probed { return &probed{resolves: hasResolveCached()} })

// waitForProbe starts the probe of /proc/self, and waits for it for up to probePatience: any user
// can block reads of that directory (dev/kernel-reads.md).
var waitForProbe = sync.OnceFunc(func() {
	await(func() *probed { return probe("/proc/self") }, probePatience)
})

// await stores the result of find, and waits for it for up to patience.
func await(find func() *probed, patience time.Duration) {
	done := make(chan struct{})
	go func() {
		found.Store(find())
		close(done)
	}()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-done:
	case <-timer.C:
	}
}

// proc returns the result of the probe of procfs.
func proc() *probed {
	if p := found.Load(); p != nil {
		return p
	}
	waitForProbe()
	if p := found.Load(); p != nil {
		return p
	}
	return expected()
}

func resolves() bool { return proc().resolves }

// probe examines the directory of a process.
func probe(path string) *probed {
	dir, err := unix.Open(path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return &probed{}
	}
	defer func() { _ = unix.Close(dir) }()
	p := &probed{positions: positionsIn(dir)}
	for range 3 { // the kernel may evict the name
		if fill(dir, p.positions["stat"]) != nil {
			return p
		}
		how := unix.OpenHow{Flags: unix.O_RDONLY | unix.O_CLOEXEC, Resolve: resolveCached}
		if fd, err := unix.Openat2(dir, "stat", &how); err == nil {
			_ = unix.Close(fd)
			p.resolves = true
			return p
		}
	}
	return p
}

// hasResolveCached reports, without a lookup, whether RESOLVE_CACHED is expected to find names of
// procfs. The conditions are that openat2(2) is permitted, and that the kernel is at least Linux
// 5.16.
func hasResolveCached() bool {
	how := unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: resolveCached}
	fd, err := unix.Openat2(unix.AT_FDCWD, "/", &how)
	if err != nil {
		return false
	}
	_ = unix.Close(fd)
	var name unix.Utsname
	if unix.Uname(&name) != nil {
		return false
	}
	var major, minor int
	n, _ := fmt.Sscanf(unix.ByteSliceToString(name.Release[:]), "%d.%d", &major, &minor)
	return n == 2 && (major > 5 || major == 5 && minor >= 16)
}

// LookUpOf makes the kernel cache the name <directory>/<pid>/name. A Dir of NewKillable also
// caches its other names.
func (d *Dir) LookUpOf(pid int32, name string) {
	if d.open() != nil {
		return
	}
	if d.lookup != lookupKillable || !d.isProc || !resolves() {
		d.nameOf(pid, name)
		if fd, err := d.openAt(unix.O_PATH | unix.O_NOFOLLOW | unix.O_CLOEXEC); err == nil {
			_ = unix.Close(fd)
		}
		return
	}
	d.name = append(appendInt(d.name[:0], pid), 0)
	dir, _, err := d.openEntry(d.fd, d.name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, true)
	if err != nil {
		return
	}
	_ = fill(dir, proc().positions[name]) // otherwise, it is looked up when it is needed
	d.fillOthers(dir, name)
	_ = unix.Close(dir)
}

// fillOthers makes the kernel cache the other names of a Dir that NewKillable returned, in the
// directory of a process.
func (d *Dir) fillOthers(dir int, name string) {
	for _, other := range d.also {
		if other != name {
			_ = fill(dir, proc().positions[other]) // otherwise, it is looked up when it is needed
		}
	}
}

// openAt appends a NUL to d.name and opens this file. After an error the descriptor is negative.
// The wrapper in x/sys/unix copies the name to the heap on each call.
func (d *Dir) openAt(flags uint64) (int, error) {
	d.name = append(d.name, 0)
	if d.lookup == lookupAny || d.lookup == lookupCached && !d.isProc || !resolves() {
		return openName(d.fd, d.name, flags)
	}
	if d.lookup == lookupCached || d.isProc && len(d.also) == 0 {
		if fd, err := d.openCached(d.fd, d.name, flags); d.lookup == lookupCached || !errors.Is(err, ErrNotCached) {
			return fd, err
		}
	}
	return d.openKillable(flags)
}

func openName(dir int, name []byte, flags uint64) (int, error) {
	for {
		fd, _, errno := syscall.Syscall6(unix.SYS_OPENAT, uintptr(dir), uintptr(unsafe.Pointer(&name[0])), uintptr(flags), 0, 0, 0)
		switch errno {
		case 0:
			return int(fd), nil
		case unix.EINTR:
			continue
		}
		return -1, errno
	}
}

// openCached opens a file by a NUL-terminated name. It returns ErrNotCached for a name that is not
// in the kernel's cache.
func (d *Dir) openCached(dir int, name []byte, flags uint64) (int, error) {
	d.how = unix.OpenHow{Flags: flags, Resolve: resolveCached}
	for {
		fd, _, errno := syscall.Syscall6(unix.SYS_OPENAT2, uintptr(dir), uintptr(unsafe.Pointer(&name[0])),
			uintptr(unsafe.Pointer(&d.how)), unsafe.Sizeof(d.how), 0, 0)
		switch errno {
		case 0:
			return int(fd), nil
		case unix.EINTR:
			continue
		case unix.EAGAIN:
			return -1, ErrNotCached
		}
		return -1, errno
	}
}

// openKillable opens d.name component by component. d.name is unchanged afterwards.
func (d *Dir) openKillable(flags uint64) (int, error) {
	dir, rest, cached := d.fd, d.name, d.isProc
	for {
		slash := bytes.IndexByte(rest, '/')
		if slash < 0 {
			break
		}
		rest[slash] = 0
		var next int
		var err error
		next, cached, err = d.openEntry(dir, rest[:slash+1], unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, cached)
		rest[slash] = '/'
		if dir != d.fd {
			_ = unix.Close(dir)
		}
		if errors.Is(err, unix.EACCES) { // the directory may be searchable but not readable
			return openName(d.fd, d.name, flags)
		}
		if err != nil {
			return -1, err
		}
		dir, rest = next, rest[slash+1:]
	}
	fd, _, err := d.openEntry(dir, rest, flags, cached)
	if err == nil && dir != d.fd && d.isProc {
		d.fillOthers(dir, string(rest[:len(rest)-1]))
	}
	if dir != d.fd {
		_ = unix.Close(dir)
	}
	return fd, err
}

// openEntry opens an entry of a directory by a NUL-terminated name. isCached reports whether the
// directory was in the kernel's name cache: if not, the cache has no entry of the directory. cached
// reports the same of the entry.
func (d *Dir) openEntry(dir int, name []byte, flags uint64, isCached bool) (fd int, cached bool, err error) {
	if isCached {
		if fd, err := d.openCached(dir, name, flags); !errors.Is(err, ErrNotCached) {
			return fd, true, err
		}
	}
	if err := fill(dir, d.position(dir, name[:len(name)-1])); err != nil {
		return -1, false, err
	}
	fd, err = openName(dir, name, flags)
	return fd, false, err
}

// fill makes the kernel cache the name at a position of a directory in procfs. In other directories
// it only waits until the lock of the directory is free.
//
// A call of getdents64(2) with a buffer too small for an entry fails after it has taken the lock
// and created the first entry (fs/proc/base.c, proc_fill_cache). Listing all names takes ten times
// the time of the first read of a file.
func fill(dir int, position int64) error {
	if _, err := unix.Seek(dir, position, 0); err != nil {
		return err
	}
	var room [1]byte
	for {
		switch _, err := unix.Getdents(dir, room[:]); err {
		case nil, unix.EINVAL: // at the end, no room
			return nil
		case unix.EINTR:
		default:
			return err
		}
	}
}

// The positions of processes in /proc, and of descriptors in /proc/PID/fd (fs/proc/base.c,
// TGID_OFFSET; fs/proc/fd.c).
const (
	processesFrom   = 258
	descriptorsFrom = 2
)

// position returns the position of a name in a directory of procfs, or 0 if the position is not
// available.
func (d *Dir) position(dir int, name []byte) int64 {
	if !d.isProc {
		return 0
	}
	if n, err := ParseUint(name); err == nil && n < 1<<31 {
		if dir == d.fd {
			return processesFrom + int64(n)
		}
		return descriptorsFrom + int64(n)
	}
	return proc().positions[string(name)]
}

// positionsIn returns the positions of the names in a directory /proc/PID.
func positionsIn(dir int) map[string]int64 {
	positions, next := map[string]int64{}, int64(0)
	_ = eachEntry(dir, make([]byte, 16<<10), func(name []byte, after int64) bool { // the names until an error
		positions[string(name)], next = next, after
		return true
	})
	return positions
}
