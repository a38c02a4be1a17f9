// SPDX-License-Identifier: Apache-2.0

package drivers

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/config/confighttp"
	"go.opentelemetry.io/collector/confmap"

	"github.com/energyreceiver/energyreceiver/internal/invalid"
	"github.com/energyreceiver/energyreceiver/internal/power"
	"github.com/energyreceiver/energyreceiver/internal/power/httpmeter"
	"github.com/energyreceiver/energyreceiver/internal/regular"
)

var httpDriver = Driver{
	Name: "http", Energy: "measured by the devices of meters::http",
	Sections: func(c *Config) []Section { return named(c.HTTP) }, Corrected: true,
	Decode: func(c *Config, id component.ID, conf *confmap.Conf) error { return add(&c.HTTP, id, conf) },
	Open:   openHTTP,
}

// HTTPConfig configures the section http/NAME. A section reads one number, a power or an energy,
// from a JSON document over HTTP.
type HTTPConfig struct {
	confighttp.ClientConfig `mapstructure:",squash"`
	PollConfig              `mapstructure:",squash"`
	CorrectionConfig        `mapstructure:",squash"`
	NumberConfig            `mapstructure:",squash"`

	// Pointer is the JSON pointer (RFC 6901) to the number. Leave it empty if the whole document is
	// the number.
	Pointer string `mapstructure:"pointer"`

	_ struct{}
}

// Unmarshal implements confmap.Unmarshaler. It sets the defaults of a section.
func (c *HTTPConfig) Unmarshal(conf *confmap.Conf) error {
	*c = HTTPConfig{
		ClientConfig: confighttp.ClientConfig{Timeout: deviceTimeout}, PollConfig: PollConfig{PollInterval: deviceInterval},
		CorrectionConfig: uncorrected, NumberConfig: NumberConfig{Zone: power.Platform},
	}
	return conf.Unmarshal(c)
}

// validate checks the settings. No error contains the endpoint, which may hold a secret.
func (c *HTTPConfig) validate(wrong invalid.Reporter) {
	if u, err := url.Parse(c.Endpoint); err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		wrong("endpoint", "must be an http or https address")
	}
	if _, err := httpmeter.ParsePointer(c.Pointer); err != nil {
		wrong("pointer", "%w", err)
	}
	c.NumberConfig.validate(wrong)
	c.PollConfig.validate(wrong, minDeviceInterval)
	c.CorrectionConfig.validate(wrong, c.PollInterval)
	if c.Timeout < 0 {
		wrong("timeout", "must not be negative, is %v", c.Timeout)
	}
}

func openHTTP(ctx context.Context, c *Config, env *Env) (power.Meter, error) {
	var sources []httpmeter.Source
	for _, section := range named(c.HTTP) {
		_, name, _ := strings.Cut(section.Key, "/")
		source, err := section.validator.(*HTTPConfig).source(ctx, name, env)
		if err != nil {
			return nil, fmt.Errorf("meters::%s: %w", section.Key, err)
		}
		sources = append(sources, source)
	}
	return httpmeter.New(sources), nil
}

// source returns the source of the section http/name.
func (c *HTTPConfig) source(ctx context.Context, name string, env *Env) (httpmeter.Source, error) {
	pointer, err := httpmeter.ParsePointer(c.Pointer)
	if err != nil {
		return httpmeter.Source{}, err
	}
	unit, ok := httpmeter.LookupUnit(c.Unit)
	if !ok {
		return httpmeter.Source{}, fmt.Errorf("no unit %q", c.Unit)
	}
	// The client has no timeout, because the poller has one. With two timeouts, the error would depend
	// on which of them expires first.
	client, err := env.client(ctx, c.ClientConfig, 0)
	if err != nil {
		return httpmeter.Source{}, err
	}
	return httpmeter.Source{
		Name: name, Client: client, URL: c.Endpoint, Pointer: pointer, Unit: unit, Kind: c.Zone,
		Every: c.PollInterval, Timeout: cmp.Or(c.Timeout, deviceTimeout),
	}, nil
}

const idleConnTimeout = 90 * time.Second // as in http.DefaultTransport

// client returns an HTTP client with the given settings. If timeout is 0, the client has no
// timeout. The error does not contain proxy_url, which may contain a password.
func (e *Env) client(ctx context.Context, settings confighttp.ClientConfig, timeout time.Duration) (*http.Client, error) {
	if err := regular.Check(
		regular.Setting{Name: "tls::ca_file", Path: settings.TLS.CAFile},
		regular.Setting{Name: "tls::cert_file", Path: settings.TLS.CertFile},
		regular.Setting{Name: "tls::key_file", Path: settings.TLS.KeyFile},
	); err != nil {
		return nil, err
	}
	settings.Timeout = timeout
	settings.IdleConnTimeout = cmp.Or(settings.IdleConnTimeout, idleConnTimeout)
	client, err := settings.ToClient(ctx, e.Host.GetExtensions(), e.Telemetry)
	if _, ok := errors.AsType[*url.Error](err); ok {
		return nil, errors.New("proxy_url: must be a URL")
	}
	return client, err
}
