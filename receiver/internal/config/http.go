// SPDX-License-Identifier: Apache-2.0

package config

import (
	"cmp"
	"iter"
	"maps"
	"net/url"
	"slices"
	"time"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/config/confighttp"
	"go.opentelemetry.io/collector/confmap"

	"github.com/energyreceiver/energyreceiver/internal/power"
	"github.com/energyreceiver/energyreceiver/internal/power/httpmeter"
)

// HTTPConfig configures a number in a JSON document that is read over HTTP: the power or energy
// that a smart plug or another device measures.
type HTTPConfig struct {
	confighttp.ClientConfig `mapstructure:",squash"`
	PollConfig              `mapstructure:",squash"`
	CorrectionConfig        `mapstructure:",squash"`

	// Pointer is the JSON pointer (RFC 6901) to the number. It is empty if the document is the
	// number.
	Pointer string `mapstructure:"pointer"`
	// Unit is the unit of the number, of power or of energy.
	Unit string `mapstructure:"unit"`
	// Zone is the zone kind that the number measures.
	Zone power.Kind `mapstructure:"zone"`

	_ struct{}
}

const (
	httpInterval = 10 * time.Second
	// HTTPTimeout is the default time limit of a request.
	HTTPTimeout     = 5 * time.Second
	minHTTPInterval = time.Second
)

// DefaultHTTPConfig returns the defaults of a section of meters::http.
func DefaultHTTPConfig() HTTPConfig {
	return HTTPConfig{
		ClientConfig:     confighttp.ClientConfig{Timeout: HTTPTimeout},
		PollConfig:       PollConfig{PollInterval: httpInterval},
		CorrectionConfig: uncorrected,
		Zone:             power.Platform,
	}
}

// Unmarshal implements confmap.Unmarshaler. It sets the defaults: a map has none.
func (c *HTTPConfig) Unmarshal(conf *confmap.Conf) error {
	*c = DefaultHTTPConfig()
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

// HTTPSources yields the HTTP sources in the order of their IDs.
func (c *MetersConfig) HTTPSources() iter.Seq2[component.ID, *HTTPConfig] {
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

// HTTPZoneID returns the ID of the zone of an HTTP source.
func HTTPZoneID(id component.ID) string { return "http:" + id.Name() }
