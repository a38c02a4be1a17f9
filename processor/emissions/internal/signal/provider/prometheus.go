// SPDX-License-Identifier: Apache-2.0

package provider

import (
	"context"
	"encoding/json"
	"errors"
	"net/url"
	"time"

	"github.com/energyreceiver/energyreceiver/processor/emissions/internal/signal"
)

// Prometheus provides the present result of an instant query
// (https://prometheus.io/docs/prometheus/latest/querying/api): a scalar, or a vector of one sample.
type Prometheus struct {
	server
	PrometheusOptions
}

// PrometheusOptions are a query that returns g/kWh and how often it is sent.
type PrometheusOptions struct {
	Query string
	Every time.Duration // from one query to the next
}

// NewPrometheus returns the provider of a query.
func NewPrometheus(at Server, o PrometheusOptions) (*Prometheus, error) {
	s, err := newServer(at)
	return &Prometheus{server: s, PrometheusOptions: o}, err
}

// Ask implements signal.Provider. The value lasts until after the next query, so that a slow answer leaves no gap.
func (p *Prometheus) Ask(ctx context.Context) (signal.Answer, error) {
	r, err := p.request(ctx, "/api/v1/query", url.Values{"query": {p.Query}})
	if err != nil {
		return signal.Answer{}, err
	}
	now := time.Now()
	body, err := p.get(r)
	if err != nil {
		return signal.Answer{}, err
	}
	value, err := parsePrometheus(body)
	if err != nil {
		return signal.Answer{}, err
	}
	period := signal.Period{From: now, Until: now.Add(2 * p.Every), Rate: value}
	return signal.Answer{Periods: []signal.Period{period}, Next: now.Add(p.Every)}, nil
}

// parsePrometheus parses an answer of /api/v1/query. The time of a sample is that of the query, which the client
// knows as well.
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
