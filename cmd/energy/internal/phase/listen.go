// SPDX-License-Identifier: Apache-2.0

package phase

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

const (
	// socketMode lets the owner and the group of the process connect.
	socketMode = 0o660
	// MaxPath is the longest path of a Unix socket in bytes: sun_path without the NUL (unix(7)).
	MaxPath = 107
	// aliveWithin is how long another process has to accept a connection.
	aliveWithin = time.Second
)

// listener is a Unix socket that removes its file when it is closed, unless that is another's by then.
type listener struct {
	*net.UnixListener
	path string
	own  fs.FileInfo
}

// listen listens at a path, in a directory that is made if only it is missing. A socket there that
// no process serves is replaced.
func listen(path string) (*listener, error) {
	if len(path) > MaxPath {
		return nil, fmt.Errorf("the path of a socket has at most %d bytes, not %d", MaxPath, len(path))
	}
	if err := os.Mkdir(filepath.Dir(path), 0o755); err != nil && !errors.Is(err, fs.ErrExist) { //nolint:gosec // the socket's mode controls which users can connect
		return nil, plain(err)
	}
	address := &net.UnixAddr{Name: path, Net: "unix"}
	socket, err := net.ListenUnix("unix", address)
	if errors.Is(err, syscall.EADDRINUSE) {
		if err := removeStale(path); err != nil {
			return nil, err
		}
		socket, err = net.ListenUnix("unix", address)
	}
	if err != nil {
		return nil, plain(err)
	}
	socket.SetUnlinkOnClose(false)
	l := &listener{UnixListener: socket, path: path}
	if err = os.Chmod(path, socketMode); err == nil {
		l.own, err = os.Lstat(path)
	}
	if err != nil {
		_ = l.Close()
		return nil, plain(err)
	}
	return l, nil
}

// removeStale removes a socket whose process has ended.
func removeStale(path string) error {
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return plain(err)
	case info.Mode().Type() != fs.ModeSocket:
		return errors.New("there is a file that is no socket")
	}
	conn, err := net.DialTimeout("unix", path, aliveWithin)
	if err == nil {
		_ = conn.Close()
	}
	if !errors.Is(err, syscall.ECONNREFUSED) {
		return errors.New("another process listens there")
	}
	return plain(os.Remove(path))
}

// Close stops listening and removes the socket's file.
func (l *listener) Close() error {
	if now, err := os.Lstat(l.path); err == nil && l.own != nil && os.SameFile(now, l.own) {
		_ = os.Remove(l.path)
	}
	return l.UnixListener.Close()
}

// plain returns the cause of an error without the call and the path.
func plain(err error) error {
	if errno := syscall.Errno(0); errors.As(err, &errno) {
		return errno
	}
	return err
}
