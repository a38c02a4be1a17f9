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
	// loginEvery is the least time between two logins with the same password.
	loginEvery = 10 * time.Minute
	// loginPause is how long no login is tried after a refused one. BMCs lock an account after three to five wrong logins
	// within minutes, and some lock the sender's address.
	loginPause = time.Hour
	// maxLogin is how long the answer to a login is waited for. A session that is opened later is not found.
	maxLogin = loginEvery
	// maxSession is the longest time for which a BMC keeps a session without requests (DSP8010, SessionService,
	// SessionTimeout).
	maxSession = 24 * time.Hour
)

// The states that a login can end in, except those of package fetch.
var (
	errRefused = errors.New("the BMC refuses the login: check username and password; " +
		"the next attempt is an hour after the refused one, or when password_file has another password")
	errUnprivileged = errors.New("the BMC accepts the login but refuses requests: the account needs the privilege Login")
	errNoToken      = errors.New("the BMC's answer to the login has no X-Auth-Token")
	errEnded        = errors.New("the BMC ended the session")
	errNoPath       = errors.New("the BMC's answer to the login has no path of the session")
)

type loginAnswer struct {
	password string
	answer   *fetch.Answer
	err      error
}

// authorized requests a resource. A refused request is repeated once in the same session, because
// some BMCs refuse a valid one now and then, and then with other credentials.
func (s *service) authorized(ctx context.Context, path string) (*fetch.Answer, error) {
	for {
		if err := s.open(ctx); err != nil {
			return nil, err
		}
		answer, err := s.do(ctx, http.MethodGet, path)
		if s.token != "" && fetch.Status(err) == http.StatusUnauthorized {
			answer, err = s.do(ctx, http.MethodGet, path)
		}
		if !s.denies(err) {
			s.accepted = s.accepted || err == nil && s.token != ""
			return answer, err
		}
		switch {
		case s.username == "":
			return nil, errUnauthorized
		case s.token == "":
			return nil, s.refuseBasic(s.basic)
		}
		s.why = errEnded
		if !s.accepted {
			s.why, s.next = errUnprivileged, time.Now().Add(loginPause)
		}
		_ = s.end(ctx) // what is left is noted
	}
}

// authorize adds the credentials in effect.
func (s *service) authorize(req *http.Request) {
	switch {
	case s.token != "":
		req.Header.Set("X-Auth-Token", s.token)
	case s.basic != "":
		req.SetBasicAuth(s.username, s.basic)
	}
}

// open reads the service root, and logs in if that is due.
func (s *service) open(ctx context.Context) error {
	if s.username == "" {
		return s.readRoot(ctx)
	}
	select {
	case late := <-s.login:
		if err := s.take(ctx, late); err != nil {
			return err
		}
	default:
	}
	if s.token != "" || s.basic != "" && s.mustWait() {
		return s.readRoot(ctx)
	}
	s.basic = ""
	password, err := s.password()
	if err != nil {
		return err
	}
	s.client.HideAccount(s.username, password)
	if err := s.refusal(password); err != nil {
		return err
	}
	if !s.mustWait() && !s.endLeft(ctx, password) {
		if err := s.refusal(password); err != nil {
			return err
		}
		if !s.left.until.IsZero() {
			s.next = time.Now().Add(loginEvery)
		}
	}
	if s.mustWait() {
		s.basic = password
		return s.readRoot(ctx)
	}
	root := s.root
	s.root = nil // a BMC that does not answer is not sent a login, which could open a session
	if err := s.readRoot(ctx); err != nil {
		s.root = root
		return err
	}
	return s.logIn(ctx, password)
}

// mustWait reports whether no login is allowed now.
func (s *service) mustWait() bool { return s.login != nil || time.Now().Before(s.next) }

// refusal returns why a password is not to be tried now, else nil.
func (s *service) refusal(password string) error {
	if s.refused.password != password || !time.Now().Before(s.refused.until) {
		s.refused.err = nil
	}
	return s.refused.err
}

// logIn sends a login and waits for its answer for as long as a request may take.
func (s *service) logIn(ctx context.Context, password string) error {
	credentials, err := json.Marshal(map[string]string{"UserName": s.username, "Password": password})
	if err != nil {
		return errors.New("the password is not text")
	}
	background, cancel := context.WithTimeout(context.WithoutCancel(ctx), maxLogin)
	req, err := s.request(background, http.MethodPost, s.root.Links.Sessions.Path, credentials)
	if err != nil {
		cancel()
		return err
	}
	s.last = time.Now()
	s.next = s.last.Add(loginEvery)
	s.basic, s.why = password, fmt.Errorf("login: %w", fetch.ErrTimeout)
	client, answered := s.client.WithoutTimeout(), make(chan loginAnswer, 1)
	s.login = answered
	go func() {
		defer cancel()
		answer, err := client.Do(req)
		answered <- loginAnswer{password, answer, err}
	}()
	if s.timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, s.timeout)
		defer cancel()
	}
	return s.await(ctx)
}

// await waits for the answer to a login until ctx is done.
func (s *service) await(ctx context.Context) error {
	select {
	case l := <-s.login:
		return s.take(ctx, l)
	case <-ctx.Done():
		return nil
	}
}

// take takes the answer to a login. The error is that of a refused password; any other is the reason for basic
// authentication.
func (s *service) take(ctx context.Context, l loginAnswer) error {
	s.login = nil
	switch status := fetch.Status(l.err); {
	case status == http.StatusNotFound, status == http.StatusMethodNotAllowed, status == http.StatusNotImplemented:
		s.why, s.next = nil, time.Now().Add(maxSession) // there is no session service
		return nil
	case status == http.StatusBadRequest, status == http.StatusUnauthorized, status == http.StatusForbidden:
		s.next = time.Time{}
		return s.refuse(l.password, time.Now().Add(loginPause), s.withMessage(errRefused, l.err))
	case l.err != nil:
		named := s.withMessage(l.err, l.err)
		s.why = fmt.Errorf("login: %w", named)
		refused := status >= 400 && status < 500 || status == http.StatusServiceUnavailable
		if !refused || named.Error() == l.err.Error() {
			s.leave("") // the error may be that of a proxy, and the BMC's answer lost on its way
		}
		return nil
	}
	s.token, s.path, s.accepted = l.answer.Header.Get("X-Auth-Token"), sessionPath(l.answer), false
	if s.token == "" {
		s.why, s.next = errNoToken, time.Now().Add(maxSession)
		s.leave(s.path)
		s.endLeft(ctx, l.password)
		return s.refusal(l.password)
	}
	s.basic, s.why = "", nil
	return nil
}

// sessionPath returns the path of the session that a login opened, empty if the answer has none: a
// DELETE of anything else could do harm.
func sessionPath(a *fetch.Answer) string {
	var created link
	_ = a.JSON(&created) // mostly the header has it, too
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

// refuse notes that a password is not to be tried again until a time. It returns err.
func (s *service) refuse(password string, until time.Time, err error) error {
	s.basic = ""
	s.refused.password, s.refused.until, s.refused.err = password, until, err
	return err
}

// refuseBasic notes that the BMC refused the password in a request. Where it has sessions, it may
// accept no other authorization, so that an hour after the last login is the time of the next one
// at the latest, or, if a session may be open, at the earliest.
func (s *service) refuseBasic(password string) error {
	if s.why == nil {
		s.next = time.Now().Add(loginPause)
		return s.refuse(password, s.next, errRefused)
	}
	if hour := s.last.Add(loginPause); s.next.After(hour) || !s.left.until.IsZero() {
		s.next = hour
	}
	if s.left.until.After(s.next) {
		s.left.until = s.next
		if !time.Now().Before(s.next) {
			s.left.until = time.Time{}
		}
	}
	return s.refuse(password, s.next, fmt.Errorf("%w, and the BMC refuses the password: check username and password; "+
		"the next attempt is within an hour, or when password_file has another password", s.why))
}

// leave notes that a session may be open. Its path is empty if it is unknown.
func (s *service) leave(path string) {
	s.left.path, s.left.until = path, time.Now().Add(maxSession)
}

// end ends the open session, if there is one. If that fails the session is left.
func (s *service) end(ctx context.Context) error {
	if s.token == "" {
		return nil
	}
	s.leave(s.path)
	err := errNoPath
	if s.path != "" {
		err = s.delete(ctx, s.path)
	}
	s.token, s.path = "", ""
	switch {
	case err == nil:
		s.left.until = time.Time{}
	case fetch.Status(err) != 0: // mostly 401, because the session has expired
		if password, failed := s.password(); failed == nil && s.endLeft(ctx, password) {
			err = nil
		}
	}
	return err
}

// endLeft reports whether no session can be open. It ends one that is left, by the password.
func (s *service) endLeft(ctx context.Context, password string) bool {
	if !time.Now().Before(s.left.until) {
		s.left.until = time.Time{}
		return true
	}
	if s.left.path == "" || s.refusal(password) != nil {
		return false
	}
	before := s.basic
	s.basic = password
	err := s.delete(ctx, s.left.path)
	s.basic = before
	switch {
	case err == nil:
		s.left.until = time.Time{}
	case fetch.Status(err) == http.StatusUnauthorized:
		_ = s.refuseBasic(password)
	}
	return err == nil
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

// delete ends a session. One that is not there has ended.
func (s *service) delete(ctx context.Context, path string) error {
	req, err := s.request(ctx, http.MethodDelete, path, nil)
	if err != nil {
		return err
	}
	req.Close = true // nothing follows the end of the session
	s.authorize(req)
	_, err = s.client.Do(req)
	switch fetch.Status(err) {
	case http.StatusNotFound, http.StatusGone:
		return nil
	}
	return err
}

// close ends the session, also one whose login is not answered yet. If that takes longer than ctx
// allows, it goes on in the background.
func (s *service) close(ctx context.Context) error {
	if s.login == nil && s.token == "" && s.left.until.IsZero() {
		return nil
	}
	ended := make(chan error, 1)
	go func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), maxLogin+time.Minute)
		defer cancel()
		ended <- s.endAll(ctx)
	}()
	err := fetch.ErrTimeout
	select {
	case err = <-ended:
	case <-ctx.Done():
	}
	if err != nil {
		return fmt.Errorf("a session was not ended and expires by itself: %w", err)
	}
	return nil
}

// endAll ends the session that is open, that a login will open, or that is left.
func (s *service) endAll(ctx context.Context) error {
	if s.login != nil {
		_ = s.await(ctx) // the reason is in s.why
	}
	if err := s.end(ctx); err != nil || s.left.until.IsZero() {
		return err
	}
	password, err := s.password()
	if err == nil && !s.endLeft(ctx, password) {
		err = s.why
	}
	return err
}

// warning returns why requests carry the password, nil if they do not or if the BMC has no sessions.
func (s *service) warning() error {
	if s.basic == "" || s.why == nil {
		return nil
	}
	return fmt.Errorf("%w: requests carry the password (basic authentication) until the next login, "+
		"at least 10 minutes after the previous one", s.why)
}
