// SPDX-License-Identifier: Apache-2.0

// Package regular reads small regular files whose paths come from settings. For a FIFO, a device, a
// directory or an oversized file it returns an error, and never blocks the caller.
package regular

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"syscall"
)

// ErrNotRegular reports that a path refers to a directory, a FIFO, a socket or a device.
var ErrNotRegular = errors.New("not a regular file")

// ErrTooLarge reports that a file exceeds the limit.
var ErrTooLarge = errors.New("the file is too large")

// Read returns the content of a regular file of at most limit bytes. Symbolic links are followed,
// because secrets that Kubernetes mounts are links. Each error is an *fs.PathError. If a read of the
// open file failed, the result includes the content that was read.
func Read(path string, limit int64) ([]byte, error) { return read(path, limit, os.Stat, os.OpenFile) }

// ReadIn is Read for a file below root. Symbolic links are not regular files.
func ReadIn(root *os.Root, path string, limit int64) ([]byte, error) {
	return read(path, limit, root.Lstat, root.OpenFile)
}

// ReadBelow is Read for a file below root. Symbolic links are followed, but not out of root.
func ReadBelow(root *os.Root, path string, limit int64) ([]byte, error) {
	return read(path, limit, root.Stat, root.OpenFile)
}

func read(
	path string, limit int64, stat func(string) (fs.FileInfo, error), open func(string, int, fs.FileMode) (*os.File, error),
) ([]byte, error) {
	info, err := stat(path) // opening some devices has side effects
	if err == nil {
		err = check(path, info, limit)
	}
	if err != nil {
		return nil, err
	}
	file, err := open(path, os.O_RDONLY|syscall.O_NONBLOCK, 0) // a FIFO may have replaced the file
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }() // the file is only read
	if info, err = file.Stat(); err == nil {
		err = check(path, info, limit)
	}
	if err != nil {
		return nil, err
	}
	content, err := io.ReadAll(io.LimitReader(file, limit+1))
	if err == nil && int64(len(content)) > limit {
		err = tooLarge(path, limit)
	}
	return content, err
}

func check(path string, info fs.FileInfo, limit int64) error {
	switch {
	case !info.Mode().IsRegular():
		return &fs.PathError{Op: "open", Path: path, Err: ErrNotRegular}
	case info.Size() > limit:
		return tooLarge(path, limit)
	}
	return nil
}

func tooLarge(path string, limit int64) error {
	return &fs.PathError{Op: "read", Path: path, Err: fmt.Errorf("%w: the limit is %d bytes", ErrTooLarge, limit)}
}

// maxSecret is the maximum size in bytes of a file with a password, a key or certificates.
const maxSecret = 1 << 20

// Secret returns the content of a password file without the trailing line break. Its error contains
// no path and does not wrap another error, so that it does not reveal whether other files exist.
func Secret(path string) (string, error) {
	text, err := Read(path, maxSecret)
	if failed, ok := errors.AsType[*fs.PathError](err); ok {
		return "", errors.New(failed.Err.Error())
	}
	for len(text) > 0 && (text[len(text)-1] == '\n' || text[len(text)-1] == '\r') {
		text = text[:len(text)-1]
	}
	if len(text) == 0 {
		return "", errors.New("the file is empty")
	}
	return string(text), nil
}

// Setting is the name of a setting and the path of its file. An empty path means no file.
type Setting struct{ Name, Path string }

// Check returns an error if a file is not a regular file or is too large. It is for files that a
// library reads as a whole, and leaves all other failures to the library.
func Check(settings ...Setting) error {
	for _, s := range settings {
		if s.Path == "" {
			continue
		}
		_, err := Read(s.Path, maxSecret)
		if errors.Is(err, ErrNotRegular) || errors.Is(err, ErrTooLarge) {
			return fmt.Errorf("%s: %w", s.Name, err)
		}
	}
	return nil
}
