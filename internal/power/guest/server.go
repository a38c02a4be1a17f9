// SPDX-License-Identifier: Apache-2.0

package guest

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"sync"
	"syscall"
	"time"

	"github.com/mdlayher/vsock"
)

// Server sends virtual machines their reports over vsock (vsock(7)). To each machine that connects
// it writes one document, and then closes the connection. It does not read. The connection of a
// virtual machine without a report is closed at once.
//
// The kernel identifies the virtual machine that connects: vhost drops packets that a guest sends
// under another context ID. So no credentials are needed, and a virtual machine cannot request the
// report of another one.
//
// A virtual machine that does not read, or connects all the time, has at most two connections at
// once, for five seconds each. Further connections are closed at once, so that all other machines
// are served.
//
// If listening at the port fails, the server tries again every ten seconds.
type Server struct {
	// Listen listens at a port. If nil, the server uses the machine's AF_VSOCK sockets. It must not
	// be changed after Start.
	Listen func(port uint32) (net.Listener, error)

	port   uint32
	report func(cid uint32) (Report, bool)
	stop   context.CancelFunc
	done   chan struct{} // closed when no goroutine is left

	mu       sync.Mutex // guards the fields below
	listener net.Listener
	err      error
	conns    map[net.Conn]uint32 // the context IDs of the machines that are being served
}

const (
	// listenAgain is the pause after a failed listen, and acceptAgain the pause after a failed
	// accept.
	listenAgain = 10 * time.Second
	acceptAgain = time.Second
	// writeTimeout is the time limit for a virtual machine to receive its document.
	writeTimeout = 5 * time.Second
	// maxConns is the maximum number of connections at once, and maxConnsEach the maximum per
	// virtual machine.
	maxConns     = 1024
	maxConnsEach = 2
	// anyCID accepts connections to any context ID of the machine (VMADDR_CID_ANY).
	anyCID = 1<<32 - 1
)

// NewServer returns a server for a port, from 1 to 2^32-2. Start starts it. report returns the
// report for the virtual machine with a context ID. The report must not be modified afterwards. ok
// is false if there is no report. report is called from several goroutines.
func NewServer(port uint32, report func(cid uint32) (r Report, ok bool)) *Server {
	return &Server{port: port, report: report, done: make(chan struct{}), conns: map[net.Conn]uint32{}}
}

// Start begins to listen. It returns at once; Err reports failures.
func (s *Server) Start() {
	if s.Listen == nil {
		s.Listen = func(port uint32) (net.Listener, error) { return vsock.ListenContextID(anyCID, port, nil) }
	}
	ctx, stop := context.WithCancel(context.Background())
	s.stop = stop
	go func() {
		defer close(s.done)
		var writers sync.WaitGroup
		defer writers.Wait()
		for ctx.Err() == nil {
			if s.open(ctx) {
				s.serve(ctx, &writers)
			} else {
				sleep(ctx, listenAgain)
			}
		}
	}()
}

// Err returns the reason why virtual machines cannot connect, or nil. The same reason always has
// the same text.
func (s *Server) Err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

// Close ends the server and all its connections. It may be called again, and without Start.
func (s *Server) Close() error {
	if s.stop == nil {
		return nil
	}
	s.stop()
	s.mu.Lock()
	if s.listener != nil {
		_ = s.listener.Close()
	}
	for conn := range s.conns {
		_ = conn.Close()
	}
	s.mu.Unlock()
	<-s.done
	return nil
}

// open opens the listener, and reports whether it is open.
func (s *Server) open(ctx context.Context) bool {
	listener, err := s.Listen(s.port)
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case err != nil:
		s.err = fmt.Errorf("vsock port %d: %w", s.port, listenError(err))
		return false
	case ctx.Err() != nil: // the server was closed
		_ = listener.Close()
		return false
	}
	s.listener, s.err = listener, nil
	return true
}

// listenError returns advice for an error of listen, or the cause of the error if there is no
// advice.
func listenError(err error) error {
	switch {
	case errors.Is(err, syscall.EAFNOSUPPORT):
		return errors.New("sockets of the family AF_VSOCK are not available: load the kernel module vhost_vsock, and allow the family if a sandbox restricts it")
	case errors.Is(err, syscall.EADDRINUSE):
		return errors.New("another program listens at it")
	case errors.Is(err, fs.ErrPermission): // not wrapped: it does not concern energy counters
		return errors.New("permission denied: ports below 1024 need CAP_NET_BIND_SERVICE, and containers a seccomp profile that allows AF_VSOCK")
	}
	return cause(err)
}

// serve answers each connection until ctx is done or the listener is closed.
func (s *Server) serve(ctx context.Context, writers *sync.WaitGroup) {
	for {
		conn, err := s.listener.Accept()
		switch {
		case ctx.Err() != nil || errors.Is(err, net.ErrClosed):
			if err == nil {
				_ = conn.Close()
			}
			return
		case errors.Is(err, syscall.ECONNABORTED): // by the virtual machine, before it was accepted
			continue
		case err != nil:
			s.note(fmt.Errorf("vsock port %d: %w", s.port, cause(err)))
			sleep(ctx, acceptAgain)
			continue
		}
		s.note(nil)
		if cid, ok := s.admit(ctx, conn); ok {
			writers.Go(func() { s.write(conn, cid) })
		} else {
			_ = conn.Close()
		}
	}
}

func (s *Server) note(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.err = err
}

// admit returns the context ID of the virtual machine at the other end of a connection. ok is false
// if the peer is not a virtual machine, or if there are too many connections.
func (s *Server) admit(ctx context.Context, conn net.Conn) (cid uint32, ok bool) {
	peer, ok := conn.RemoteAddr().(*vsock.Addr)
	if !ok || peer.ContextID <= vsock.Host { // the machine itself, or the hypervisor that it runs on
		return 0, false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	each := 0
	for _, cid := range s.conns {
		if cid == peer.ContextID {
			each++
		}
	}
	if ctx.Err() != nil || len(s.conns) >= maxConns || each >= maxConnsEach {
		return 0, false
	}
	s.conns[conn] = peer.ContextID
	return peer.ContextID, true
}

// write writes the document for a virtual machine, if it has a report, and closes the connection.
// Delivery is not checked.
func (s *Server) write(conn net.Conn, cid uint32) {
	defer func() { // both under the lock: the virtual machine may connect again as soon as the connection is closed
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.conns, conn)
		_ = conn.Close()
	}()
	r, ok := s.report(cid)
	if !ok {
		return
	}
	text, err := marshal(&r)
	if err != nil || conn.SetWriteDeadline(time.Now().Add(writeTimeout)) != nil {
		return
	}
	_, _ = conn.Write(text)
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
