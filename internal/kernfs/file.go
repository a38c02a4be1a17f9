// SPDX-License-Identifier: Apache-2.0

package kernfs

import "os"

// File is a small file of /sys or /proc that stays open between reads. The kernel makes its text
// anew for each read at offset 0, so a read of an open file is one system call. If there are many
// such files below a Dir, use a Kept for each.
//
// Set Path; the first Read opens the file. A File is not safe for concurrent use.
type File struct {
	Path string
	// Open replaces os.Open if it is not nil.
	Open func(path string) (*os.File, error)
	// Quick makes Read use a raw system call on file systems of the kernel. For other system calls the
	// Go runtime wakes up its monitor thread, which takes more CPU time than the read. But during a
	// raw call the thread keeps its P, so a garbage collection waits until the call returns.
	//
	// Set Quick only if the kernel always returns the text within a fraction of a millisecond, even on
	// a machine with hundreds of CPUs. The read must not wait for another CPU, or for a lock that
	// others may hold for longer. /proc/uptime qualifies. These reads do not qualify:
	//   - energy_uj of powercap waits for CPU hotplug.
	//   - cpu.stat of a cgroup waits for other readers of cgroup statistics.
	//   - /proc/stat takes milliseconds on a machine with hundreds of CPUs.
	//   - A perf counter waits for the counter's CPU, which a hypervisor may have preempted.
	Quick bool

	file *os.File // nil while closed
	fd   uintptr  // of file; each call of os.File.Fd is a system call
	raw  bool     // Read makes raw system calls, see Quick
}

// Read reads the beginning of the file into buf and returns the text. A file that fits into buf is
// read whole. After an error the file is closed, and the next Read opens it again. Read does not
// allocate while the file is open.
func (f *File) Read(buf []byte) ([]byte, error) {
	if f.file == nil {
		file, err := f.OpenPath()
		if err != nil {
			return nil, err
		}
		f.Use(file)
	}
	n, err := f.pread(buf)
	text, err := Result(f.Path, buf[:n], err)
	if err != nil {
		_ = f.Close() // no data is lost: the file was only read
		return nil, err
	}
	return text, nil
}

// ReadSmall reads the beginning of a file into buf and returns the part of buf that was filled.
func ReadSmall(path string, buf []byte) ([]byte, error) {
	f := File{Path: path}
	defer func() { _ = f.Close() }() // no data is lost: the file was only read
	return f.Read(buf)
}

// IsOpen reports whether the file is open.
func (f *File) IsOpen() bool { return f.file != nil }

// OpenPath opens the file at Path for Use. It does not change f.
func (f *File) OpenPath() (*os.File, error) {
	if f.Open != nil {
		return f.Open(f.Path)
	}
	return os.Open(f.Path)
}

// Use replaces the file that Read reads by another open file, and closes the previous file.
func (f *File) Use(file *os.File) {
	_ = f.Close() // no data is lost: the file was only read
	f.file, f.fd = file, file.Fd()
	f.raw = f.Quick && isQuick(f.fd)
}

// IsOther reports whether the file is open and is not the file with the FileInfo there. It does not
// look up a path.
func (f *File) IsOther(there os.FileInfo) bool {
	if f.file == nil {
		return false
	}
	open, err := f.file.Stat()
	return err != nil || there == nil || !os.SameFile(open, there)
}

// Stale reports whether the file is open and its path refers to another file or does not exist.
func (f *File) Stale() bool {
	if f.file == nil {
		return false
	}
	there, err := os.Stat(f.Path)
	return err != nil || f.IsOther(there)
}

// Close closes the file if it is open. A later Read opens it again.
func (f *File) Close() error {
	if f.file == nil {
		return nil
	}
	err := f.file.Close()
	f.file = nil
	return err
}
