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
