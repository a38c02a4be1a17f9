// SPDX-License-Identifier: Apache-2.0

package phase

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"sync"
	"time"
)

const (
	// maxConns is the maximum number of connections that are served at the same time. Further
	// clients wait.
	maxConns = 64
	// maxLine is the maximum length of a line in bytes, including its end.
	maxLine = 256
	// maxPath is the maximum length of the path of a Unix socket in bytes: sun_path without the NUL
	// (unix(7)).
	maxPath = 107
	// acceptAgain is the pause after a failed accept, for example without a free file descriptor.
	acceptAgain = 100 * time.Millisecond
)

// Server receives events from the processes of one command. It answers each line with "ok" after
// the boundary was measured, or with "error: " and the cause.
type Server struct {
	listener net.Listener
	take     func(ctx context.Context, name string) error
	ctx      context.Context
	stop     context.CancelFunc
	running  sync.WaitGroup
}

// Listen starts a Server at a path, which must not exist. The directory of the path limits who can
// connect.
//
// The server calls take for each event, from several goroutines. take returns after the boundary
// was measured. Its context is done when the server is closed.
func Listen(path string, take func(ctx context.Context, name string) error) (*Server, error) {
	if len(path) > maxPath {
		return nil, fmt.Errorf("the path of a socket has at most %d bytes: %s has %d", maxPath, path, len(path))
	}
	listener, err := net.Listen("unix", path)
	if err != nil {
		return nil, err
	}
	s := &Server{listener: listener, take: take}
	s.ctx, s.stop = context.WithCancel(context.Background())
	for range maxConns {
		s.running.Go(s.accept)
	}
	return s, nil
}

// Close closes all connections and removes the socket.
func (s *Server) Close() {
	s.stop()
	_ = s.listener.Close() // it closes the socket in any case
	s.running.Wait()
}

// accept serves one connection after the other until the server is closed.
func (s *Server) accept() {
	for s.ctx.Err() == nil {
		conn, err := s.listener.Accept()
		if err == nil {
			s.serve(conn)
			continue
		}
		select {
		case <-time.After(acceptAgain):
		case <-s.ctx.Done():
		}
	}
}

// serve answers the lines of a client until the connection is closed.
func (s *Server) serve(conn net.Conn) {
	defer func() { _ = conn.Close() }()
	defer context.AfterFunc(s.ctx, func() { _ = conn.Close() })()
	lines := bufio.NewScanner(conn)
	lines.Buffer(make([]byte, maxLine), maxLine)
	answer := func(err error) error {
		text := ok
		if err != nil {
			text = failed + err.Error()
		}
		_, err = fmt.Fprintln(conn, text)
		return err
	}
	for lines.Scan() {
		name, err := Parse(lines.Text())
		if err == nil {
			err = s.take(s.ctx, name)
		}
		if answer(err) != nil {
			return
		}
	}
	if lines.Err() == bufio.ErrTooLong { //nolint:errorlint // the scanner returns it as it is
		_ = answer(fmt.Errorf("line longer than %d bytes", maxLine))
	}
}
