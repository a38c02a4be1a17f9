// SPDX-License-Identifier: Apache-2.0

// Package provider reads the carbon intensity of electricity from services and from files. Each provider implements
// signal.Provider and is one file.
//
// The documents of all of them are untrusted: sizes are bounded, and a document with one value that is impossible, of
// another place or in another unit is of no use as a whole.
package provider

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/energyreceiver/energyreceiver/internal/fetch"
	"github.com/energyreceiver/energyreceiver/processor/emissions/internal/signal"
)

// What is wrong with an answer.
var (
	errEndpoint = errors.New("must be an http or https address without a query")
	errTime     = errors.New("the answer has a time that cannot be read")
	errEmpty    = errors.New("the answer has no value")
)

// Server is where a provider on the network is.
type Server struct {
	Client *http.Client
	// Endpoint is the address, to which the provider adds paths.
	Endpoint string
}

// ParseEndpoint returns the address of a server. The error does not have it: it may have a secret.
func ParseEndpoint(endpoint string) (*url.URL, error) {
	u, err := url.Parse(endpoint)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" || u.RawQuery != "" || u.Fragment != "" {
		return nil, errEndpoint
	}
	return u, nil
}

// server is an opened Server.
type server struct {
	client *fetch.Client
	http   *http.Client
	base   *url.URL
}

func newServer(s Server) (server, error) {
	base, err := ParseEndpoint(s.Endpoint)
	if err != nil {
		return server{}, fmt.Errorf("endpoint: %w", err)
	}
	return server{client: fetch.New(s.Client), http: s.Client, base: base}, nil
}

// request returns a request for a path below the endpoint.
func (s *server) request(ctx context.Context, path string, query url.Values) (*http.Request, error) {
	u := *s.base
	u.Path = strings.TrimSuffix(u.Path, "/") + path
	u.RawPath = ""
	u.RawQuery = query.Encode()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return nil, errEndpoint // its text quotes the address
	}
	r.Header.Set("Accept", "application/json")
	return r, nil
}

// get sends a request and returns the body of its answer.
func (s *server) get(r *http.Request) ([]byte, error) {
	answer, err := s.client.Do(r)
	if err != nil {
		return nil, err
	}
	return answer.Body, nil
}

// Close closes idle connections.
func (s *server) Close() error {
	s.http.CloseIdleConnections()
	return nil
}

// decode decodes a document into v.
func decode(body []byte, v any) error {
	return (&fetch.Answer{Body: body}).JSON(v)
}

// rate returns the carbon intensity of a JSON number. All other values are errors, null and a missing value among them.
func rate(value json.RawMessage, unit signal.Unit) (signal.Rate, error) {
	text, err := fetch.NumberText(value)
	if err != nil {
		return 0, err
	}
	return signal.Parse(text, unit)
}

// parseTime parses a time of RFC 3339 or one without seconds, which must contain its offset from UTC.
func parseTime(text string) (time.Time, error) {
	for _, layout := range []string{time.RFC3339Nano, "2006-01-02T15:04Z07:00"} {
		if t, err := time.Parse(layout, text); err == nil {
			return t, nil
		}
	}
	return time.Time{}, errTime
}

// mismatch is the error of an answer that is for something else than what was requested. It does not have the server's
// text, which may echo a secret.
func mismatch(what, want string) error {
	return fmt.Errorf("the answer is for another %s than %q", what, want)
}
