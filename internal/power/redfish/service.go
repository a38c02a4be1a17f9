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

// maxResource is the maximum size of a resource in bytes. Real resources have about 10 KB. Up to 64
// resources are held at a time, and decoded JSON may take ten times its size.
const maxResource = 512 << 10

var (
	errResource     = fmt.Errorf("the resource is larger than %d KiB", maxResource>>10)
	errUnauthorized = errors.New("the BMC wants a login: set username and password, or auth")
	errNoService    = errors.New("there is no Redfish service at the endpoint, or it is switched off")
	errLink         = errors.New("a link is not a path")
)

// service is a Redfish service, with what authorizes requests: a session of the BMC (DSP0266,
// 13.3.4) or, while there is none, the password in each request (basic authentication, 13.3.3),
// which every service has to accept as well. A session is preferred because many BMCs check a
// password slowly and log each check.
//
// A BMC supports 4 to 16 sessions, and drops an abandoned session only after its timeout, so at
// most one session is open at any time:
//
//   - Logins are at least 10 minutes apart. Requests have the password meanwhile. If the BMC
//     refuses that, they wait.
//   - A session that the BMC refuses twice in a row is ended (DELETE) before the next login, with
//     the password if its token is refused for that, too.
//   - A login is sent once, and its answer is waited for in the background after the request's
//     timeout. A late session is used.
//   - If a session may be left open, because a login's answer was lost or a DELETE failed, the next
//     login follows after the session was ended, or after 24 hours, when it has expired. If the BMC
//     refuses the password in requests, there is no other way to read it, and the next login
//     follows after an hour.
//
// Without a username requests are sent as the client does.
type service struct {
	client   *fetch.Client
	base     *url.URL
	username string
	password func() (string, error)
	timeout  time.Duration // of one request, 0 for none

	root        *serviceRoot       // nil until it was read
	token, path string             // of the open session; the token is empty without one
	accepted    bool               // a resource was read in the session
	login       <-chan loginAnswer // of the login that is not answered yet, else nil
	last, next  time.Time          // when the last login was sent, and when the next one is allowed
	basic       string             // the password that requests have; empty if they have none
	why         error              // why there is no session
	left        struct {           // a session that may be open
		path  string    // empty if it is unknown
		until time.Time // zero if there is none
	}
	refused struct {
		password string
		until    time.Time
		err      error // nil if no password was refused
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

// get decodes a resource and returns the time of its answer.
func (s *service) get(ctx context.Context, path string, resource any) (time.Time, error) {
	answer, err := s.authorized(ctx, path)
	if err != nil {
		return time.Time{}, s.withMessage(err, err)
	}
	if len(answer.Body) > maxResource {
		return time.Time{}, errResource
	}
	return answer.At, answer.JSON(resource)
}

// readRoot reads the service root, once. It should need no authorization (DSP0266, 13.3.1); where
// it does, its links are taken to be the usual ones.
func (s *service) readRoot(ctx context.Context) error {
	if s.root != nil {
		return nil
	}
	root := new(serviceRoot)
	answer, err := s.do(ctx, http.MethodGet, rootPath)
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

// do sends a request with the credentials in effect.
func (s *service) do(ctx context.Context, method, path string) (*fetch.Answer, error) {
	req, err := s.request(ctx, method, path, nil)
	if err != nil {
		return nil, err
	}
	s.authorize(req)
	return s.client.Do(req)
}

// request returns a request without credentials. It goes to the endpoint, whatever host the path names.
func (s *service) request(ctx context.Context, method, path string, body []byte) (*http.Request, error) {
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
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	return req, nil
}

// withMessage adds to an error the name of the first message in the service's answer (DSP0266, 8.6), such as
// SessionLimitExceeded.
func (s *service) withMessage(err, answered error) error {
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
	if id == "" || len(id) > 64 || strings.ContainsFunc(id, func(r rune) bool { return r < '0' || r > 'z' }) || s.client.Show(id) != id {
		return err
	}
	return fmt.Errorf("%w (%s)", err, id)
}
