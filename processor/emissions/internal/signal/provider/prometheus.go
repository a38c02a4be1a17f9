// SPDX-License-Identifier: Apache-2.0

package provider

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"time"

	"go.opentelemetry.io/collector/config/confighttp"

	"github.com/energyreceiver/energyreceiver/processor/emissions/internal/signal"
)

// Prometheus reads the result of an instant query
// (https://prometheus.io/docs/prometheus/latest/querying/api): a scalar, or a vector of one sample.
type Prometheus struct {
	confighttp.ClientConfig `mapstructure:",squash"`

	// Query returns a scalar, or a vector of one series, in g CO2e per kWh.
	Query string `mapstructure:"query"`
	// PollInterval is the time from one query to the next.
	PollInterval time.Duration `mapstructure:"poll_interval"`

	_ struct{} // keyed literals only
}

const (
	prometheusMaxAge = 10 * time.Minute
	minPollInterval  = time.Second
)

// NewPrometheus returns the defaults.
func NewPrometheus() Prometheus {
	return Prometheus{ClientConfig: clientAt(""), PollInterval: time.Minute}
}

// Validate checks the settings.
func (c *Prometheus) Validate() error {
	err := errors.Join(validateClient(&c.ClientConfig), notEmpty("query", c.Query))
	if c.PollInterval < minPollInterval {
		err = errors.Join(err, fmt.Errorf("poll_interval: must be at least %v, is %v", minPollInterval, c.PollInterval))
	}
	return err
}

// Open implements Settings.
func (c *Prometheus) Open(o *Opening) (*Source, error) {
	s, err := o.server(c.ClientConfig)
	options := signal.Options{Timeout: c.Timeout, MaxAge: cmp.Or(o.MaxAge, prometheusMaxAge), MaxBackoff: localBackoff}
	return &Source{Provider: &prometheus{s, c.Query, c.PollInterval}, Options: options}, err
}

type prometheus struct {
	*server
	query    string
	interval time.Duration
}

// Ask implements signal.Provider. The value lasts until after the next query, so that a slow answer leaves no gap.
func (p *prometheus) Ask(ctx context.Context) (signal.Answer, error) {
	now := time.Now()
	body, err := p.get(ctx, "/api/v1/query", url.Values{"query": {p.query}}, nil)
	if err != nil {
		return signal.Answer{}, err
	}
	value, err := parsePrometheus(body)
	if err != nil {
		return signal.Answer{}, err
	}
	period := signal.Period{From: now, Until: now.Add(2 * p.interval), Rate: value}
	return signal.Answer{Periods: []signal.Period{period}, Next: now.Add(p.interval)}, nil
}

// parsePrometheus parses an answer of /api/v1/query. It ignores the time of the sample, which is the time of the query.
func parsePrometheus(body []byte) (signal.Rate, error) {
	var answer struct {
		Status string `json:"status"`
		Data   struct {
			Type   string          `json:"resultType"`
			Result json.RawMessage `json:"result"`
		} `json:"data"`
	}
	if err := decode(body, &answer); err != nil {
		return 0, err
	}
	if answer.Status != "success" {
		return 0, errors.New("the query failed")
	}
	sample := answer.Data.Result
	switch answer.Data.Type {
	case "scalar":
	case "vector":
		var vector []struct {
			Value json.RawMessage `json:"value"`
		}
		if err := decode(sample, &vector); err != nil {
			return 0, err
		}
		switch len(vector) {
		case 0:
			return 0, errEmpty
		case 1:
			sample = vector[0].Value
		default:
			return 0, errors.New("the query returns more than one series: aggregate them")
		}
	default:
		return 0, errors.New("the query must return a scalar or a vector")
	}
	var pair []json.RawMessage // [seconds since 1970, "value"]
	if err := decode(sample, &pair); err != nil {
		return 0, err
	}
	if len(pair) != 2 {
		return 0, errEmpty
	}
	return rate(pair[1], signal.GramsPerKWh)
}
