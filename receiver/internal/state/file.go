// SPDX-License-Identifier: Apache-2.0

package state

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"sync"
)

// File is a store of a single value in a file. The file is replaced as a whole, so that a
// crash of the collector leaves either the old value or the new one.
type File struct {
	path string
	// lock is held while the store is open, so that two collectors do not replace each other's
	// state. It is nil if the store is read-only.
	lock    *os.File
	syncing sync.Mutex // held while a file is being flushed to the disk
}

// maxState is the maximum size of a state in bytes. The state of 100,000 processes takes about 2 MB.
const maxState = 64 << 20

var errTooLarge = fmt.Errorf("larger than %d MiB", maxState>>20)

// Path returns the path of the state file of the receiver with this ID in a storage directory.
func Path(directory, receiver string) string {
	return filepath.Join(directory, url.PathEscape(receiver)+".state")
}

// ReadOnlyFile returns a store that reads the state at the path. It must not be written to.
func ReadOnlyFile(path string) *File { return &File{path: path} }

// OpenFile creates the directory of a state file and locks the state.
func OpenFile(path string) (*File, error) {
	f := &File{path: path}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, err
	}
	lock, err := os.OpenFile(f.path+".lock", os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	if err := lockFile(lock); err != nil {
		return nil, errors.Join(fmt.Errorf("%s cannot be locked, another collector may use it: %w", f.path, err), lock.Close())
	}
	f.lock = lock
	return f, nil
}

// Get returns the content of the file, or nil if the file does not exist.
func (f *File) Get(context.Context, string) ([]byte, error) {
	info, err := os.Lstat(f.path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular(): // opening a FIFO waits for a writer
		return nil, fmt.Errorf("%s is not a regular file: %v", f.path, info.Mode().Type())
	case info.Size() > maxState:
		return nil, fmt.Errorf("%s: %w", f.path, errTooLarge)
	}
	return os.ReadFile(f.path)
}

// Set replaces the file. The new content survives a crash of the collector immediately, and a crash
// of the machine once the background flush has finished. Set does not wait for the flush, which can
// take seconds on a disk under load. Totals do not survive a reboot anyway, and trained models lose
// at most the last interval, unless the machine crashes during the flush.
func (f *File) Set(_ context.Context, _ string, content []byte) error {
	name := f.path + ".new"
	_ = os.Remove(name) // left by a crash; if it cannot be removed, the next line fails
	file, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	if _, err = file.Write(content); err == nil {
		err = os.Rename(name, f.path)
	}
	if err != nil {
		return errors.Join(err, file.Close(), os.Remove(name))
	}
	if !f.syncing.TryLock() {
		return file.Close() // the previous flush is still running; the next call flushes its own file
	}
	go func() {
		defer f.syncing.Unlock()
		_ = errors.Join(file.Sync(), file.Close()) // if the disk failed, the next write fails as well
	}()
	return nil
}

// Delete removes the file, if it exists.
func (f *File) Delete(context.Context, string) error {
	if err := os.Remove(f.path); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// Close waits for the flush of the last content and unlocks the state.
func (f *File) Close(context.Context) error {
	f.syncing.Lock()
	defer f.syncing.Unlock()
	if f.lock == nil {
		return nil
	}
	return f.lock.Close()
}
