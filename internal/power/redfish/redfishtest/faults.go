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

// Break is a fault: the connection is closed without a response.
func Break(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }

// Slow returns a fault: the server waits, then processes the request and responds.
func (s *Server) Slow(delay time.Duration) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		wait(r, delay)
		s.serve(w, r)
	}
}

// Then returns a fault: the server processes the request, but another handler responds.
func (s *Server) Then(answer http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		s.serve(httptest.NewRecorder(), r)
		answer(w, r)
	}
}

// Late returns a fault: the server processes the request at once, but responds after a delay.
func (s *Server) Late(delay time.Duration) http.HandlerFunc {
	return s.edited(func(r *http.Request, _ http.Header) { wait(r, delay) })
}

// With returns a fault: the response of the server has a changed header.
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

// RoundTrip implements http.RoundTripper. It serves a request without a network, so that tests can
// use package synctest.
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
