// SPDX-License-Identifier: Apache-2.0

package web

import (
	"context"
	"crypto/subtle"
	"crypto/tls"
	"errors"
	"io/fs"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"

	"golang.org/x/net/netutil"
)

const (
	// maxConnections is the maximum number of connections, with and without the token.
	maxConnections = 64
	// sendBuffer bounds the bytes that the kernel keeps for a client that does not read.
	sendBuffer = 128 << 10
)

// policy prevents the page from loading or sending anything elsewhere, and from making HTML of texts.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; base-uri 'none'; " +
	"form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"

// Serve serves until ctx ends or the listener fails. It closes the listener.
func (s *Server) Serve(ctx context.Context, listener net.Listener) error {
	server := &http.Server{
		Handler: s.Handler(), ReadHeaderTimeout: 5 * time.Second, IdleTimeout: time.Minute, MaxHeaderBytes: 16 << 10,
		BaseContext: func(net.Listener) context.Context { return ctx },
	}
	listener = netutil.LimitListener(buffered{listener}, maxConnections)
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

// buffered bounds the send buffers of connections.
type buffered struct{ net.Listener }

// Accept implements net.Listener.
func (b buffered) Accept() (net.Conn, error) {
	c, err := b.Listener.Accept()
	if t, ok := c.(*net.TCPConn); ok {
		_ = t.SetWriteBuffer(sendBuffer)
	}
	return c, err
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
			http.Error(w, "this is not a name of the server", http.StatusMisdirectedRequest)
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
