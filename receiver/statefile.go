// SPDX-License-Identifier: Apache-2.0

package energyreceiver

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// stateFile is the path of a file that holds one value. Set replaces the file as a whole, so that a crash leaves either the
// old value or the new one.
type stateFile string

// maxState bounds what is read of a file that may not be ours, in bytes. A state needs less.
const maxState = 1 << 20

var errNoRegularFile = errors.New("not a regular file")

// Get returns the content of the file, nil if there is none. It fails if the file's directory does not exist, where Set
// would fail.
func (f stateFile) Get(context.Context, string) ([]byte, error) {
	info, err := os.Stat(string(f))
	if errors.Is(err, fs.ErrNotExist) {
		_, err = os.Stat(filepath.Dir(string(f)))
		return nil, err
	}
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() { // to open a pipe would wait for a writer
		return nil, &fs.PathError{Op: "open", Path: string(f), Err: errNoRegularFile}
	}
	file, err := os.Open(string(f))
	if err != nil {
		return nil, err
	}
	content, err := io.ReadAll(io.LimitReader(file, maxState))
	return content, errors.Join(err, file.Close())
}

// Set replaces the content of the file.
func (f stateFile) Set(_ context.Context, _ string, content []byte) error {
	name := string(f) + ".new"
	_ = os.Remove(name) // of a crash; if it cannot be removed, it cannot be created either
	file, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = file.Write(content)
	if err == nil {
		err = file.Sync()
	}
	if err = errors.Join(err, file.Close()); err == nil {
		err = os.Rename(name, string(f))
	}
	if err != nil {
		return errors.Join(err, os.Remove(name))
	}
	return nil
}

// Delete removes the file.
func (f stateFile) Delete(context.Context, string) error { return os.Remove(string(f)) }

// Close does nothing: the file is only open while it is read or written.
func (stateFile) Close(context.Context) error { return nil }
