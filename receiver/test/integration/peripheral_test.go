// SPDX-License-Identifier: Apache-2.0

//go:build linux

package integration

import (
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// peripheral is a device of a virtual machine that the test emulates. QEMU connects to its socket.
type peripheral struct {
	socket string
	serve  func(net.Conn) // until the connection ends

	listener net.Listener
	done     chan struct{} // closed when serving has ended
	mu       sync.Mutex
	conn     net.Conn // the last connection
}

// newPeripheral returns a peripheral that runs until the test ends.
func newPeripheral(t *testing.T, serve func(net.Conn)) *peripheral {
	t.Helper()
	dir, err := os.MkdirTemp("", "peripheral-") // short: the length of a socket's path is limited
	require.NoError(t, err)
	p := &peripheral{socket: filepath.Join(dir, "socket"), serve: serve}
	p.appears(t)
	t.Cleanup(func() {
		p.vanishes()
		require.NoError(t, os.RemoveAll(dir))
	})
	return p
}

// chardev is QEMU's option for the connection. QEMU tries to reconnect every second.
func (p *peripheral) chardev(id string) string {
	return "socket,id=" + id + ",path=" + p.socket + ",reconnect=1"
}

// appears makes the peripheral serve.
func (p *peripheral) appears(t *testing.T) {
	t.Helper()
	listener, err := net.Listen("unix", p.socket)
	require.NoError(t, err)
	p.listener, p.done = listener, make(chan struct{})
	go func() {
		defer close(p.done)
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			p.mu.Lock()
			p.conn = conn
			p.mu.Unlock()
			p.serve(conn)
			_ = conn.Close()
		}
	}()
}

// vanishes ends the connection and accepts no other connection.
func (p *peripheral) vanishes() {
	_ = p.listener.Close() // may be closed
	p.mu.Lock()
	if p.conn != nil {
		_ = p.conn.Close()
	}
	p.mu.Unlock()
	<-p.done
}
