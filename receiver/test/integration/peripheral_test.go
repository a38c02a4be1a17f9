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

// peripheral is a device of a virtual machine that the test emulates. QEMU is connected to it by a socket.
type peripheral struct {
	socket string
	serve  func(net.Conn) // until the connection ends

	listener net.Listener
	done     chan struct{} // closed when nothing is served any more
	mu       sync.Mutex
	conn     net.Conn // the last one
}

// newPeripheral returns a peripheral that runs until the test ends.
func newPeripheral(t *testing.T, serve func(net.Conn)) *peripheral {
	t.Helper()
	dir, err := os.MkdirTemp("", "peripheral-") // a socket's path is short
	require.NoError(t, err)
	p := &peripheral{socket: filepath.Join(dir, "socket"), serve: serve}
	p.appears(t)
	t.Cleanup(func() {
		p.vanishes()
		require.NoError(t, os.RemoveAll(dir))
	})
	return p
}

// chardev is the option of QEMU for the connection. While the peripheral is gone QEMU looks for it every second.
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

// vanishes ends the connection, and accepts no other one.
func (p *peripheral) vanishes() {
	_ = p.listener.Close() // may be closed already
	p.mu.Lock()
	if p.conn != nil {
		_ = p.conn.Close()
	}
	p.mu.Unlock()
	<-p.done
}
