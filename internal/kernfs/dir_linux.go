// SPDX-License-Identifier: Apache-2.0

package kernfs

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io/fs"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Dir is a directory whose descriptor stays open between calls. The zero value is closed. A Dir is
// not safe for concurrent use.
type Dir struct {
	path    string
	fd      int
	isOpen  bool
	isProc  bool // it is on procfs; not set if lookup is lookupAny
	lookup  lookup
	also    []string // names that the first lookup also makes the kernel cache
	how     unix.OpenHow
	entries []byte
	name    []byte
	stat    unix.Statx_t
	inode   unix.Stat_t
}

// New returns the directory at path. The first read opens it.
func New(path string) *Dir { return &Dir{path: path} }

// Path returns the path given to New.
func (d *Dir) Path() string { return d.path }

// Close closes the directory; a later call opens it again.
func (d *Dir) Close() error {
	if !d.isOpen {
		return nil
	}
	d.isOpen = false
	return unix.Close(d.fd)
}

func (d *Dir) open() error {
	if d.isOpen {
		return nil
	}
	for {
		fd, err := unix.Open(d.path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return &fs.PathError{Op: "open", Path: d.path, Err: err}
		}
		d.fd, d.isOpen = fd, true
		if d.lookup != lookupAny {
			var fs unix.Statfs_t
			d.isProc = unix.Fstatfs(fd, &fs) == nil && fs.Type == unix.PROC_SUPER_MAGIC
		}
		return nil
	}
}

// The layout of struct linux_dirent64 (getdents64(2)): inode and offset of 8 bytes each, the
// record's length, the type, the name up to a NUL.
const (
	direntOffset = 8
	direntLength = 16
	direntName   = 19
)

// Each calls yield with the name of every entry, in the kernel's order. The name is valid during
// the call only.
func (d *Dir) Each(yield func(name []byte)) error {
	_, err := d.EachFrom(0, func(name []byte) bool {
		yield(name)
		return true
	})
	return err
}

// EachFrom is like Each, but starts at a position and stops if yield returns false. It returns the
// position after the last entry that it passed to yield, or 0 if it passed all entries. Position 0
// is the beginning. In /proc, processes that start or exit do not change the positions of other
// processes.
func (d *Dir) EachFrom(position int64, yield func(name []byte) bool) (next int64, err error) {
	if err := d.open(); err != nil {
		return 0, err
	}
	if d.entries == nil {
		d.entries = make([]byte, 64<<10)
	}
	if _, err := unix.Seek(d.fd, position, 0); err != nil {
		return 0, d.fail("seek", err)
	}
	if _, err := Result(d.path, nil, nil); err != nil {
		return 0, d.fail("readdirent", err)
	}
	err = eachEntry(d.fd, d.entries, func(name []byte, after int64) bool {
		if yield(name) {
			return true
		}
		next = after
		return false
	})
	if err != nil {
		return 0, d.fail("readdirent", err)
	}
	return next, nil
}

// eachEntry calls yield with the name of each entry of a directory, and with the position of the
// entry after it, until yield returns false. It begins at the current position and reads into buf.
func eachEntry(dir int, buf []byte, yield func(name []byte, after int64) bool) error {
	for {
		n, err := unix.Getdents(dir, buf)
		switch {
		case err == unix.EINTR:
			continue
		case err != nil:
			return err
		case n == 0:
			return nil
		}
		if more, err := eachIn(buf[:n], yield); !more || err != nil {
			return err
		}
	}
}

// eachIn calls yield like eachEntry for the entries in a result of getdents64(2). more is false if
// yield returned false.
func eachIn(b []byte, yield func(name []byte, after int64) bool) (more bool, err error) {
	for len(b) > 0 {
		if len(b) <= direntName {
			return false, unix.EIO
		}
		length := int(binary.NativeEndian.Uint16(b[direntLength:]))
		if length <= direntName || length > len(b) {
			return false, unix.EIO
		}
		name, _, _ := bytes.Cut(b[direntName:length], []byte{0})
		if !yield(name, int64(binary.NativeEndian.Uint64(b[direntOffset:]))) {
			return false, nil
		}
		b = b[length:]
	}
	return true, nil
}

// fail closes the directory, so that the next call opens it again.
func (d *Dir) fail(op string, err error) error {
	_ = d.Close()
	return &fs.PathError{Op: op, Path: d.path, Err: err}
}

// Links returns the number of hard links to the directory. On cgroup file systems, it is two plus
// the number of directories inside. On some other file systems, it is always one. Links does not
// wait for a lock that a user can hold.
func (d *Dir) Links() (uint64, error) {
	if err := d.open(); err != nil {
		return 0, err
	}
	if err := unix.Fstat(d.fd, &d.inode); err != nil {
		return 0, d.fail("fstat", err)
	}
	return uint64(d.inode.Nlink), nil //nolint:unconvert // 32 bits on some architectures
}

// Read reads the file <directory>/name with one call of read(2) into buf. A file of /proc that fits
// into buf is read whole. Errors are bare errno values, so that reading an exited process does not
// allocate.
func (d *Dir) Read(name string, buf []byte) ([]byte, error) {
	d.name = append(d.name[:0], name...)
	return d.read(buf)
}

// ReadIn reads the file <directory>/<sub>/name like Read. sub is a relative path.
func (d *Dir) ReadIn(sub, name string, buf []byte) ([]byte, error) {
	d.nameIn(sub, name)
	return d.read(buf)
}

func (d *Dir) nameIn(sub, name string) {
	d.name = append(d.name[:0], sub...)
	d.name = append(d.name, '/')
	d.name = append(d.name, name...)
}

// Has reports whether the file or directory <directory>/name exists, where name is a relative path.
// It returns true if that cannot be determined.
func (d *Dir) Has(name string) bool {
	if err := d.open(); err != nil {
		return !errors.Is(err, fs.ErrNotExist)
	}
	d.name = append(d.name[:0], name...)
	if d.lookup != lookupAny {
		fd, err := d.openAt(unix.O_PATH | unix.O_CLOEXEC)
		if err == nil {
			_ = unix.Close(fd)
		}
		return !errors.Is(err, unix.ENOENT) && !errors.Is(err, unix.ENOTDIR)
	}
	d.name = append(d.name, 0)
	_, _, errno := syscall.Syscall(unix.SYS_FACCESSAT, uintptr(d.fd), uintptr(unsafe.Pointer(&d.name[0])), unix.F_OK)
	return errno != unix.ENOENT && errno != unix.ENOTDIR
}

// ReadOf reads the file <directory>/<pid>/name like Read.
func (d *Dir) ReadOf(pid int32, name string, buf []byte) ([]byte, error) {
	d.nameOf(pid, name)
	return d.read(buf)
}

// LinkOf reads the target of the symbolic link <directory>/<pid>/name into buf.
func (d *Dir) LinkOf(pid int32, name string, buf []byte) ([]byte, error) {
	if err := d.open(); err != nil {
		return nil, err
	}
	d.nameOf(pid, name)
	fd, path, err := d.whole(unix.O_NOFOLLOW)
	if err != nil {
		return d.got(nil, err)
	}
	n, _, errno := syscall.Syscall6(unix.SYS_READLINKAT, uintptr(fd), uintptr(unsafe.Pointer(path)),
		uintptr(unsafe.Pointer(&buf[0])), uintptr(len(buf)), 0, 0)
	if fd != d.fd {
		_ = unix.Close(fd)
	}
	if errno != 0 {
		n, err = 0, errno
	}
	return d.got(buf[:n], err)
}

// empty is the path of a descriptor itself.
var empty = new(byte)

// whole returns a descriptor and a path relative to it for a system call that finds d.name, to
// which it appends a NUL, by both. It opens the file first if that system call would wait for the
// lock of a directory. The caller closes the descriptor unless it is d.fd.
func (d *Dir) whole(flags uint64) (fd int, path *byte, err error) {
	if d.lookup == lookupAny {
		d.name = append(d.name, 0)
		return d.fd, &d.name[0], nil
	}
	fd, err = d.openAt(unix.O_PATH | unix.O_CLOEXEC | flags)
	return fd, empty, err
}

// got returns the result of a read of d.name, which ends with a NUL.
func (d *Dir) got(b []byte, err error) ([]byte, error) {
	if FaultsInjected() {
		b, err = Result(d.path+"/"+string(d.name[:len(d.name)-1]), b, err)
	}
	if err != nil {
		return nil, err
	}
	return b, nil
}

func (d *Dir) nameOf(pid int32, name string) {
	d.name = appendInt(d.name[:0], pid)
	d.name = append(d.name, '/')
	d.name = append(d.name, name...)
}

func (d *Dir) read(buf []byte) ([]byte, error) {
	if err := d.open(); err != nil {
		return nil, err
	}
	fd, err := d.openAt(unix.O_RDONLY | unix.O_CLOEXEC)
	if err != nil {
		return d.got(nil, err)
	}
	n, err := unix.Read(fd, buf)
	for errors.Is(err, unix.EINTR) {
		n, err = unix.Read(fd, buf)
	}
	_ = unix.Close(fd)
	return d.got(buf[:max(n, 0)], err)
}

func appendInt(b []byte, n int32) []byte {
	var digits [10]byte
	i := len(digits)
	for {
		i--
		digits[i] = byte('0' + n%10)
		if n /= 10; n == 0 {
			return append(b, digits[i:]...)
		}
	}
}

// EachOf calls yield with the name of every entry but . and .. of the directory
// <directory>/<pid>/name, in the kernel's order, until yield returns false. The name is valid
// during the call only. Errors are bare errno values.
func (d *Dir) EachOf(pid int32, name string, yield func(name []byte) bool) error {
	if err := d.open(); err != nil {
		return err
	}
	if d.entries == nil {
		d.entries = make([]byte, 64<<10)
	}
	d.nameOf(pid, name)
	fd, err := d.openAt(unix.O_RDONLY | unix.O_DIRECTORY | unix.O_CLOEXEC)
	if _, err = d.got(nil, err); err != nil {
		if fd >= 0 {
			_ = unix.Close(fd)
		}
		return err
	}
	defer func() { _ = unix.Close(fd) }()
	return eachEntry(fd, d.entries, func(name []byte, _ int64) bool { return isDot(name) || yield(name) })
}

func isDot(name []byte) bool { return string(name) == "." || string(name) == ".." }

// SizeOf returns the size that the file or directory <directory>/<pid>/name states. Errors are bare
// errno values.
func (d *Dir) SizeOf(pid int32, name string) (int64, error) {
	if err := d.statOf(pid, name, unix.STATX_SIZE); err != nil {
		return 0, err
	}
	return int64(d.stat.Size), nil
}

// InodeOf returns the inode number of the file or directory <directory>/<pid>/name. Errors are bare
// errno values.
func (d *Dir) InodeOf(pid int32, name string) (uint64, error) {
	if err := d.statOf(pid, name, unix.STATX_INO); err != nil {
		return 0, err
	}
	return d.stat.Ino, nil
}

func (d *Dir) statOf(pid int32, name string, mask uintptr) error {
	if err := d.open(); err != nil {
		return err
	}
	d.nameOf(pid, name)
	fd, path, err := d.whole(0)
	if err == nil {
		_, _, errno := syscall.Syscall6(unix.SYS_STATX, uintptr(fd), uintptr(unsafe.Pointer(path)), unix.AT_EMPTY_PATH, mask,
			uintptr(unsafe.Pointer(&d.stat)), 0)
		if fd != d.fd {
			_ = unix.Close(fd)
		}
		if errno != 0 {
			err = errno
		}
	}
	_, err = d.got(nil, err)
	return err
}

// MajorOf returns the major number of the character device that the descriptor of a process with
// the link <directory>/<pid>/name refers to. It is 0 if the descriptor refers to anything else, or
// may be neither read from nor written to. It waits for the lock of a directory unless the kernel
// has the name in its cache, whatever the Dir. The descriptor may refer to another file by the time
// MajorOf returns.
func (d *Dir) MajorOf(pid int32, name string) (major uint32, err error) {
	if err := d.open(); err != nil {
		return 0, err
	}
	d.nameOf(pid, name)
	d.name = append(d.name, 0)
	// The mode of the link is how the descriptor was opened (proc_pid_fd(5)): any process may open
	// a device with O_PATH.
	const opened = unix.S_IRUSR | unix.S_IWUSR
	if err := d.statx(unix.AT_SYMLINK_NOFOLLOW, unix.STATX_TYPE|unix.STATX_MODE); err != nil {
		return 0, err
	}
	if d.stat.Mode&unix.S_IFMT != unix.S_IFLNK || d.stat.Mode&opened == 0 {
		return 0, nil
	}
	// The attributes that the kernel has are enough: a FUSE server may never answer.
	if err := d.statx(unix.AT_STATX_DONT_SYNC|unix.AT_NO_AUTOMOUNT, unix.STATX_TYPE); err != nil {
		return 0, err
	}
	if d.stat.Mode&unix.S_IFMT != unix.S_IFCHR {
		return 0, nil
	}
	return d.stat.Rdev_major, nil
}

// statx reads attributes of the file d.name, which ends with a NUL.
func (d *Dir) statx(flags, mask uintptr) error {
	_, _, errno := syscall.Syscall6(unix.SYS_STATX, uintptr(d.fd), uintptr(unsafe.Pointer(&d.name[0])), flags, mask,
		uintptr(unsafe.Pointer(&d.stat)), 0)
	if errno != 0 {
		return errno
	}
	return nil
}

// IsProc reports whether path is on a proc file system.
func IsProc(path string) (bool, error) {
	kind, err := fileSystem(path)
	return kind == unix.PROC_SUPER_MAGIC, err
}

// IsSysfs reports whether path is on a sysfs. It returns false if the file system cannot be
// determined.
func IsSysfs(path string) bool {
	kind, err := fileSystem(path)
	return err == nil && kind == unix.SYSFS_MAGIC
}

// IsCgroup reports whether path is on a cgroup file system.
func IsCgroup(path string) bool {
	kind, err := fileSystem(path)
	return err == nil && (kind == unix.CGROUP_SUPER_MAGIC || kind == unix.CGROUP2_SUPER_MAGIC)
}

func fileSystem(path string) (kind int64, err error) {
	var fs unix.Statfs_t
	for {
		switch err := unix.Statfs(path, &fs); err {
		case nil:
			return int64(fs.Type), nil //nolint:unconvert // 32 bits on some architectures
		case unix.EINTR:
		default:
			return 0, err
		}
	}
}
