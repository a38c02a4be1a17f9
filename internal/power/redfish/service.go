// SPDX-License-Identifier: Apache-2.0

package redfish

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/energyreceiver/energyreceiver/internal/fetch"
)

// rootPath is fixed by the specification (DSP0266, 6.3).
const rootPath = "/redfish/v1/"

// loginPause is how long no login is tried after a refused one. BMCs lock an account after three to five wrong logins within
// minutes, and some lock the sender's address.
const loginPause = time.Hour

// The states that a login can end in, but for those of package fetch.
var (
	errRefused = errors.New("the BMC refuses the login: check username and password; " +
		"the next attempt is an hour after the refused one, or when password_file has another password")
	errUnprivileged = errors.New("the BMC refuses to be read after the login: the account needs the privilege Login; " +
		"the next attempt is an hour after the refused one, or when password_file has another password")
	errNoToken = errors.New("the BMC's answer to the login has no X-Auth-Token; " +
		"the next attempt is an hour after it, or when password_file has another password")
	errUnauthorized = errors.New("the BMC wants a login: set username and password, or auth")
	errNoService    = errors.New("there is no Redfish service at the endpoint, or it is switched off")
	errLink         = errors.New("a link is not a path")
)

// service is a Redfish service, with the session or the credentials that it accepts.
type service struct {
	client   *fetch.Client
	base     *url.URL
	username string
	password func() (string, error)

	root    *serviceRoot // nil until it was read
	token   string       // of the session; empty without one
	session string       // the session's path
	basic   string       // the password, where there are no sessions
	proven  bool         // the credentials were accepted by a resource
	refused struct {
		password string
		until    time.Time
		err      error // nil where no login was refused
	}
}

// serviceRoot is the resource from which all others are found.
type serviceRoot struct {
	Systems, Chassis link
	Links            struct{ Sessions link }
}

// link is a reference to a resource.
type link struct {
	Path string `json:"@odata.id"`
}

// get decodes a resource, and returns when it was answered. It logs in where that has to be, again where the session has
// expired.
func (s *service) get(ctx context.Context, path string, resource any) (time.Time, error) {
	if err := s.login(ctx); err != nil {
		return time.Time{}, err
	}
	answer, err := s.do(ctx, http.MethodGet, path, nil)
	if fetch.Status(err) == http.StatusUnauthorized {
		answer, err = s.getAgain(ctx, path)
	}
	if err != nil {
		return time.Time{}, withMessage(err, err)
	}
	s.proven = s.loggedIn()
	return answer.At, answer.JSON(resource)
}

// getAgain repeats a request that was not authorized, after another login if the one before was accepted once.
func (s *service) getAgain(ctx context.Context, path string) (*fetch.Answer, error) {
	switch {
	case s.username == "":
		return nil, errUnauthorized
	case s.basic != "":
		return nil, s.refuse(ctx, s.basic, errRefused)
	}
	if s.proven {
		s.token, s.session, s.proven = "", "", false
		if err := s.login(ctx); err != nil {
			return nil, err
		}
		answer, err := s.do(ctx, http.MethodGet, path, nil)
		if fetch.Status(err) != http.StatusUnauthorized {
			return answer, err
		}
	}
	password, err := s.password()
	if err != nil {
		return nil, err
	}
	return nil, s.refuse(ctx, password, errUnprivileged)
}

func (s *service) loggedIn() bool { return s.token != "" || s.basic != "" }

// login reads the service root, and opens a session where there are credentials.
func (s *service) login(ctx context.Context) error {
	if s.username == "" || s.loggedIn() {
		return s.readRoot(ctx)
	}
	password, err := s.password()
	if err != nil {
		return err
	}
	if s.refused.err != nil && s.refused.password == password && time.Now().Before(s.refused.until) {
		return s.refused.err
	}
	s.refused.err = nil
	if err := s.readRoot(ctx); err != nil {
		return err
	}
	return s.openSession(ctx, password)
}

// readRoot reads the service root, once. It should need no authorization (DSP0266, 13.3.1); where it does, its links are taken
// to be the usual ones.
func (s *service) readRoot(ctx context.Context) error {
	if s.root != nil {
		return nil
	}
	root := new(serviceRoot)
	answer, err := s.do(ctx, http.MethodGet, rootPath, nil)
	if err == nil {
		err = answer.JSON(root)
	}
	switch status := fetch.Status(err); {
	case status == http.StatusUnauthorized && s.username == "":
		return errUnauthorized
	case status == http.StatusNotFound:
		return errNoService
	case err != nil && status != http.StatusUnauthorized:
		return fmt.Errorf("service root: %w", err)
	}
	if err == nil && *root == (serviceRoot{}) { // the password is not for whatever answers there
		return errNoService
	}
	root.Systems.Path = cmp.Or(root.Systems.Path, rootPath+"Systems")
	root.Chassis.Path = cmp.Or(root.Chassis.Path, rootPath+"Chassis")
	root.Links.Sessions.Path = cmp.Or(root.Links.Sessions.Path, rootPath+"SessionService/Sessions")
	s.root = root
	return nil
}

// openSession logs in. Where there is no session service, each request has the password.
func (s *service) openSession(ctx context.Context, password string) error {
	credentials, err := json.Marshal(map[string]string{"UserName": s.username, "Password": password})
	if err != nil {
		return errors.New("the password is not text")
	}
	answer, err := s.do(ctx, http.MethodPost, s.root.Links.Sessions.Path, credentials)
	switch fetch.Status(err) {
	case http.StatusNotFound, http.StatusMethodNotAllowed, http.StatusNotImplemented:
		s.basic = password
		return nil
	case http.StatusBadRequest, http.StatusUnauthorized, http.StatusForbidden:
		return s.refuse(ctx, password, withMessage(errRefused, err))
	}
	if err != nil {
		return fmt.Errorf("login: %w", withMessage(err, err))
	}
	if s.token = answer.Header.Get("X-Auth-Token"); s.token == "" {
		return s.refuse(ctx, password, errNoToken)
	}
	var created link
	_ = answer.JSON(&created) // the header has it, too
	s.session = cmp.Or(answer.Header.Get("Location"), created.Path)
	return nil
}

// refuse notes that the password is not to be tried again for a while, and ends the session that it opened. It returns err.
func (s *service) refuse(ctx context.Context, password string, err error) error {
	_ = s.logout(ctx) // it expires by itself
	s.refused.password, s.refused.until, s.refused.err = password, time.Now().Add(loginPause), err
	return err
}

// logout ends the session, if there is one.
func (s *service) logout(ctx context.Context) error {
	token, session := s.token, s.session
	defer func() { s.token, s.session, s.basic, s.proven = "", "", "", false }()
	if token == "" || session == "" {
		return nil
	}
	_, err := s.do(ctx, http.MethodDelete, session, nil)
	switch fetch.Status(err) {
	case http.StatusUnauthorized, http.StatusNotFound: // it has expired
		return nil
	}
	return err
}

// do sends a request. It goes to the endpoint wherever the path points.
func (s *service) do(ctx context.Context, method, path string, body []byte) (*fetch.Answer, error) {
	to, err := url.Parse(path)
	if err != nil || !strings.HasPrefix(to.Path, "/") {
		return nil, errLink
	}
	to.Scheme, to.Host, to.User, to.Fragment = s.base.Scheme, s.base.Host, nil, ""
	req, err := http.NewRequestWithContext(ctx, method, to.String(), bytes.NewReader(body))
	if err != nil {
		return nil, errLink
	}
	req.Header.Set("Accept", "application/json")
	req.Header.Set("OData-Version", "4.0")
	req.Close = method == http.MethodDelete // nothing follows the end of the session
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	switch {
	case s.token != "":
		req.Header.Set("X-Auth-Token", s.token)
	case s.basic != "":
		req.SetBasicAuth(s.username, s.basic)
	}
	return s.client.Do(req)
}

// withMessage adds the name of the first message that the service's answer has (DSP0266, 8.6), such as
// SessionLimitExceeded, to an error.
func withMessage(err, answered error) error {
	status, ok := errors.AsType[*fetch.StatusError](answered)
	if !ok {
		return err
	}
	var body struct {
		Error struct {
			Info []struct{ MessageID string } `json:"@Message.ExtendedInfo"`
		}
	}
	if json.Unmarshal(status.Body, &body) != nil || len(body.Error.Info) == 0 {
		return err
	}
	id := body.Error.Info[0].MessageID
	id = id[strings.LastIndexByte(id, '.')+1:]
	if id == "" || len(id) > 64 || strings.ContainsFunc(id, func(r rune) bool { return r < '0' || r > 'z' }) {
		return err
	}
	return fmt.Errorf("%w (%s)", err, id)
}
