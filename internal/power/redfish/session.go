// SPDX-License-Identifier: Apache-2.0

package redfish

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"path"
	"strings"
	"time"

	"github.com/energyreceiver/energyreceiver/internal/fetch"
)

const (
	// loginEvery is the minimum time between two logins with the same password.
	loginEvery = 10 * time.Minute
	// loginPause is the time between a refused login and the next one. BMCs lock an account after
	// three to five wrong logins within minutes, and some lock the sender's address.
	loginPause = time.Hour
	// maxSession is the longest time for which a BMC keeps a session without requests (DSP8010,
	// SessionService, SessionTimeout).
	maxSession = 24 * time.Hour
)

// The reasons for requests without a session, except the errors of package fetch.
var (
	errRefused = errors.New("the BMC refuses the login: check username and password; " +
		"the next attempt is an hour after the refused one, or when password_file has another password")
	errUnprivileged = errors.New("the BMC accepts the login but refuses requests: the account needs the privilege Login")
	errNoToken      = errors.New("the BMC's answer to the login has no X-Auth-Token")
	errEnded        = errors.New("the BMC ended the session")
	errNoPath       = errors.New("the BMC's answer to the login has no path of the session")
)

// state is how requests are authorized: by a session of the BMC (DSP0266, 13.3.4), by the password in
// each request (basic authentication, 13.3.3), or not at all because the BMC refused the password.
// Every service has to accept both. A session is preferred because many BMCs check a password slowly
// and log each check.
//
// A BMC supports 4 to 16 sessions, and drops an abandoned session only after its timeout. Therefore
// at most one session is open at any time:
//
//   - Logins are at least 10 minutes apart. Requests carry the password meanwhile.
//   - If the BMC refuses a request twice in a row, the session is ended (DELETE) before the next
//     login, with the password if the BMC refuses its token for that, too.
//   - If a session may be left open, because a login's answer was lost or a DELETE failed, the next
//     login follows after the session was ended, or after 24 hours, when it has expired. If the BMC
//     refuses the password in requests, the next login follows after an hour.
//
// The zero state has no password yet: a login is due.
type state struct {
	token    string    // of the open session; empty without a session
	used     bool      // a request in the session was not refused
	password string    // of the last login
	refused  error     // not nil if the BMC refused the password, which is not sent until then
	why      error     // the reason why there is no session; nil if the BMC has no sessions
	until    time.Time // time of the next login
	path     string    // of the session that is open or left; empty if it is unknown
	expires  time.Time // when the session that is left has expired; zero if no session is left
}

// authorized requests a resource. A refused request is repeated once in the same session, because
// some BMCs refuse a valid one now and then, and then with other credentials.
func (s *service) authorized(ctx context.Context, path string) (*fetch.Answer, error) {
	for {
		if err := s.open(ctx); err != nil {
			return nil, err
		}
		answer, err := s.send(ctx, http.MethodGet, path)
		if s.token != "" && fetch.Status(err) == http.StatusUnauthorized {
			answer, err = s.send(ctx, http.MethodGet, path)
		}
		if !s.denies(err) {
			s.used = true
			return answer, err
		}
		switch {
		case s.username == "":
			return nil, errUnauthorized
		case s.token == "":
			return nil, s.refusePassword()
		}
		s.why = errEnded
		if !s.used {
			s.why, s.until = errUnprivileged, time.Now().Add(loginPause)
		}
		_ = s.end(ctx) // a session that is left is in the state
	}
}

// denies reports whether the BMC denied a read its credentials. A BMC that does not accept basic
// authentication in place of a session may answer 400 or 403.
func (s *service) denies(err error) bool {
	switch fetch.Status(err) {
	case http.StatusUnauthorized:
		return true
	case http.StatusBadRequest, http.StatusForbidden:
		return s.token == "" && s.username != "" && s.why != nil
	}
	return false
}

// open logs in if a login is due. The error reports why no request is sent.
func (s *service) open(ctx context.Context) error {
	waits := time.Now().Before(s.until)
	if s.username == "" || s.token != "" || waits && s.refused == nil {
		return s.findRoot(ctx)
	}
	password, err := s.readPassword()
	switch {
	case err != nil:
		return err
	case waits && password == s.password:
		return s.refused
	}
	s.password, s.refused = password, nil
	if s.isLeft(ctx) {
		return s.refused
	}
	// A BMC that does not answer is not sent a login, which could open a session.
	if err := s.readRoot(ctx); err != nil {
		return err
	}
	return s.logIn(ctx)
}

// logIn sends a login. The error reports a refused password; any other failure is the reason for
// basic authentication.
func (s *service) logIn(ctx context.Context) error {
	credentials, err := json.Marshal(map[string]string{"UserName": s.username, "Password": s.password})
	if err != nil {
		return errors.New("the password is not text")
	}
	req, err := s.request(ctx, http.MethodPost, s.root.Links.Sessions.Path, credentials)
	if err != nil {
		return err
	}
	s.state = state{password: s.password, until: time.Now().Add(loginEvery)}
	answer, err := s.client.Do(req)
	day := time.Now().Add(maxSession)
	switch status := fetch.Status(err); {
	case err == nil:
		s.token, s.path = answer.Header.Get("X-Auth-Token"), sessionPath(answer)
		if s.token == "" {
			s.why, s.until, s.expires = errNoToken, day, day
		}
	case status == http.StatusNotFound, status == http.StatusMethodNotAllowed, status == http.StatusNotImplemented:
		s.until = day // there is no session service
	case status == http.StatusBadRequest, status == http.StatusUnauthorized, status == http.StatusForbidden:
		s.until = time.Now().Add(loginPause)
		s.refused = withMessage(errRefused, err)
	default:
		named := withMessage(err, err)
		s.why = fmt.Errorf("login: %w", named)
		refused := status >= 400 && status < 500 || status == http.StatusServiceUnavailable
		if !refused || named.Error() == err.Error() { // possibly the error of a proxy that lost the BMC's answer
			s.until, s.expires = day, day
		}
	}
	return s.refused
}

// sessionPath returns the path of the session that a login opened, or an empty string if the answer
// has none. A DELETE of any other path could do harm.
func sessionPath(a *fetch.Answer) string {
	var created link
	_ = a.JSON(&created) // the header usually has the path, too
	for _, text := range []string{a.Header.Get("Location"), created.Path} {
		u, err := url.Parse(text)
		if err != nil {
			continue
		}
		p := strings.TrimRight(u.Path, "/")
		if p == path.Clean(p) && strings.HasPrefix(p, rootPath) && path.Base(path.Dir(p)) == "Sessions" {
			return u.EscapedPath()
		}
	}
	return ""
}

// refusePassword records that the BMC refused the password in a request. If it has sessions, it may
// accept no other authorization, so that the next login follows after an hour even if a session is
// left. It returns the error for the time until then.
func (s *service) refusePassword() error {
	hour := time.Now().Add(loginPause)
	if s.why == nil {
		s.until, s.refused = hour, errRefused
		return s.refused
	}
	if !s.expires.IsZero() {
		s.until, s.expires = hour, hour
	}
	s.refused = fmt.Errorf("%w, and the BMC refuses the password: check username and password; "+
		"the next attempt is within an hour, or when password_file has another password", s.why)
	return s.refused
}

// end ends the open session. If that fails, the session is left.
func (s *service) end(ctx context.Context) error {
	err := errNoPath
	if s.path != "" {
		err = s.delete(ctx)
	}
	s.token = ""
	if err == nil {
		return nil
	}
	s.expires = time.Now().Add(maxSession)
	if fetch.Status(err) != 0 && !s.isLeft(ctx) { // mostly 401, because the session has expired
		return nil
	}
	return err
}

// isLeft reports whether a session may be open. It tries to end that session with the password, and
// again after loginEvery.
func (s *service) isLeft(ctx context.Context) bool {
	if !time.Now().Before(s.expires) {
		s.expires = time.Time{}
		return false
	}
	if s.path == "" {
		return true
	}
	err := s.delete(ctx)
	switch {
	case err == nil:
		s.expires = time.Time{}
	case fetch.Status(err) == http.StatusUnauthorized:
		_ = s.refusePassword()
	default:
		s.until = time.Now().Add(loginEvery)
	}
	return err != nil
}

// delete ends the session at path. A session that does not exist has ended.
func (s *service) delete(ctx context.Context) error {
	_, err := s.send(ctx, http.MethodDelete, s.path)
	switch fetch.Status(err) {
	case http.StatusNotFound, http.StatusGone:
		return nil
	}
	return err
}

// close ends the session that is open or left.
func (s *service) close(ctx context.Context) error {
	var err error
	if s.token != "" {
		err = s.end(ctx)
	} else if s.isLeft(ctx) {
		err = s.why
	}
	if err != nil {
		return fmt.Errorf("a session was not ended and expires by itself: %w", err)
	}
	return nil
}

// warning returns why requests carry the password. It returns nil if they do not or if the BMC has no
// sessions.
func (s *service) warning() error {
	if s.token != "" || s.refused != nil || s.why == nil {
		return nil
	}
	return fmt.Errorf("%w: requests carry the password (basic authentication) until the next login, "+
		"at least 10 minutes after the previous one", s.why)
}
