// SPDX-License-Identifier: Apache-2.0

// Package period reports the energy of nodes and their workloads over weeks or months, from a
// database with the HTTP API of Prometheus. It reads the counters of the receiver in steps of equal
// length.
package period

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/energyreceiver/energyreceiver/cmd/energy/internal/figure"
)

// Server is a database with the HTTP API of Prometheus.
type Server struct {
	base     *url.URL // without user and password
	header   http.Header
	client   *http.Client
	warnings []string // of responses
	maxBytes int64    // of a response
}

// answersWithin is the maximum duration of a request: the default limit of Prometheus.
const answersWithin = 2 * time.Minute

// NewServer returns a server. Its address may have a path, a user and a password.
func NewServer(address string, header http.Header) (*Server, error) {
	u, err := url.Parse(address)
	switch {
	case err != nil:
		return nil, errors.New("the URL of the server is not valid") // the error has the password
	case u.Scheme != "http" && u.Scheme != "https" || u.Host == "":
		return nil, errors.New("want a URL of a server such as http://127.0.0.1:9090")
	case u.RawQuery != "" || u.Fragment != "":
		return nil, errors.New("the URL of a server has no query")
	}
	s := &Server{base: u, header: header.Clone(), maxBytes: 64 << 20}
	if s.header == nil {
		s.header = http.Header{}
	}
	if user := u.User; user != nil && s.header.Get("Authorization") == "" {
		password, _ := user.Password()
		r := http.Request{Header: s.header}
		r.SetBasicAuth(user.Username(), password)
	}
	u.User = nil
	// A redirect would turn the request into one without a query, and headers are for this server.
	s.client = &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	return s, nil
}

// String returns the address without user and password.
func (s *Server) String() string { return s.base.String() }

// apiError is an error that a server reported, or the reason that its response is not used.
type apiError struct {
	text    string
	tooMuch bool // a query of fewer steps may succeed
}

// Error implements error.
func (e *apiError) Error() string { return e.text }

// refusals are the statuses of queries that exceed a limit of the server.
var refusals = []int{
	http.StatusUnprocessableEntity, http.StatusServiceUnavailable, http.StatusGatewayTimeout,
	http.StatusRequestEntityTooLarge,
}

// call sends a request to a path below /api/v1/, and decodes the data of the response.
func (s *Server) call(ctx context.Context, path string, form url.Values, data any) error {
	limited, cancel := context.WithTimeout(ctx, answersWithin)
	defer cancel()
	status, body, err := s.send(limited, path, form)
	var request *url.Error // has the address
	switch {
	case err == nil:
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case limited.Err() != nil:
		return &apiError{fmt.Sprintf("no response within %v", answersWithin), true}
	case errors.As(err, &request):
		return request.Err
	default:
		return err
	}
	answer := struct {
		Error     string
		Data      any
		Warnings  []string
		IsPartial bool // of VictoriaMetrics
	}{Data: data}
	err = json.Unmarshal(body, &answer)
	switch {
	case answer.Error != "" || status != http.StatusOK:
		text := answer.Error
		if text == "" {
			text = string(body[:min(len(body), 300)])
		}
		text = figure.Line(fmt.Sprintf("%d %s: %s", status, http.StatusText(status), text))
		return &apiError{text, slices.Contains(refusals, status)}
	case err != nil:
		return errors.New("the response is not one of the Prometheus API")
	case answer.IsPartial:
		answer.Warnings = append(answer.Warnings, "responses are partial: a part of the database is unavailable")
	}
	for _, text := range answer.Warnings {
		if text = figure.Line(text); len(s.warnings) < 5 && !slices.Contains(s.warnings, text) {
			s.warnings = append(s.warnings, text)
		}
	}
	return nil
}

// send returns the status and the body of a response.
func (s *Server) send(ctx context.Context, path string, form url.Values) (status int, body []byte, err error) {
	method, address, query := http.MethodPost, s.base.JoinPath("api/v1", path), strings.NewReader(form.Encode())
	if strings.HasPrefix(path, "label/") { // which takes no POST
		method, address.RawQuery, query = http.MethodGet, form.Encode(), strings.NewReader("")
	}
	r, err := http.NewRequestWithContext(ctx, method, address.String(), query)
	if err != nil {
		return 0, nil, err
	}
	r.Header = s.header.Clone()
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	if host := r.Header.Get("Host"); host != "" {
		r.Host = host
	}
	res, err := s.client.Do(r)
	if err != nil {
		return 0, nil, err
	}
	defer func() { _ = res.Body.Close() }()
	if to := res.Header.Get("Location"); to != "" && res.StatusCode/100 == 3 {
		return 0, nil, errors.New("the server redirects to another address: " +
			"it may require credentials, or the path of the API is another one")
	}
	if body, err = io.ReadAll(io.LimitReader(res.Body, s.maxBytes+1)); err == nil && int64(len(body)) > s.maxBytes {
		err = &apiError{fmt.Sprintf("the response is larger than %d MiB", s.maxBytes>>20), true}
	}
	return res.StatusCode, body, err
}

// values returns the values of a label of series that match, in a time range.
func (s *Server) values(ctx context.Context, label, match string, from, to time.Time) (values []string, err error) {
	form := url.Values{"match[]": {match}, "start": {unix(from)}, "end": {unix(to)}}
	err = s.call(ctx, "label/"+label+"/values", form, &values)
	return values, err
}

// series is a series of a response.
type series struct {
	Metric map[string]string
	Values []sample
}

// sample is a time in seconds and a value as text.
type sample [2]any

// query returns the values of a query at times that are a step apart.
func (s *Server) query(ctx context.Context, text string, first, last time.Time, step time.Duration) ([]series, error) {
	var data struct{ Result []series }
	err := s.call(ctx, "query_range", url.Values{
		"query": {text}, "start": {unix(first)}, "end": {unix(last)}, "step": {fmt.Sprint(step.Seconds())},
	}, &data)
	return data.Result, err
}

func unix(t time.Time) string { return fmt.Sprint(t.Unix()) }
