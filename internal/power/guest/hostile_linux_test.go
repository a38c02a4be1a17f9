// SPDX-License-Identifier: Apache-2.0

package guest

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/mdlayher/vsock"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// named is a listener at a UNIX socket. Its clients are virtual machines: the address that they are
// bound to has the context ID.
type named struct{ net.Listener }

func (l named) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	var cid uint32
	_, _ = fmt.Sscanf(c.RemoteAddr().String(), "@energy-%d-", &cid) // 0 is refused
	return conn{c, &vsock.Addr{ContextID: cid}}, nil
}

// asGuest connects to the socket as a virtual machine.
func asGuest(socket string, cid uint32, connections *atomic.Int64) (*net.UnixConn, error) {
	for {
		local := fmt.Sprintf("@energy-%d-%d-%d", cid, os.Getpid(), connections.Add(1))
		c, err := net.DialUnix("unix", &net.UnixAddr{Net: "unix", Name: local}, &net.UnixAddr{Net: "unix", Name: socket})
		if !errors.Is(err, syscall.EAGAIN) { // more connect at the moment than the kernel queues
			return c, err
		}
	}
}

func openFiles(t *testing.T) int {
	t.Helper()
	names, err := os.ReadDir("/proc/self/fd")
	require.NoError(t, err)
	return len(names)
}

func TestHostileGuestsDoNotDelayOtherGuests(t *testing.T) {
	socket := fmt.Sprintf("@energy-host-%d", os.Getpid())
	report := *wholeReport()
	server := NewServer(9480, func(uint32) (Report, bool) { return report, true })
	listening := make(chan struct{})
	server.Listen = func(uint32) (net.Listener, error) {
		defer close(listening)
		l, err := net.Listen("unix", socket)
		return named{l}, err
	}
	goroutines := runtime.NumGoroutine()
	server.Start()
	<-listening
	files := openFiles(t) // with the runtime's own files for network connections

	const each = 300
	var hostile sync.WaitGroup
	var connections atomic.Int64
	attack := func(cid uint32, connect func(*net.UnixConn)) {
		hostile.Go(func() {
			for range each {
				if c, err := asGuest(socket, cid, &connections); assert.NoError(t, err) {
					connect(c)
				}
			}
		})
	}
	garbage := []byte(strings.Repeat("x", 1<<16))
	attack(3, func(c *net.UnixConn) { _ = c.Close() }) // connects and disconnects
	var halfOpen []*net.UnixConn
	attack(4, func(c *net.UnixConn) { // leaves connections half open
		_ = c.CloseWrite()
		if halfOpen = append(halfOpen, c); len(halfOpen) > 100 {
			assert.NoError(t, halfOpen[0].Close())
			halfOpen = halfOpen[1:]
		}
	})
	attack(5, func(c *net.UnixConn) { // sends garbage for as long as it can
		defer func() { _ = c.Close() }()
		_ = c.SetWriteDeadline(time.Now().Add(100 * time.Millisecond))
		for {
			if _, err := c.Write(garbage); err != nil {
				return
			}
		}
	})
	attacked := make(chan struct{})
	go func() {
		hostile.Wait()
		close(attacked)
	}()
	mostGoroutines, told := 0, 0
	for attacking := true; attacking; told++ {
		select {
		case <-attacked:
			attacking = false
		default:
		}
		c, err := asGuest(socket, 6, &connections)
		require.NoError(t, err)
		require.NoError(t, c.SetReadDeadline(time.Now().Add(time.Minute)))
		text, err := io.ReadAll(c)
		require.NoError(t, err)
		require.JSONEq(t, wholeDocument, string(text))
		require.NoError(t, c.Close())
		mostGoroutines = max(mostGoroutines, runtime.NumGoroutine()-goroutines)
		server.mu.Lock()
		assert.LessOrEqual(t, len(server.conns), 4*maxConnsEach)
		server.mu.Unlock()
	}
	assert.LessOrEqual(t, mostGoroutines, 100, "hundreds of connections leave no goroutine each")
	require.NoError(t, server.Close())
	for _, c := range halfOpen {
		require.NoError(t, c.Close())
	}
	assert.Less(t, openFiles(t), files, "the listener is closed, and all connections")
	t.Logf("%d connections; one virtual machine was told %d times meanwhile; %d goroutines at most", connections.Load(), told, mostGoroutines)
}
