// SPDX-License-Identifier: Apache-2.0

package redfishtest

import (
	"context"
	"io"
	"net/http"
	"sync"
)

// RoundTrip answers a request without a network, so that a synctest bubble can wait for it. It makes a Server an
// http.RoundTripper.
func (s *Server) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Body == nil {
		r = r.Clone(r.Context())
		r.Body = http.NoBody
	}
	body, pipe := io.Pipe()
	w := &writer{header: http.Header{}, body: pipe, began: make(chan struct{})}
	stop := context.AfterFunc(r.Context(), func() { _ = pipe.CloseWithError(r.Context().Err()) })
	go func() {
		defer stop()
		s.ServeHTTP(w, r)
		w.WriteHeader(http.StatusOK)
		_ = pipe.CloseWithError(r.Context().Err()) // nil ends the answer
	}()
	select {
	case <-w.began:
	case <-r.Context().Done():
		return nil, r.Context().Err()
	}
	return &http.Response{
		StatusCode: w.status, Header: w.sent, Body: body, ContentLength: -1, Request: r, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
	}, nil
}

// writer hands an answer to RoundTrip.
type writer struct {
	once   sync.Once
	began  chan struct{}
	header http.Header
	sent   http.Header
	status int
	body   *io.PipeWriter
}

func (w *writer) Header() http.Header { return w.header }

func (w *writer) WriteHeader(status int) {
	w.once.Do(func() {
		w.status, w.sent = status, w.header.Clone()
		close(w.began)
	})
}

func (w *writer) Write(p []byte) (int, error) {
	w.WriteHeader(http.StatusOK)
	return w.body.Write(p)
}
