// SPDX-License-Identifier: Apache-2.0

package provider

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"strings"
	"time"

	"go.opentelemetry.io/collector/config/confighttp"

	"github.com/energyreceiver/energyreceiver/internal/fetch"
	"github.com/energyreceiver/energyreceiver/internal/regular"
	"github.com/energyreceiver/energyreceiver/processor/emissions/internal/signal"
)

const (
	// maxForecast is how far ahead a forecast may end: services provide three days at most.
	maxForecast     = 8 * 24 * time.Hour
	serviceMaxAge   = 2 * time.Hour
	idleConnTimeout = 90 * time.Second // of http.DefaultTransport
)

// server is a server that a provider reads.
type server struct {
	client *fetch.Client
	http   *http.Client
	base   *url.URL
}

// clientAt returns the default settings of a client.
func clientAt(endpoint string) confighttp.ClientConfig {
	c := confighttp.NewDefaultClientConfig()
	c.Endpoint = endpoint
	return c
}

// validateClient checks the settings of a client.
func validateClient(c *confighttp.ClientConfig) error {
	_, err := parseEndpoint(c.Endpoint)
	if c.Timeout < 0 {
		err = errors.Join(err, fmt.Errorf("timeout: must not be negative, is %v", c.Timeout))
	}
	return err
}

// parseEndpoint returns the address of a server. The error does not contain it: it may have a secret.
func parseEndpoint(endpoint string) (*url.URL, error) {
	u, err := url.Parse(endpoint)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" || u.RawQuery != "" || u.Fragment != "" {
		return nil, errors.New("endpoint: must be an http or https address without a query")
	}
	return u, nil
}

// server returns the server of a client. No error contains proxy_url, which may have a password.
func (o *Opening) server(c confighttp.ClientConfig) (*server, error) {
	base, err := parseEndpoint(c.Endpoint)
	if err != nil {
		return nil, err
	}
	if err := regular.Check(
		regular.Setting{Name: "tls::ca_file", Path: c.TLS.CAFile},
		regular.Setting{Name: "tls::cert_file", Path: c.TLS.CertFile},
		regular.Setting{Name: "tls::key_file", Path: c.TLS.KeyFile},
	); err != nil {
		return nil, err
	}
	c.Timeout = 0 // the poller applies it: with two timeouts the error would be one or the other
	c.IdleConnTimeout = cmp.Or(c.IdleConnTimeout, idleConnTimeout)
	client, err := c.ToClient(o, o.Host.GetExtensions(), o.Telemetry)
	if _, ok := errors.AsType[*url.Error](err); ok {
		err = errors.New("proxy_url: must be an address")
	}
	if err != nil {
		return nil, err
	}
	return &server{client: fetch.New(client), http: client, base: base}, nil
}

// service returns the options for polling a service on the internet.
func (o *Opening) service(c *confighttp.ClientConfig) signal.Options {
	return signal.Options{Timeout: c.Timeout, MaxAge: cmp.Or(o.MaxAge, serviceMaxAge), Ahead: maxForecast}
}

// get requests a path below the endpoint and returns the body of the answer.
func (s *server) get(ctx context.Context, path string, query url.Values, header http.Header) ([]byte, error) {
	u := *s.base
	u.Path, u.RawPath = strings.TrimSuffix(u.Path, "/")+path, ""
	u.RawQuery = query.Encode()
	r := &http.Request{Method: http.MethodGet, URL: &u, Header: http.Header{"Accept": {"application/json"}}}
	maps.Copy(r.Header, header)
	answer, err := s.client.Do(r.WithContext(ctx))
	if err != nil {
		return nil, err
	}
	return answer.Body, nil
}

// Close closes idle connections.
func (s *server) Close() { s.http.CloseIdleConnections() }
