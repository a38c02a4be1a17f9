// SPDX-License-Identifier: Apache-2.0

package measure

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

const (
	// dirPrefix is how the names of directories begin in which commands mark phases, and socketName the only file in them.
	dirPrefix  = "energy-run-"
	socketName = "phases.sock"
)

// ownDir is a directory of this process. It is locked as long as the process exists, so that
// another one can remove it if this one was killed.
type ownDir struct {
	path string
	held *os.File
}

// makeOwnDir makes a directory, and removes those of processes that were killed.
func makeOwnDir(parent string) (*ownDir, error) {
	removeStale(parent)
	for {
		path, err := os.MkdirTemp(parent, dirPrefix)
		if err != nil {
			return nil, err
		}
		d := &ownDir{path: path}
		d.held, err = lockDir(path)
		if err == nil {
			_, err = os.Lstat(path)
		}
		if err == nil {
			return d, nil
		}
		d.remove()
		if !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, unix.EWOULDBLOCK) { // else another process took it for stale
			return nil, err
		}
	}
}

// lockDir opens and locks a directory.
func lockDir(path string) (*os.File, error) {
	dir, err := os.OpenFile(path, unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(dir.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		_ = dir.Close()
		return nil, err
	}
	return dir, nil
}

// removeStale removes the directories of this user whose process was killed.
func removeStale(parent string) {
	paths, err := filepath.Glob(filepath.Join(parent, dirPrefix+"*"))
	if err != nil {
		return
	}
	for _, path := range paths {
		held, err := lockDir(path)
		if err != nil {
			continue // it is in use, or another user's
		}
		var stat unix.Stat_t
		if unix.Fstat(int(held.Fd()), &stat) == nil && int(stat.Uid) == os.Geteuid() {
			(&ownDir{path, held}).remove()
		}
		_ = held.Close() // for the second time if it was removed
	}
}

// remove removes the directory and the socket in it. Others may write to the parent, so the socket
// is named relative to the directory that is open, and nothing else is removed.
func (d *ownDir) remove() {
	if d.held != nil {
		_ = unix.Unlinkat(int(d.held.Fd()), socketName, 0) // there may be none
		defer func() { _ = d.held.Close() }()
	}
	_ = unix.Rmdir(d.path)
}
