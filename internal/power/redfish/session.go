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
	// loginPause is the time between a refused login and the next login. BMCs lock an account after
	// three to five wrong logins within minutes. Some also block the address of the client.
	loginPause = time.Hour
	// maxSession is the maximum time that a BMC keeps an idle session: the maximum of
	// SessionTimeout in the schema SessionService (DSP8010).
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

// state is the state of authorization. Requests are authorized by a session (DSP0266, 13.3.4) or,
// without a session, by the password in each request (basic authentication, 13.3.3). Every service
// must accept both. After the BMC has refused the password, no request is sent until the next
// login. A session is preferred because many BMCs check a password slowly and log each check.
//
// A BMC supports 4 to 16 sessions, and drops an abandoned session only after its timeout. Therefore
// at most one session is open at any time:
//
//   - Logins are at least 10 minutes apart. If a session ends earlier, requests carry the password
//     until the next login.
//   - If the BMC refuses a request twice in a row, the session is ended (DELETE) before the next
//     login. If the BMC refuses the token for the DELETE, the DELETE is sent with the password.
//   - A session is abandoned if the response to its login was lost or its DELETE failed. The next
//     login waits until the abandoned session was ended, or has expired after 24 hours. If the BMC
//     also refuses requests with the password, the next login follows after an hour, or after 10
//     minutes if only one login had no response.
//
// The zero state has no password, and a login is due.
type state struct {
	token    string    // token of the open session; empty if no session is open
	used     bool      // reports whether the BMC accepted a request in the open session
	password string    // password of the last login
	refused  error     // the BMC refused the password: no request is sent until the next login; or nil
	why      error     // the reason why no session is open; nil if the BMC does not support sessions
	until    time.Time // time of the next login
	lost     int       // number of consecutive logins without a response
	path     string    // path of the open or abandoned session; empty if the BMC did not report it
	expires  time.Time // when the abandoned session expires; zero if no session is abandoned
}

// authorized requests a resource. If the BMC refuses a request in a session, the request is
// repeated once in the same session, because some BMCs occasionally refuse a valid request. If the
// BMC refuses it again, the request is repeated with other credentials.
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
			s.used = s.used || err == nil && s.token != ""
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
		_ = s.end(ctx) // if this fails, the state contains the abandoned session
	}
}

// denies reports whether err means that the BMC refused the credentials of a read. A BMC that does
// not accept basic authentication instead of a session may respond with 400 or 403.
func (s *service) denies(err error) bool {
	switch fetch.Status(err) {
	case http.StatusUnauthorized:
		return true
	case http.StatusBadRequest, http.StatusForbidden:
		return s.token == "" && s.username != "" && s.why != nil
	}
	return false
}

// open logs in if a login is due. If it returns an error, no request may be sent.
func (s *service) open(ctx context.Context) error {
	waits := time.Now().Before(s.until)
	switch usable := s.username == "" || s.token != "" || waits && s.refused == nil; {
	case usable && s.root == nil:
		return s.readRoot(ctx)
	case usable:
		return nil
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
	// If the BMC does not respond, no login is sent, because it could open a session whose token is
	// lost.
	if err := s.readRoot(ctx); err != nil {
		return err
	}
	return s.logIn(ctx)
}

// logIn sends a login. It returns an error if the BMC refuses the password. After any other
// failure, it sets s.why, and requests use basic authentication.
func (s *service) logIn(ctx context.Context) error {
	credentials, err := json.Marshal(map[string]string{"UserName": s.username, "Password": s.password})
	if err != nil {
		return errors.New("the password is not text")
	}
	req, err := s.request(ctx, http.MethodPost, s.root.Links.Sessions.Path, credentials)
	if err != nil {
		return err
	}
	lost := s.lost
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
		if status == 0 {
			s.lost = lost + 1
		}
		named := withMessage(err, err)
		s.why = fmt.Errorf("login: %w", named)
		refused := status >= 400 && status < 500 || status == http.StatusServiceUnavailable
		// Without a Redfish message, the error may come from a proxy that lost the BMC's response.
		if !refused || named.Error() == err.Error() {
			s.until, s.expires = day, day
		}
	}
	return s.refused
}

// sessionPath returns the path of the session that a login opened, or an empty string if the
// response has no such path. A DELETE of a path that is not a session could do harm.
func sessionPath(a *fetch.Answer) string {
	var created link
	_ = a.JSON(&created) // an error is ignored: the header Location usually has the path as well
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

// refusePassword records that the BMC refused the password in a request, and returns the error of
// all requests until the next login. The next login follows after an hour, or after loginEvery if
// only one login had no response. It does not wait for an abandoned session, because some BMCs
// accept only sessions.
func (s *service) refusePassword() error {
	pause, advice := loginPause, "check username and password"
	if s.lost == 1 {
		pause = loginEvery
	}
	if errors.Is(s.why, fetch.ErrTimeout) {
		advice = "set redfish::timeout to more than a login takes, and check username and password"
	}
	next := time.Now().Add(pause)
	if s.why == nil {
		s.until, s.refused = next, errRefused
		return s.refused
	}
	if !s.expires.IsZero() {
		s.until, s.expires = next, next
	}
	s.refused = fmt.Errorf("%w, and the BMC refuses the password: %s; "+
		"the next attempt is within an hour, or when password_file has another password", s.why, advice)
	return s.refused
}

// end ends the open session. If this fails, the session is abandoned.
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
	if fetch.Status(err) != 0 && !s.isLeft(ctx) { // usually 401, because the session has expired
		return nil
	}
	return err
}

// isLeft reports whether an abandoned session may still be open. It tries to end this session with
// the password. The next attempt follows after loginEvery.
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

// delete ends the session at s.path. It returns nil if the session does not exist.
func (s *service) delete(ctx context.Context) error {
	_, err := s.send(ctx, http.MethodDelete, s.path)
	switch fetch.Status(err) {
	case http.StatusNotFound, http.StatusGone:
		return nil
	}
	return err
}

// close ends the open or abandoned session.
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

// warning returns the reason why requests carry the password. It returns nil if requests do not
// carry the password, or if the BMC does not support sessions.
func (s *service) warning() error {
	if s.token != "" || s.refused != nil || s.why == nil {
		return nil
	}
	return fmt.Errorf("%w: requests carry the password (basic authentication) until the next login, "+
		"at least 10 minutes after the previous one", s.why)
}
