// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package kernfs

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
)

// Dir reads trees in the shape of /proc on systems without one, so that the project builds there
// and its tests can read recorded trees.
type Dir struct{ path string }

// New returns the directory at path.
func New(path string) *Dir { return &Dir{path: path} }

// ErrNotCached is not returned.
var ErrNotCached = errors.New("not in the kernel's name cache")

// NewCached returns the directory at path.
func NewCached(path string) *Dir { return New(path) }

// NeverWaits returns false.
func (*Dir) NeverWaits() bool { return false }

// LookUpOf has no effect.
func (*Dir) LookUpOf(int32, string) {}

// NewKillable returns the directory at path.
func NewKillable(path string, _ ...string) *Dir { return New(path) }

// Path returns the path given to New.
func (d *Dir) Path() string { return d.path }

// Close has no effect.
func (*Dir) Close() error { return nil }

// Each calls yield with the name of every entry.
func (d *Dir) Each(yield func(name []byte)) error {
	_, err := d.EachFrom(0, func(name []byte) bool {
		yield(name)
		return true
	})
	return err
}

// EachFrom is like Each, but starts at an entry and stops if yield returns false. It returns the
// number of the next entry, or 0 if it passed all entries.
func (d *Dir) EachFrom(position int64, yield func(name []byte) bool) (next int64, err error) {
	entries, err := os.ReadDir(d.path)
	for i := position; i < int64(len(entries)); i++ {
		if !yield([]byte(entries[i].Name())) {
			return i + 1, err
		}
	}
	return 0, err
}

// Links returns 0, because the number of links is not available.
func (*Dir) Links() (uint64, error) { return 0, nil }

// Read reads the file <directory>/name into buf.
func (d *Dir) Read(name string, buf []byte) ([]byte, error) {
	f, err := os.Open(filepath.Join(d.path, name))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	n, err := f.Read(buf)
	if err == io.EOF {
		err = nil
	}
	return buf[:n], err
}

// ReadIn reads the file <directory>/<sub>/name into buf.
func (d *Dir) ReadIn(sub, name string, buf []byte) ([]byte, error) {
	return d.Read(filepath.Join(sub, name), buf)
}

// Has reports whether there is a file or directory <directory>/name.
func (d *Dir) Has(name string) bool {
	_, err := os.Stat(filepath.Join(d.path, name))
	return !errors.Is(err, fs.ErrNotExist)
}

// ReadOf reads the file <directory>/<pid>/name into buf.
func (d *Dir) ReadOf(pid int32, name string, buf []byte) ([]byte, error) {
	return d.Read(filepath.Join(strconv.Itoa(int(pid)), name), buf)
}

// LinkOf reads the target of the symbolic link <directory>/<pid>/name into buf.
func (d *Dir) LinkOf(pid int32, name string, buf []byte) ([]byte, error) {
	target, err := os.Readlink(filepath.Join(d.path, strconv.Itoa(int(pid)), name))
	return buf[:copy(buf, target)], err
}

// MajorOf returns 0.
func (*Dir) MajorOf(int32, string) (major uint32, err error) { return 0, nil }

// EachOf calls yield with the name of every entry of the directory <directory>/<pid>/name until
// yield returns false.
func (d *Dir) EachOf(pid int32, name string, yield func(name []byte) bool) error {
	entries, err := os.ReadDir(filepath.Join(d.path, strconv.Itoa(int(pid)), name))
	for _, e := range entries {
		if !yield([]byte(e.Name())) {
			break
		}
	}
	return err
}

// SizeOf returns the size of the file or directory <directory>/<pid>/name.
func (d *Dir) SizeOf(pid int32, name string) (int64, error) {
	info, err := os.Stat(filepath.Join(d.path, strconv.Itoa(int(pid)), name))
	if err != nil {
		return 0, err
	}
	return info.Size(), nil
}

// InodeOf fails.
func (*Dir) InodeOf(int32, string) (uint64, error) { return 0, errors.ErrUnsupported }

// Kept is a file below a Dir. Here it never stays open.
type Kept struct{}

// IsOpen returns false.
func (*Kept) IsOpen() bool { return false }

// Close has no effect.
func (*Kept) Close() error { return nil }

// OpenIn has no effect.
func (*Dir) OpenIn(*Kept, string, string) (inode uint64, err error) { return 0, nil }

// OpenOf has no effect.
func (*Dir) OpenOf(*Kept, int32, string) error { return nil }

// ReadKeptIn reads the file <directory>/<sub>/name into buf.
func (d *Dir) ReadKeptIn(_ *Kept, sub, name string, buf []byte) ([]byte, error) {
	return d.ReadIn(sub, name, buf)
}

// ReadKeptOf reads the file <directory>/<pid>/name into buf.
func (d *Dir) ReadKeptOf(_ *Kept, pid int32, name string, buf []byte) ([]byte, error) {
	return d.ReadOf(pid, name, buf)
}

// NoDescriptorLeft returns false.
func NoDescriptorLeft(error) bool { return false }

// descriptorLimit returns 0: no file stays open.
func descriptorLimit() int64 { return 0 }

// IsCgroup returns false.
func IsCgroup(string) bool { return false }

// Descriptor returns -1.
func (*Kept) Descriptor() int { return -1 }

// IsProc returns false.
func IsProc(string) (bool, error) { return false, nil }

// IsSysfs returns false.
func IsSysfs(string) bool { return false }

func isQuick(uintptr) bool { return false }

func preadRaw(int, []byte) (int, error) { return 0, errors.ErrUnsupported }
