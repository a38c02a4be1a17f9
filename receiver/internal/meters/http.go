// SPDX-License-Identifier: Apache-2.0

package meters

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/config/confighttp"

	"github.com/energyreceiver/energyreceiver/internal/power"
	"github.com/energyreceiver/energyreceiver/internal/power/httpmeter"
	"github.com/energyreceiver/energyreceiver/internal/regular"
	"github.com/energyreceiver/energyreceiver/receiver/internal/config"
)

const idleConnTimeout = 90 * time.Second // of http.DefaultTransport

func openHTTP(ctx context.Context, o *meterOptions) (power.Meter, error) {
	var sources []httpmeter.Source
	for id, c := range o.Meters.HTTPSources() {
		source, err := httpSource(ctx, id, c, o)
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

func httpSource(ctx context.Context, id component.ID, c *config.HTTPConfig, o *meterOptions) (httpmeter.Source, error) {
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
		Every: c.PollInterval, Timeout: cmp.Or(c.Timeout, config.HTTPTimeout),
	}, nil
}

// client returns a client with the collector's settings and a timeout, 0 for none. Its error does
// not have proxy_url, in which a password may be.
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
