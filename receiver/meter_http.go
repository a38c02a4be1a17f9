// SPDX-License-Identifier: Apache-2.0

package energyreceiver

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"time"

	"go.opentelemetry.io/collector/config/confighttp"

	"github.com/energyreceiver/energyreceiver/internal/power"
	"github.com/energyreceiver/energyreceiver/internal/power/httpmeter"
	"github.com/energyreceiver/energyreceiver/internal/regular"
)

// HTTPConfig is a number in a JSON document at an address: the power or the energy that a plug or another device measures.
type HTTPConfig struct {
	confighttp.ClientConfig `mapstructure:",squash"`

	// Name tells the zone from others. Its hw.id is "http:" and the name. That of a graphics card may be its PCI address.
	Name string `mapstructure:"name"`
	// Pointer is the JSON pointer to the number (RFC 6901). Empty if the document is the number.
	Pointer string `mapstructure:"pointer"`
	// Unit is the unit of the number, of a power or of an energy.
	Unit string `mapstructure:"unit"`
	// Zone is what is measured: platform (the default), package, dram or gpu.
	Zone power.Kind `mapstructure:"zone"`
	// Interval is the time from one request to the next. 0 means 10 s.
	Interval time.Duration `mapstructure:"interval"`

	_ struct{}
}

const (
	httpInterval    = 10 * time.Second
	httpTimeout     = 5 * time.Second
	minHTTPInterval = time.Second
	idleConnTimeout = 90 * time.Second // of http.DefaultTransport
)

// Validate checks what can be checked without asking. Each error names its field, and none has the address, which may hold a
// secret.
func (c *HTTPConfig) Validate() error {
	var errs []error
	wrong := func(field, format string, args ...any) {
		errs = append(errs, fmt.Errorf("%s: %w", field, fmt.Errorf(format, args...)))
	}
	if c.Name == "" {
		wrong("name", "must not be empty")
	}
	if u, err := url.Parse(c.Endpoint); err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		wrong("endpoint", "must be an http or https address")
	}
	if _, err := httpmeter.ParsePointer(c.Pointer); err != nil {
		wrong("pointer", "%w", err)
	}
	oneOf(wrong, "unit", c.Unit, httpmeter.Units()...)
	oneOf(wrong, "zone", c.zone(), power.Platform, power.Package, power.DRAM, power.GPU)
	if c.Interval != 0 && c.Interval < minHTTPInterval {
		wrong("interval", "must be 0 or at least %v, is %v", minHTTPInterval, c.Interval)
	}
	if c.Timeout < 0 {
		wrong("timeout", "must not be negative, is %v", c.Timeout)
	}
	return errors.Join(errs...)
}

func (c *HTTPConfig) zone() power.Kind { return cmp.Or(c.Zone, power.Platform) }

// validateHTTP checks the list as a whole.
func validateHTTP(wrong func(field, format string, args ...any), list []HTTPConfig, zones []power.Kind) {
	for i := range list {
		name := func(c HTTPConfig) bool { return c.Name == list[i].Name }
		if slices.ContainsFunc(list[:i], name) {
			wrong(fmt.Sprintf("http::%d::name", i), "%q is used twice", list[i].Name)
		}
		if zone := list[i].zone(); (zone == power.Package || zone == power.DRAM) && !slices.Contains(zones, zone) {
			wrong("zones", "must name %q, the zone of http::%d", zone, i)
		}
	}
}

func openHTTP(ctx context.Context, o *meterOptions) (power.Meter, error) {
	if len(o.HTTP) == 0 {
		return nil, nil
	}
	sources := make([]httpmeter.Source, len(o.HTTP))
	for i := range o.HTTP {
		var err error
		if sources[i], err = o.HTTP[i].source(ctx, o); err != nil {
			return nil, fmt.Errorf("http::%d: %w", i, err)
		}
	}
	return httpmeter.New(sources), nil
}

func (c *HTTPConfig) source(ctx context.Context, o *meterOptions) (httpmeter.Source, error) {
	pointer, err := httpmeter.ParsePointer(c.Pointer)
	if err != nil {
		return httpmeter.Source{}, err
	}
	unit, ok := httpmeter.LookupUnit(c.Unit)
	if !ok {
		return httpmeter.Source{}, fmt.Errorf("no unit %q", c.Unit)
	}
	client, err := o.client(ctx, c.ClientConfig, 0) // the poller has the timeout: two would end a request with one error or the other
	if err != nil {
		return httpmeter.Source{}, err
	}
	return httpmeter.Source{
		Name: c.Name, Client: client, URL: c.Endpoint, Pointer: pointer, Unit: unit, Kind: c.zone(),
		Every: cmp.Or(c.Interval, httpInterval), Timeout: cmp.Or(c.Timeout, httpTimeout),
	}, nil
}

// client returns a client with the collector's settings and a timeout, 0 for none. Its error does not have proxy_url, in which
// a password may be.
func (o *meterOptions) client(ctx context.Context, settings confighttp.ClientConfig, timeout time.Duration) (*http.Client, error) {
	if err := regular.Check(
		regular.Setting{Name: "tls::ca_file", Path: settings.TLS.CAFile},
		regular.Setting{Name: "tls::cert_file", Path: settings.TLS.CertFile},
		regular.Setting{Name: "tls::key_file", Path: settings.TLS.KeyFile},
	); err != nil {
		return nil, err
	}
	settings.Timeout = timeout
	settings.IdleConnTimeout = cmp.Or(settings.IdleConnTimeout, idleConnTimeout)
	client, err := settings.ToClient(ctx, o.host.GetExtensions(), o.set)
	if _, ok := errors.AsType[*url.Error](err); ok {
		return nil, errors.New("proxy_url: must be an address")
	}
	return client, err
}
