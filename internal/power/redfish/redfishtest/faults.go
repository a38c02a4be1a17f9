// SPDX-License-Identifier: Apache-2.0

package redfishtest

import (
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
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

// Break is a fault: the connection ends without an answer.
func Break(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }

// Slow returns a fault: the server acts after a delay.
func (s *Server) Slow(delay time.Duration) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		wait(r, delay)
		s.serve(w, r)
	}
}

// Then returns a fault: the server acts on the request, and another handler answers it.
func (s *Server) Then(answer http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		s.serve(httptest.NewRecorder(), r)
		answer(w, r)
	}
}

// Late returns a fault: the server acts at once and answers after a delay.
func (s *Server) Late(delay time.Duration) http.HandlerFunc {
	return s.edited(func(r *http.Request, _ http.Header) { wait(r, delay) })
}

// With returns a fault: the server's answer with another header.
func (s *Server) With(name, value string) http.HandlerFunc {
	return s.edited(func(_ *http.Request, h http.Header) { h.Set(name, value) })
}

func (s *Server) edited(edit func(*http.Request, http.Header)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		answer := httptest.NewRecorder()
		s.serve(answer, r)
		edit(r, answer.Header())
		maps.Copy(w.Header(), answer.Header())
		w.WriteHeader(answer.Code)
		_, _ = w.Write(answer.Body.Bytes())
	}
}

func wait(r *http.Request, delay time.Duration) {
	select {
	case <-time.After(delay):
	case <-r.Context().Done():
	}
}

// RoundTrip answers a request without a network, so that a synctest bubble can wait for it. It makes
// a Server an http.RoundTripper.
func (s *Server) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Body == nil {
		r = r.Clone(r.Context())
		r.Body = http.NoBody
	}
	answer, ended := httptest.NewRecorder(), make(chan error, 1)
	go func() {
		defer func() {
			switch e := recover(); e {
			case nil:
			case http.ErrAbortHandler:
				ended <- io.ErrUnexpectedEOF
			default:
				panic(e)
			}
		}()
		s.ServeHTTP(answer, r)
		ended <- r.Context().Err()
	}()
	select {
	case err := <-ended:
		if err != nil {
			return nil, err
		}
	case <-r.Context().Done():
		return nil, r.Context().Err()
	}
	result := answer.Result()
	result.Request = r
	return result, nil
}
