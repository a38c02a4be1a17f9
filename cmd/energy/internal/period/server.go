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
	"maps"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/energyreceiver/energyreceiver/cmd/energy/internal/figure"
)

// server is a database with the HTTP API of Prometheus.
type server struct {
	base     *url.URL // http.Client sends its user and password
	header   http.Header
	client   http.Client
	maxBytes int64    // of a response
	notes    []string // warnings of responses, and notes on the report
}

// CheckServer returns an error if an address is not valid for Options.Server.
func CheckServer(address string) error {
	_, err := newServer(address, nil)
	return err
}

// newServer returns a server. Its address may have a path, a user and a password.
func newServer(address string, header http.Header) (*server, error) {
	u, err := url.Parse(address)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.RawQuery != "" {
		text := "--prometheus must be a URL such as http://127.0.0.1:9090, without a query" // err has the password
		if strings.Contains(address, "@") {
			text += ". The user and the password must be percent-encoded: % is %25, @ is %40"
		}
		return nil, errors.New(text)
	}
	s := &server{base: u, header: header, maxBytes: 64 << 20, client: http.Client{Timeout: 2 * time.Minute}}
	// A redirect would drop the query and send the headers to another server.
	s.client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return s, nil
}

// String returns the address without user and password.
func (s *server) String() string {
	u := *s.base
	u.User = nil
	return u.String()
}

// withoutSecrets returns a text of the server without the password and the values of headers, which
// the server may repeat. Words of fewer than eight letters, such as tenants, are no secrets.
func (s *server) withoutSecrets(text string) string {
	password, _ := s.base.User.Password()
	secrets := []string{password}
	for _, values := range s.header {
		secrets = append(secrets, strings.Fields(strings.Join(values, " "))...)
	}
	for _, secret := range secrets {
		if secret == password && secret != "" || len(secret) >= 8 {
			text = strings.ReplaceAll(text, secret, "…")
		}
	}
	return text
}

// note adds a note unless the report has it.
func (s *server) note(format string, args ...any) {
	if text := figure.Line(fmt.Sprintf(format, args...)); !slices.Contains(s.notes, text) && len(s.notes) < 20 {
		s.notes = append(s.notes, text)
	}
}

// errTooMuch is wrapped by errors of queries that may succeed with fewer steps.
var errTooMuch = errors.New("the query exceeds a limit")

// refusals are the statuses of such errors.
var refusals = []int{
	http.StatusUnprocessableEntity, http.StatusServiceUnavailable, http.StatusGatewayTimeout,
	http.StatusRequestEntityTooLarge,
}

// call sends a request to a path below /api/v1/, and decodes the data of the response.
func (s *server) call(ctx context.Context, path string, form url.Values, data any) error {
	status, body, err := s.send(ctx, path, form)
	var late net.Error
	var tooLarge *http.MaxBytesError
	var request *url.Error // repeats the address
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case errors.As(err, &tooLarge):
		return fmt.Errorf("%w: the response has more than %d MiB", errTooMuch, s.maxBytes>>20)
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
	err = json.Unmarshal(body, &answer)
	switch {
	case status != http.StatusOK || answer.Error != "":
		if answer.Error == "" {
			answer.Error = string(body[:min(len(body), 300)])
		}
		err = errors.New(figure.Line(fmt.Sprintf("%d %s: %s", status, http.StatusText(status), s.withoutSecrets(answer.Error))))
		if slices.Contains(refusals, status) {
			err = fmt.Errorf("%w: %w", errTooMuch, err)
		}
		return err
	case err != nil:
		return fmt.Errorf("this is not the API of Prometheus: %w", err)
	case answer.IsPartial:
		s.note("Responses are partial: a part of the database is unavailable")
	}
	for _, text := range answer.Warnings {
		s.note("%s", s.withoutSecrets(text))
	}
	return nil
}

// send returns the status and the body of a response.
func (s *server) send(ctx context.Context, path string, form url.Values) (status int, body []byte, err error) {
	method, address, content := http.MethodPost, s.base.JoinPath("api/v1", path), form.Encode()
	if strings.HasPrefix(path, "label/") { // which accepts only GET
		method, address.RawQuery, content = http.MethodGet, content, ""
	}
	r, err := http.NewRequestWithContext(ctx, method, address.String(), strings.NewReader(content))
	if err != nil {
		return 0, nil, err
	}
	maps.Copy(r.Header, s.header)
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	res, err := s.client.Do(r)
	if err != nil {
		return 0, nil, err
	}
	defer func() { _ = res.Body.Close() }()
	body, err = io.ReadAll(http.MaxBytesReader(nil, res.Body, s.maxBytes))
	return res.StatusCode, body, err
}

// series is a series of a response. A value is a time in seconds and a number.
type series struct {
	Metric map[string]string
	Values [][2]json.Number
}

// query returns the values of a query at the ends of steps.
func (s *server) query(ctx context.Context, text string, steps []Step) ([]series, error) {
	var data struct{ Result []series }
	err := s.call(ctx, "query_range", url.Values{
		"query": {text}, "step": {fmt.Sprint(StepLength.Seconds())},
		"start": {unix(steps[0].Start.Add(StepLength))}, "end": {unix(steps[len(steps)-1].Start.Add(StepLength))},
	}, &data)
	return data.Result, err
}

func unix(t time.Time) string { return fmt.Sprint(t.Unix()) }
