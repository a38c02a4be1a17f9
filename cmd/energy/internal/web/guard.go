// SPDX-License-Identifier: Apache-2.0

package web

import (
	"context"
	"crypto/subtle"
	"crypto/tls"
	"errors"
	"io"
	"io/fs"
	"log"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
)

const (
	// maxConnections is the maximum number of connections without the token.
	maxConnections = 256
	// sendBuffer bounds the bytes that the kernel keeps for a client that does not read.
	sendBuffer = 128 << 10
)

// policy prevents the page from loading or sending anything elsewhere, and from inserting
// text as HTML.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"

// Serve serves until ctx ends or the listener fails. It closes the listener.
func (s *Server) Serve(ctx context.Context, listener net.Listener) error {
	server := &http.Server{
		Handler: s.Handler(), ReadTimeout: s.deadline, MaxHeaderBytes: 16 << 10,
		BaseContext: func(net.Listener) context.Context { return ctx },
		ErrorLog:    log.New(io.Discard, "", 0), // clients must not write to the terminal
	}
	s.connections.Listener = listener
	listener = &s.connections
	if c := s.options.Certificate; c != nil {
		listener = tls.NewListener(listener, &tls.Config{Certificates: []tls.Certificate{*c}, MinVersion: tls.VersionTLS12})
	}
	stop := context.AfterFunc(ctx, func() { _ = server.Close() })
	defer stop()
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// connections bounds the number of connections and their send buffers. Other users of this machine can
// connect: if there are too many connections, the oldest one without the token is closed.
type connections struct {
	net.Listener
	mu   sync.Mutex
	open []net.Conn
}

// Accept implements net.Listener.
func (c *connections) Accept() (net.Conn, error) {
	accepted, err := c.Listener.Accept()
	if err != nil {
		return nil, err
	}
	if t, ok := accepted.(*net.TCPConn); ok {
		_ = t.SetWriteBuffer(sendBuffer)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.open = append(c.open, accepted); len(c.open) > maxConnections {
		_ = c.open[0].Close() // it may be closed already
		c.open = slices.Delete(c.open, 0, 1)
	}
	return accepted, nil
}

// keep exempts the connection of a request with the token from the limit.
func (c *connections) keep(address string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.open = slices.DeleteFunc(c.open, func(of net.Conn) bool { return of.RemoteAddr().String() == address })
}

// Handler returns the handler of all paths.
func (s *Server) Handler() http.Handler {
	page, err := fs.Sub(files, "page")
	if err != nil {
		panic(err) // it is embedded
	}
	mux := http.NewServeMux()
	mux.Handle("GET /", http.FileServerFS(page))
	live := script(liveFiles)
	mux.HandleFunc("GET /app.js", func(w http.ResponseWriter, r *http.Request) {
		http.ServeContent(w, r, "app.js", time.Time{}, strings.NewReader(live))
	})
	mux.HandleFunc("GET /stream", func(w http.ResponseWriter, r *http.Request) {
		if subtle.ConstantTimeCompare([]byte(r.Header.Get("Authorization")), []byte("Bearer "+s.Token)) != 1 {
			http.Error(w, "the address with the token is required: energy web prints it", http.StatusUnauthorized)
			return
		}
		s.stream(w, r)
	})
	return s.guarded(mux)
}

// guarded refuses requests that do not come from the page itself. A name that an attacker resolves to
// this machine (DNS rebinding) is another Host, and a page of another site is another Origin.
func (s *Server) guarded(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", policy)
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
		h.Set("Cache-Control", "no-store")
		_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(s.deadline))
		switch {
		case !s.isHost(r.Host):
			http.Error(w, "this host name is not accepted: add it with --host", http.StatusMisdirectedRequest)
		case s.isForeign(r):
			http.Error(w, "requests from other sites are refused", http.StatusForbidden)
		default:
			next.ServeHTTP(w, r)
		}
	})
}

// isHost reports whether a Host, with or without a port, is a name of the server. The port may differ
// because of ssh -L.
func (s *Server) isHost(host string) bool {
	if i := strings.LastIndexByte(host, ':'); i > strings.LastIndexByte(host, ']') {
		host = host[:i]
	}
	names := append([]string{"localhost", "127.0.0.1", "[::1]"}, s.options.Hosts...)
	return slices.ContainsFunc(names, func(name string) bool { return strings.EqualFold(name, host) })
}

// isForeign reports whether a page of another site makes a request. A link to the page is allowed.
func (s *Server) isForeign(r *http.Request) bool {
	own := "http://" + r.Host
	if s.options.Certificate != nil {
		own = "https://" + r.Host
	}
	origin, site := r.Header.Get("Origin"), r.Header.Get("Sec-Fetch-Site")
	isLink := r.URL.Path == "/" && r.Header.Get("Sec-Fetch-Mode") == "navigate"
	return origin != "" && origin != own || site != "" && site != "same-origin" && site != "none" && !isLink
}
