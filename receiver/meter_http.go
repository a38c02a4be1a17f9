// SPDX-License-Identifier: Apache-2.0

package energyreceiver

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"time"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/config/confighttp"
	"go.opentelemetry.io/collector/confmap"

	"github.com/energyreceiver/energyreceiver/internal/power"
	"github.com/energyreceiver/energyreceiver/internal/power/httpmeter"
	"github.com/energyreceiver/energyreceiver/internal/regular"
)

// HTTPConfig configures a number in a JSON document that is read over HTTP: the power or energy that a smart plug or another
// device measures.
type HTTPConfig struct {
	confighttp.ClientConfig `mapstructure:",squash"`
	PollConfig              `mapstructure:",squash"`
	CorrectionConfig        `mapstructure:",squash"`

	// Pointer is the JSON pointer (RFC 6901) to the number. It is empty if the document is the number.
	Pointer string `mapstructure:"pointer"`
	// Unit is the unit of the number, of power or of energy.
	Unit string `mapstructure:"unit"`
	// Zone is the zone kind that the number measures.
	Zone power.Kind `mapstructure:"zone"`

	_ struct{}
}

const (
	httpInterval    = 10 * time.Second
	httpTimeout     = 5 * time.Second
	minHTTPInterval = time.Second
	idleConnTimeout = 90 * time.Second // of http.DefaultTransport
)

func defaultHTTPConfig() HTTPConfig {
	return HTTPConfig{
		ClientConfig:     confighttp.ClientConfig{Timeout: httpTimeout},
		PollConfig:       PollConfig{PollInterval: httpInterval},
		CorrectionConfig: uncorrected,
		Zone:             power.Platform,
	}
}

// Unmarshal implements confmap.Unmarshaler. It sets the defaults: a map has none.
func (c *HTTPConfig) Unmarshal(conf *confmap.Conf) error {
	*c = defaultHTTPConfig()
	return conf.Unmarshal(c)
}

// validate checks the settings. No error contains the endpoint, which may hold a secret.
func (c *HTTPConfig) validate(wrong reporter) {
	if u, err := url.Parse(c.Endpoint); err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		wrong("endpoint", "must be an http or https address")
	}
	if _, err := httpmeter.ParsePointer(c.Pointer); err != nil {
		wrong("pointer", "%w", err)
	}
	oneOf(wrong, "unit", c.Unit, httpmeter.Units()...)
	oneOf(wrong, "zone", c.Zone, power.Platform, power.Package, power.DRAM, power.GPU)
	c.PollConfig.validate(wrong, minHTTPInterval)
	c.CorrectionConfig.validate(wrong, c.PollInterval)
	if c.Timeout < 0 {
		wrong("timeout", "must not be negative, is %v", c.Timeout)
	}
}

// http yields the HTTP sources in the order of their IDs.
func (c *MetersConfig) http() iter.Seq2[component.ID, *HTTPConfig] {
	return func(yield func(component.ID, *HTTPConfig) bool) {
		ids := slices.SortedFunc(maps.Keys(c.HTTP), func(a, b component.ID) int { return cmp.Compare(a.String(), b.String()) })
		for _, id := range ids {
			source := c.HTTP[id]
			if !yield(id, &source) {
				return
			}
		}
	}
}

// httpZoneID returns the ID of the zone of an HTTP source.
func httpZoneID(id component.ID) string { return "http:" + id.Name() }

func openHTTP(ctx context.Context, o *meterOptions) (power.Meter, error) {
	var sources []httpmeter.Source
	for id, config := range o.Meters.http() {
		source, err := config.source(ctx, id, o)
		if err != nil {
			return nil, fmt.Errorf("meters::%s: %w", id, err)
		}
		sources = append(sources, source)
	}
	if sources == nil {
		return nil, nil
	}
	return httpmeter.New(sources), nil
}

func (c *HTTPConfig) source(ctx context.Context, id component.ID, o *meterOptions) (httpmeter.Source, error) {
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
		Name: id.Name(), Client: client, URL: c.Endpoint, Pointer: pointer, Unit: unit, Kind: c.Zone,
		Every: c.PollInterval, Timeout: cmp.Or(c.Timeout, httpTimeout),
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
