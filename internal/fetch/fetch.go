// SPDX-License-Identifier: Apache-2.0

// Package fetch gets JSON from a server that may be slow, broken or hostile. Answers are bounded,
// requests never follow a redirect to another server, and the text of an error stays the same for
// as long as its cause does. No error has the request's URL or headers, which may hold secrets, and
// of the texts of a server only identifiers are shown.
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

// MaxAnswer is the most bytes of an answer's body that are read.
const MaxAnswer = 4 << 20

const maxRedirects = 5

// Client sends requests to one server. It may be used by several goroutines.
type Client struct{ http http.Client }

// New returns a client that sends requests as h does, with the redirects and limits of this package.
func New(h *http.Client) *Client {
	c := &Client{http: *h}
	c.http.CheckRedirect = checkRedirect
	return c
}

// hidden replaces a text of the server.
const hidden = "…"

var identifier = regexp.MustCompile(`^[A-Za-z0-9._:-]{1,64}$`)

// ID returns a text of the server for logs, errors and attributes if it is an identifier: 1 to 64 ASCII
// letters, digits, dots, colons, underscores and hyphens. It returns "…" in place of any other text.
func ID(text string) string {
	if identifier.MatchString(text) {
		return text
	}
	return hidden
}

// Answer is an answer with a status of 200 to 299.
type Answer struct {
	Header http.Header
	Body   []byte
	At     time.Time // when the answer began to arrive
}

// StatusError is an answer with any other status.
type StatusError struct {
	Code   int
	Header http.Header
	Body   []byte // its first MaxAnswer bytes
}

// Error returns the status.
func (e *StatusError) Error() string {
	return fmt.Sprintf("the server answered %d %s", e.Code, http.StatusText(e.Code))
}

// Status returns the status of an error that is a StatusError, else 0.
func Status(err error) int {
	if e, ok := errors.AsType[*StatusError](err); ok {
		return e.Code
	}
	return 0
}

// ErrTooLarge is returned for an answer that is larger than MaxAnswer.
var ErrTooLarge = fmt.Errorf("the answer is larger than %d MiB", MaxAnswer>>20)

// Do sends a request and reads the answer. The error is a *StatusError, ErrTooLarge, or one that
// says why there is no answer.
func (c *Client) Do(req *http.Request) (*Answer, error) {
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, explain(err)
	}
	answer := &Answer{Header: resp.Header, At: time.Now()}
	defer func() { _ = resp.Body.Close() }() // read: nothing can be lost
	good := resp.StatusCode >= 200 && resp.StatusCode <= 299
	if good && resp.ContentLength > MaxAnswer {
		return nil, ErrTooLarge
	}
	answer.Body, err = io.ReadAll(io.LimitReader(resp.Body, MaxAnswer+1))
	if err == nil { // a server that sees the request end may end its answer, too
		err = req.Context().Err()
	}
	switch {
	case !good: // the status says more than what became of its body
		return nil, &StatusError{Code: resp.StatusCode, Header: resp.Header, Body: answer.Body[:min(len(answer.Body), MaxAnswer)]}
	case err != nil:
		return nil, explain(err)
	case len(answer.Body) > MaxAnswer:
		return nil, ErrTooLarge
	}
	return answer, nil
}

// ErrNotJSON is returned for an answer that cannot be decoded.
var ErrNotJSON = errors.New("the answer is not the expected JSON")

// JSON decodes the body into v.
func (a *Answer) JSON(v any) error {
	if json.Unmarshal(a.Body, v) != nil { // its text quotes the answer
		return ErrNotJSON
	}
	return nil
}

// checkRedirect follows redirects on the same server only: another server must not receive the
// credentials, and its answers are not trusted. A POST is never repeated: it may have had an effect
// already. Nor is a request followed by one with another method: the answer to a GET does not
// report the outcome of a DELETE.
func checkRedirect(req *http.Request, via []*http.Request) error {
	if to := server(req.URL); to != server(via[0].URL) {
		if ID(req.URL.Hostname()) == hidden {
			to = hidden
		}
		return &redirectError{to}
	}
	if via[0].Method == http.MethodPost || req.Method != via[0].Method {
		return http.ErrUseLastResponse
	}
	if len(via) > maxRedirects {
		return errRedirects
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

var errRedirects = fmt.Errorf("the server redirects more than %d times", maxRedirects)

// redirectError is a redirect that is not followed.
type redirectError struct{ to string }

func (e *redirectError) Error() string {
	return fmt.Sprintf("the server redirects to another one, which is not followed: if %q is right, set endpoint to it", e.to)
}
