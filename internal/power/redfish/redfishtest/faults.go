// SPDX-License-Identifier: Apache-2.0

package redfishtest

import (
	"io"
	"net/http"
	"time"
)

// Status returns a fault: an answer with this status, without a body.
func Status(code int) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(code) }
}

// Redirect returns a fault: a redirect to a URL.
func Redirect(url string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, url, http.StatusTemporaryRedirect) }
}

// Text returns a fault: an answer with this body.
func Text(body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, body) }
}

// Hang is a fault: no answer.
func Hang(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }

// Drip is a fault: an answer that goes on with a byte a second.
func Drip(w http.ResponseWriter, r *http.Request) {
	for r.Context().Err() == nil {
		if _, err := io.WriteString(w, " "); err != nil {
			return
		}
		_ = http.NewResponseController(w).Flush()
		wait(r, time.Second)
	}
}

// Huge is a fault: an answer of 1 GiB, as far as the client reads it.
func Huge(w http.ResponseWriter, r *http.Request) {
	block := make([]byte, 1<<20)
	for i := range block {
		block[i] = ' '
	}
	for range 1 << 10 {
		if _, err := w.Write(block); err != nil || r.Context().Err() != nil {
			return
		}
	}
}

// Slow returns a fault: the answer of a server after a delay.
func (s *Server) Slow(delay time.Duration) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		wait(r, delay)
		s.serve(w, r)
	}
}

func wait(r *http.Request, delay time.Duration) {
	timer := time.NewTimer(delay)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-r.Context().Done():
	}
}
