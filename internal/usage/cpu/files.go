// SPDX-License-Identifier: Apache-2.0

package cpu

import (
	"fmt"
	"path/filepath"
	"time"

	"github.com/energyreceiver/energyreceiver/internal/kernfs"
)

// procFiles reads files of /proc that do not belong to a process.
type procFiles struct {
	proc *kernfs.Dir
	buf  []byte
}

func newProcFiles(root string) procFiles {
	return procFiles{proc: kernfs.New(filepath.Join(root, "proc")), buf: make([]byte, 4096)}
}

func (f *procFiles) path(name string) string { return filepath.Join(f.proc.Path(), name) }

// read reads as much of a file as the buffer has room for. The text is valid until the next read.
func (f *procFiles) read(name string) ([]byte, error) {
	b, err := f.proc.Read(name, f.buf)
	if err != nil {
		_ = f.proc.Close() // /proc may be mounted anew
		return nil, fmt.Errorf("read %s: %w", f.path(name), err)
	}
	return b, nil
}

// uptime returns the time since boot, in hundredths of a second.
func (f *procFiles) uptime() (time.Duration, error) {
	b, err := f.read("uptime")
	if err != nil {
		return 0, err
	}
	now, err := ParseUptime(b)
	if err != nil {
		return 0, fmt.Errorf("%s: %w", f.path("uptime"), err)
	}
	return now, nil
}

// tasks returns the number of tasks of the whole system, and the ID of the newest task. Both are 0
// if they cannot be read.
func (f *procFiles) tasks() (number, newest uint64) {
	b, err := f.read("loadavg")
	if err != nil {
		return 0, 0
	}
	number, newest, err = parseTasks(b)
	if err != nil {
		return 0, 0
	}
	return number, newest
}
