// SPDX-License-Identifier: Apache-2.0

package kernfs

import (
	"errors"
	"math"
	"slices"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Kept is a file below a Dir that may stay open between reads. It takes four bytes, much less than
// a File. The zero Kept is closed. A copy shares the descriptor.
type Kept struct {
	descriptor int32 // plus 1, 0 while closed
}

// IsOpen reports whether the file is open.
func (k *Kept) IsOpen() bool { return k.descriptor != 0 }

// Descriptor returns the descriptor of the file, -1 while it is closed.
func (k *Kept) Descriptor() int { return int(k.descriptor) - 1 }

// Close closes the file if it is open. A later read opens it again.
func (k *Kept) Close() error {
	if k.descriptor == 0 {
		return nil
	}
	fd := int(k.descriptor - 1)
	k.descriptor = 0
	return unix.Close(fd)
}

// OpenIn opens the file <directory>/<sub>/name into k, which it closes first. inode is the number
// of the file: a cgroup that is removed and made again under the same name has files with other
// numbers. Errors are bare errno values.
func (d *Dir) OpenIn(k *Kept, sub, name string) (inode uint64, err error) {
	d.nameIn(sub, name)
	return d.openKept(k)
}

// OpenOf opens the file <directory>/<pid>/name like OpenIn.
func (d *Dir) OpenOf(k *Kept, pid int32, name string) error {
	d.nameOf(pid, name)
	_, err := d.openKept(k)
	return err
}

func (d *Dir) openKept(k *Kept) (inode uint64, err error) {
	_ = k.Close() // it was only read from
	if err := d.open(); err != nil {
		return 0, err
	}
	fd, err := d.openAt(unix.O_RDONLY | unix.O_CLOEXEC)
	if err != nil {
		_, err = d.got(nil, err)
		return 0, err
	}
	if err := unix.Fstat(fd, &d.inode); err != nil {
		_ = unix.Close(fd)
		return 0, err
	}
	k.descriptor = int32(fd) + 1
	return d.inode.Ino, nil
}

// ReadKeptIn reads the file <directory>/<sub>/name, which is open as k, from its beginning with one
// system call. The kernel makes the text anew. A file that fits into buf is read whole. Errors are
// bare errno values, such as ENODEV if the cgroup was removed. It does not allocate.
func (d *Dir) ReadKeptIn(k *Kept, sub, name string, buf []byte) ([]byte, error) {
	b, err := k.read(buf)
	if FaultsInjected() {
		d.nameIn(sub, name)
		return Result(d.path+"/"+string(d.name), b, err)
	}
	return b, err
}

// ReadKeptOf reads the file <directory>/<pid>/name like ReadKeptIn. If the process that had the
// number when the file was opened has ended, the error is ESRCH, even if another process has the
// number now.
func (d *Dir) ReadKeptOf(k *Kept, pid int32, name string, buf []byte) ([]byte, error) {
	b, err := k.read(buf)
	if FaultsInjected() {
		d.nameOf(pid, name)
		return Result(d.path+"/"+string(d.name), b, err)
	}
	return b, err
}

func (k *Kept) read(buf []byte) ([]byte, error) {
	n, err := preadDescriptor(k.Descriptor(), buf)
	if err != nil {
		return nil, err
	}
	return buf[:n], nil
}

// isQuick reports whether an open file is in procfs, sysfs or a cgroup file system.
func isQuick(fd uintptr) bool {
	var fs unix.Statfs_t
	err := unix.Fstatfs(int(fd), &fs)
	return err == nil && slices.Contains([]int64{
		unix.PROC_SUPER_MAGIC, unix.SYSFS_MAGIC, unix.CGROUP_SUPER_MAGIC, unix.CGROUP2_SUPER_MAGIC,
	}, int64(fs.Type)) //nolint:unconvert // 32 bits on some architectures
}

// preadRaw is preadDescriptor by a raw system call.
func preadRaw(fd int, b []byte) (n int, err error) {
	got, _, errno := unix.RawSyscall6(unix.SYS_PREAD64, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)), 0, 0, 0)
	if errno != 0 {
		return 0, errno
	}
	return int(got), nil
}

// NoDescriptorLeft reports whether an error is that this process, or the machine, has no descriptor
// left.
func NoDescriptorLeft(err error) bool {
	return errors.Is(err, unix.EMFILE) || errors.Is(err, unix.ENFILE)
}

// descriptorLimit returns the maximum number of descriptors of this process.
func descriptorLimit() int64 {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return 0
	}
	return int64(min(limit.Cur, math.MaxInt64))
}
