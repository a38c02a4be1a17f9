// SPDX-License-Identifier: Apache-2.0

package emissions

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/config/confighttp"

	"github.com/energyreceiver/energyreceiver/internal/regular"
	"github.com/energyreceiver/energyreceiver/processor/emissions/internal/signal"
	"github.com/energyreceiver/energyreceiver/processor/emissions/internal/signal/provider"
)

// source is an opened carbon intensity with its attributes.
type source struct {
	signal.Signal
	provider, region string // region is empty where there is none

	accounting    string // location or market
	intensityType string // average or marginal

	// trouble returns why the signal may not be known now, nil if it is. Its text changes only with
	// the reason. It is called after each batch. It may be nil.
	trouble func() error
	// plausibility checks the values in use.
	plausibility plausibility
	// close ends what the signal does on goroutines of its own. It may be nil.
	close func() error
}

// opening holds the settings for opening a source.
type opening struct {
	context.Context
	host   component.Host
	set    component.TelemetrySettings
	maxAge time.Duration // the setting max_age
}

// poll makes a source of a provider, and begins to ask it.
func (o *opening) poll(name, region string, p signal.Provider, options signal.Options) *source {
	poller := signal.NewPoller(p, options)
	poller.Start()
	return &source{
		Signal: poller, provider: name, region: region, close: poller.Close,
		trouble: func() error { return trouble(name, poller.State()) },
	}
}

// trouble returns what is wrong with a provider.
func trouble(name string, state signal.State) error {
	switch {
	case state.Err == nil:
		return nil
	case state.Known:
		return fmt.Errorf("%s: %w; the last value holds for now", name, state.Err)
	}
	return fmt.Errorf("%s: %w; no value is known", name, state.Err)
}

const idleConnTimeout = 90 * time.Second // of http.DefaultTransport

// server returns where a provider is. The error does not have proxy_url, in which a password may be.
func (o *opening) server(c confighttp.ClientConfig) (provider.Server, error) {
	if err := regular.Check(
		regular.Setting{Name: "tls::ca_file", Path: c.TLS.CAFile},
		regular.Setting{Name: "tls::cert_file", Path: c.TLS.CertFile},
		regular.Setting{Name: "tls::key_file", Path: c.TLS.KeyFile},
	); err != nil {
		return provider.Server{}, err
	}
	c.Timeout = 0 // the poller has it: two would end a request with one error or the other
	c.IdleConnTimeout = cmp.Or(c.IdleConnTimeout, idleConnTimeout)
	client, err := c.ToClient(o, o.host.GetExtensions(), o.set)
	if _, ok := errors.AsType[*url.Error](err); ok {
		err = errors.New("proxy_url: must be an address")
	}
	return provider.Server{Client: client, Endpoint: c.Endpoint}, err
}

// parseRate returns a configured number as a rate.
func parseRate(value float64) (signal.Rate, error) {
	return signal.Parse(strconv.FormatFloat(value, 'f', -1, 64), signal.GramsPerKWh)
}

// validateClient checks the settings of a client.
func validateClient(c *confighttp.ClientConfig) []error {
	var errs []error
	if _, err := provider.ParseEndpoint(c.Endpoint); err != nil {
		errs = append(errs, fmt.Errorf("endpoint: %w", err))
	}
	if c.Timeout < 0 {
		errs = append(errs, fmt.Errorf("timeout: must not be negative, is %v", c.Timeout))
	}
	return errs
}

// onlyOne returns an error unless just one of the named settings is set.
func onlyOne(set map[string]bool, names []string) error {
	found := ""
	for _, name := range names {
		switch {
		case !set[name]:
		case found != "":
			return fmt.Errorf("%s: must not be set together with %s: nothing is mixed", name, found)
		default:
			found = name
		}
	}
	if found == "" {
		return fmt.Errorf("one of %s must be set: there is no default", strings.Join(names, ", "))
	}
	return nil
}
