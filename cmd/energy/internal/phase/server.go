// SPDX-License-Identifier: Apache-2.0

package phase

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"
)

const (
	// listenAgain is the time after which a failed listener is tried again, and acceptAgain a failed connection.
	listenAgain = 10 * time.Second
	acceptAgain = time.Second
	// patience is how long a client has for a line, and for reading an answer.
	patience = 30 * time.Second
	// maxConns is how many connections there are at once.
	maxConns = 64
)

var (
	errNoEnd = errors.New("the line has no end")
	errMany  = fmt.Errorf("%d connections are open", maxConns)
	errEnded = errors.New("the measurement has ended")
)

// ServerOptions configures a Server: its socket and the receiver of the marks.
type ServerOptions struct {
	// Path is the path of the Unix socket. Its owner and its group may connect.
	Path string
	// Mark takes a mark, and returns once the boundary was measured. It is called from several
	// goroutines. Its context ends when the server is closed.
	Mark func(context.Context, Mark) error
}

// Server takes marks from a Unix socket. It answers each line with "ok" once the boundary was
// measured, or "error: " and why not.
//
// It serves 64 clients at once, and hangs up on a client that sends no line for half a minute.
type Server struct {
	options ServerOptions
	again   time.Duration // listenAgain
	patient time.Duration // patience

	ctx     context.Context
	stop    context.CancelFunc
	running sync.WaitGroup

	mu       sync.Mutex // guards what follows
	listener *listener  // nil while there is none
	err      error
	conns    map[net.Conn]struct{}
}

// NewServer returns a server. Start starts it, and Close ends it.
func NewServer(options ServerOptions) *Server {
	s := &Server{
		options: options, again: listenAgain, patient: patience, conns: map[net.Conn]struct{}{},
	}
	s.ctx, s.stop = context.WithCancel(context.Background())
	return s
}

// Start begins to listen. If that fails, it returns why, and the server tries again every ten
// seconds until it is closed.
func (s *Server) Start() error {
	s.open()
	s.running.Go(func() {
		for s.ctx.Err() == nil {
			if l := s.listening(); l != nil {
				s.accept(l)
			} else {
				sleep(s.ctx, s.again)
				s.open()
			}
		}
	})
	return s.Err()
}

// Err returns why clients cannot connect, nil if they can. Its text stays the same while that lasts.
func (s *Server) Err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

// Close ends the server and all its connections, and removes the socket. It may be called again.
func (s *Server) Close() error {
	s.stop()
	s.mu.Lock()
	if s.listener != nil {
		_ = s.listener.Close()
	}
	for conn := range s.conns {
		_ = conn.Close()
	}
	s.mu.Unlock()
	s.running.Wait()
	return nil
}

func (s *Server) listening() *listener {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.listener
}

// open listens, unless the server is closed.
func (s *Server) open() {
	l, err := listen(s.options.Path)
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case err != nil:
		s.err = fmt.Errorf("%s: %w", s.options.Path, err)
	case s.ctx.Err() != nil: // closed meanwhile
		_ = l.Close()
	default:
		s.listener, s.err = l, nil
	}
}

// accept serves each connection until the server is closed.
func (s *Server) accept(l *listener) {
	for {
		conn, err := l.Accept()
		switch {
		case s.ctx.Err() != nil:
			if err == nil {
				_ = conn.Close()
			}
			return
		case err != nil:
			s.note(fmt.Errorf("%s: %w", s.options.Path, plain(err)))
			sleep(s.ctx, acceptAgain)
			continue
		}
		s.note(nil)
		if s.admit(conn) {
			s.running.Go(func() { s.serve(conn) })
		} else {
			_ = s.answer(conn, errMany)
			_ = conn.Close()
		}
	}
}

func (s *Server) note(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.err = err
}

func (s *Server) admit(conn net.Conn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ctx.Err() != nil || len(s.conns) >= maxConns {
		return false
	}
	s.conns[conn] = struct{}{}
	return true
}

// serve answers a client's lines until it hangs up.
func (s *Server) serve(conn net.Conn) {
	defer func() {
		_ = conn.Close()
		s.mu.Lock()
		delete(s.conns, conn)
		s.mu.Unlock()
	}()
	lines := bufio.NewReaderSize(conn, maxLine)
	for {
		if conn.SetReadDeadline(time.Now().Add(s.patient)) != nil {
			return
		}
		line, err := lines.ReadSlice('\n')
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
			_ = s.answer(conn, errLong)
			return
		case errors.Is(err, io.EOF) && len(line) > 0:
			_ = s.answer(conn, errNoEnd)
			return
		case err != nil:
			return
		}
		if s.answer(conn, s.take(string(line))) != nil {
			return
		}
	}
}

// take takes the mark of a line.
func (s *Server) take(line string) error {
	m, err := Parse(line)
	if err != nil {
		return err
	}
	if err := s.options.Mark(s.ctx, m); err != nil {
		return err
	}
	if s.ctx.Err() != nil {
		return errEnded
	}
	return nil
}

// answer reports the outcome of a line to its client.
func (s *Server) answer(conn net.Conn, outcome error) error {
	if err := conn.SetWriteDeadline(time.Now().Add(s.patient)); err != nil {
		return err
	}
	text := ok
	if outcome != nil {
		text = failed + outcome.Error()
	}
	_, err := io.WriteString(conn, text+"\n")
	return err
}

// sleep waits for a time or until ctx is done.
func sleep(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}
