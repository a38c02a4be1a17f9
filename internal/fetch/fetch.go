// SPDX-License-Identifier: Apache-2.0

// Package fetch reads JSON from a server that may be slow, broken or hostile. The size of a
// response is limited, and redirects to another server are not followed. The same cause always has
// the same error text. No error contains the URL or the headers of the request, which may contain
// secrets. Errors contain only those texts from the server that are identifiers.
package fetch

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"time"
)

// MaxAnswer is the maximum size of a response body in bytes.
const MaxAnswer = 4 << 20

const maxRedirects = 5

// Client sends requests to one server. It is safe for concurrent use.
type Client struct{ http http.Client }

// New returns a client that uses a copy of h, with the redirect rules and limits of this package.
func New(h *http.Client) *Client {
	c := &Client{http: *h}
	c.http.CheckRedirect = checkRedirect
	return c
}

var identifier = regexp.MustCompile(`^[A-Za-z0-9._:-]{1,64}$`)

// ID returns text if it is an identifier: 1 to 64 ASCII letters, digits, dots, colons, underscores
// and hyphens. Otherwise it returns "…". Use it for each text from a server in logs, errors and
// attributes.
func ID(text string) string {
	if identifier.MatchString(text) {
		return text
	}
	return "…"
}

// Answer is a response with a status from 200 to 299.
type Answer struct {
	Header http.Header
	Body   []byte
	At     time.Time // the time at which the headers of the response arrived
}

// StatusError is the error for a response with any other status.
type StatusError struct {
	Code   int
	Header http.Header
	Body   []byte // at most the first MaxAnswer bytes of the body
}

// Error returns a text with the status code and its standard name.
func (e *StatusError) Error() string {
	return fmt.Sprintf("the server answered %d %s", e.Code, http.StatusText(e.Code))
}

// Status returns the status code of a StatusError in err, or 0 if err contains no StatusError.
func Status(err error) int {
	if e, ok := errors.AsType[*StatusError](err); ok {
		return e.Code
	}
	return 0
}

// ErrTooLarge is the error for a response that is larger than MaxAnswer.
var ErrTooLarge = fmt.Errorf("the answer is larger than %d MiB", MaxAnswer>>20)

// Do sends a request and reads the response. The error is a *StatusError, ErrTooLarge, or the
// reason why there is no response.
func (c *Client) Do(req *http.Request) (*Answer, error) {
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, explain(err)
	}
	answer := &Answer{Header: resp.Header, At: time.Now()}
	defer func() { _ = resp.Body.Close() }() // read only: no data can be lost
	good := resp.StatusCode >= 200 && resp.StatusCode <= 299
	if good && resp.ContentLength > MaxAnswer {
		return nil, ErrTooLarge
	}
	answer.Body, err = io.ReadAll(io.LimitReader(resp.Body, MaxAnswer+1))
	if err == nil { // a server may end the body early, but without error, when the request is canceled
		err = req.Context().Err()
	}
	switch {
	case !good: // the status is more useful than an error of reading the body
		return nil, &StatusError{Code: resp.StatusCode, Header: resp.Header, Body: answer.Body[:min(len(answer.Body), MaxAnswer)]}
	case err != nil:
		return nil, explain(err)
	case len(answer.Body) > MaxAnswer:
		return nil, ErrTooLarge
	}
	return answer, nil
}

// ErrNotJSON is the error for a response that cannot be decoded.
var ErrNotJSON = errors.New("the answer is not the expected JSON")

// JSON decodes the body into v. The error is ErrNotJSON.
func (a *Answer) JSON(v any) error {
	if json.Unmarshal(a.Body, v) != nil { // the error is not returned: it quotes the response
		return ErrNotJSON
	}
	return nil
}

// checkRedirect allows redirects only on the same server. Another server must not receive the
// credentials, and its responses are not trusted. A POST is not repeated, because the first POST
// may already have had an effect. Redirects that change the method are not followed, because the
// response to a GET does not report the result of a DELETE.
func checkRedirect(req *http.Request, via []*http.Request) error {
	if to := server(req.URL); to != server(via[0].URL) {
		if host := req.URL.Hostname(); ID(host) != host {
			to = ID(host)
		}
		return redirectError(fmt.Sprintf("the server redirects to another one, which is not followed: if %q is right, set endpoint to it", to))
	}
	if via[0].Method == http.MethodPost || req.Method != via[0].Method {
		return http.ErrUseLastResponse
	}
	if len(via) > maxRedirects {
		return redirectError(fmt.Sprintf("the server redirects more than %d times", maxRedirects))
	}
	return nil
}

// server returns the scheme, host and port of a URL.
func server(u *url.URL) string {
	host, port := strings.ToLower(u.Hostname()), u.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[u.Scheme]
	}
	return u.Scheme + "://" + net.JoinHostPort(host, port)
}

// redirectError is the reason why a redirect is not followed.
type redirectError string

func (e redirectError) Error() string { return string(e) }
