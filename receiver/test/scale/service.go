// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"io"
	"net"
	"sync/atomic"
	"time"
)

// service balances connections over several addresses, as a Kubernetes Service or HAProxy does:
// each connection goes to the next address that accepts one. A connection ends with either of its
// ends.
type service struct {
	listener  net.Listener
	addresses []string
	next      atomic.Uint32
}

func newService(addresses []string) (*service, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	s := &service{listener: l, addresses: addresses}
	go func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return // closed
			}
			go s.serve(client)
		}
	}()
	return s, nil
}

func (s *service) address() string { return s.listener.Addr().String() }

func (s *service) close() { _ = s.listener.Close() }

func (s *service) serve(client net.Conn) {
	defer func() { _ = client.Close() }()
	first := s.next.Add(1)
	for i := range s.addresses {
		server, err := net.DialTimeout("tcp", s.addresses[(int(first)+i)%len(s.addresses)], time.Second)
		if err != nil {
			continue
		}
		go func() {
			_, _ = io.Copy(server, client) // it ends with the connection
			_ = server.Close()
		}()
		_, _ = io.Copy(client, server)
		_ = server.Close()
		return
	}
}
