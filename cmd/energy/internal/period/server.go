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
	"net"
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
	client   http.Client
	warnings []string // of responses
	maxBytes int64    // of a response
}

// NewServer returns a server. Its address may have a path, a user and a password.
func NewServer(address string, header http.Header) (*Server, error) {
	u, err := url.Parse(address)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.RawQuery != "" {
		return nil, errors.New("want a URL such as http://127.0.0.1:9090, without a query") // err has the password
	}
	if user := u.User; user != nil && header.Get("Authorization") == "" {
		password, _ := user.Password()
		(&http.Request{Header: header}).SetBasicAuth(user.Username(), password)
	}
	u.User = nil
	s := &Server{base: u, header: header, maxBytes: 64 << 20, client: http.Client{Timeout: 2 * time.Minute}}
	// A redirect would turn the request into one without a query, and headers are for this server.
	s.client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return s, nil
}

// String returns the address without user and password.
func (s *Server) String() string { return s.base.String() }

// errTooMuch is wrapped by errors of queries that may succeed with fewer steps.
var errTooMuch = errors.New("the query exceeds a limit")

// refusals are the statuses of such errors.
var refusals = []int{
	http.StatusUnprocessableEntity, http.StatusServiceUnavailable, http.StatusGatewayTimeout,
	http.StatusRequestEntityTooLarge,
}

// call sends a request to a path below /api/v1/, and decodes the data of the response.
func (s *Server) call(ctx context.Context, path string, form url.Values, data any) error {
	status, body, err := s.send(ctx, path, form)
	var late net.Error
	var request *url.Error // repeats the address
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case errors.As(err, &late) && late.Timeout():
		return fmt.Errorf("%w: there is no response within %v", errTooMuch, s.client.Timeout)
	case errors.As(err, &request):
		return request.Err
	case err != nil:
		return err
	}
	answer := struct {
		Error     string
		Data      any
		Warnings  []string
		IsPartial bool // of VictoriaMetrics
	}{Data: data}
	switch err := json.Unmarshal(body, &answer); {
	case status != http.StatusOK || answer.Error != "":
		if answer.Error == "" {
			answer.Error = string(body[:min(len(body), 300)])
		}
		err = errors.New(figure.Line(fmt.Sprintf("%d %s: %s", status, http.StatusText(status), answer.Error)))
		if slices.Contains(refusals, status) {
			err = fmt.Errorf("%w: %w", errTooMuch, err)
		}
		return err
	case err != nil:
		return errors.New("this is not the API of Prometheus")
	case answer.IsPartial:
		answer.Warnings = append(answer.Warnings, "Responses are partial: a part of the database is unavailable")
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
	method, address, content := http.MethodPost, s.base.JoinPath("api/v1", path), form.Encode()
	if strings.HasPrefix(path, "label/") { // which accepts only GET
		method, address.RawQuery, content = http.MethodGet, content, ""
	}
	r, err := http.NewRequestWithContext(ctx, method, address.String(), strings.NewReader(content))
	if err != nil {
		return 0, nil, err
	}
	r.Header = s.header.Clone()
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	res, err := s.client.Do(r)
	if err != nil {
		return 0, nil, err
	}
	defer func() { _ = res.Body.Close() }()
	body, err = io.ReadAll(io.LimitReader(res.Body, s.maxBytes+1))
	switch {
	case err == nil && int64(len(body)) > s.maxBytes:
		err = fmt.Errorf("%w: the response has more than %d MiB", errTooMuch, s.maxBytes>>20)
	case res.StatusCode/100 == 3:
		err = errors.New("the server redirects to another address: credentials may be missing, or the path of the API")
	}
	return res.StatusCode, body, err
}

// values returns the values of a label of series that match, in a time range.
func (s *Server) values(ctx context.Context, label, match string, span Span) (values []string, err error) {
	form := url.Values{"match[]": {match}, "start": {unix(span.From)}, "end": {unix(span.To)}}
	err = s.call(ctx, "label/"+label+"/values", form, &values)
	return values, err
}

// series is a series of a response. A value is a time in seconds and a number as text.
type series struct {
	Metric map[string]string
	Values [][2]any
}

// query returns the values of a query at the ends of the steps of a time range.
func (s *Server) query(ctx context.Context, text string, span Span, step time.Duration) ([]series, error) {
	var data struct{ Result []series }
	err := s.call(ctx, "query_range", url.Values{
		"query": {text}, "start": {unix(span.From.Add(step))}, "end": {unix(span.To)}, "step": {fmt.Sprint(step.Seconds())},
	}, &data)
	return data.Result, err
}

func unix(t time.Time) string { return fmt.Sprint(t.Unix()) }
