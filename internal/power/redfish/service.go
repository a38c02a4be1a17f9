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

// maxResource is the maximum size of a resource in bytes. Typical resources have about 10 KB. Up to
// 64 resources are in memory at the same time, and decoded JSON may take ten times its size.
const maxResource = 512 << 10

var (
	errResource     = fmt.Errorf("the resource is larger than %d KiB", maxResource>>10)
	errUnauthorized = errors.New("the BMC requires a login: set username and password, or auth")
	errNoService    = errors.New("there is no Redfish service at the endpoint, or it is switched off")
	errLink         = errors.New("a link is not a path")
)

// service is a Redfish service and the authorization of requests to it.
type service struct {
	client       *fetch.Client
	base         *url.URL
	username     string // empty: requests are sent without credentials of this package
	readPassword func() (string, error)
	root         *serviceRoot // nil until it was read
	state
}

// serviceRoot is the resource that leads to all others.
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
		return time.Time{}, withMessage(err, err)
	}
	if len(answer.Body) > maxResource {
		return time.Time{}, errResource
	}
	return answer.At, answer.JSON(resource)
}

// readRoot reads the service root without credentials. The specification requires services to allow
// this (DSP0266, 13.3.1). If the service refuses, readRoot assumes the usual links.
func (s *service) readRoot(ctx context.Context) error {
	req, err := s.request(ctx, http.MethodGet, rootPath, nil)
	if err != nil {
		return err
	}
	root := new(serviceRoot)
	answer, err := s.client.Do(req)
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
	if err == nil && *root == (serviceRoot{}) { // do not send the password to a server that is not Redfish
		return errNoService
	}
	root.Systems.Path = cmp.Or(root.Systems.Path, rootPath+"Systems")
	root.Chassis.Path = cmp.Or(root.Chassis.Path, rootPath+"Chassis")
	root.Links.Sessions.Path = cmp.Or(root.Links.Sessions.Path, rootPath+"SessionService/Sessions")
	s.root = root
	return nil
}

// send sends a request with the token, or with the password if there is no session.
func (s *service) send(ctx context.Context, method, path string) (*fetch.Answer, error) {
	req, err := s.request(ctx, method, path, nil)
	if err != nil {
		return nil, err
	}
	switch {
	case s.token != "":
		req.Header.Set("X-Auth-Token", s.token)
	case s.username != "":
		req.SetBasicAuth(s.username, s.password)
	}
	req.Close = method == http.MethodDelete // no request follows the end of the session
	return s.client.Do(req)
}

// request returns a request without credentials. It is sent to the endpoint, even if the path
// contains another host.
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

// withMessage adds to an error the name of the first message in the service's answer (DSP0266,
// 8.6), such as SessionLimitExceeded.
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
	if fetch.ID(id) != id {
		return err
	}
	return fmt.Errorf("%w (%s)", err, id)
}
