// SPDX-License-Identifier: Apache-2.0

// Package loopback has network peers for tests of clients.
package loopback

import (
	"context"
	"fmt"
	"net"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
)

// Serve calls answer for one connection after the other until the test ends, closes each connection
// afterwards, and returns the address, host:port.
func Serve(t *testing.T, answer func(conn net.Conn)) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			answer(conn)
			_ = conn.Close()
		}
	}()
	return l.Addr().String()
}

// WithoutDNS lets each lookup of a name fail until the test ends, with another text each time.
func WithoutDNS(t *testing.T) {
	resolver := net.DefaultResolver
	t.Cleanup(func() { net.DefaultResolver = resolver })
	var port atomic.Int32 // IPv4 and IPv6 addresses are looked up side by side
	net.DefaultResolver = &net.Resolver{PreferGo: true, Dial: func(context.Context, string, string) (net.Conn, error) {
		return nil, fmt.Errorf("read udp 127.0.0.1:%d->127.0.0.1:53: connection refused", 40000+port.Add(1))
	}}
}
