// SPDX-License-Identifier: Apache-2.0

package provider

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"go.opentelemetry.io/collector/config/confighttp"
	"go.opentelemetry.io/collector/config/configopaque"

	"github.com/energyreceiver/energyreceiver/processor/emissions/internal/signal"
)

// ElectricityMaps reads the average carbon intensity of the electricity used in a zone, including
// imports (https://app.electricitymaps.com/developer-hub/api/reference). It covers the life cycle of
// power plants unless the account selects otherwise. An answer is one period, of an hour by default,
// usually the current one.
type ElectricityMaps struct {
	confighttp.ClientConfig `mapstructure:",squash"`

	// Zone is Electricity Maps' name of the zone, such as FR.
	Zone string `mapstructure:"zone"`
	// Token is the token of an account.
	Token configopaque.String `mapstructure:"token"`

	_ struct{} // keyed literals only
}

// electricityMapsPause is the wait if the current hour is not available yet.
const electricityMapsPause = 5 * time.Minute

// NewElectricityMaps returns the defaults.
func NewElectricityMaps() ElectricityMaps {
	return ElectricityMaps{ClientConfig: clientAt("https://api.electricitymaps.com")}
}

// Validate checks the settings.
func (c *ElectricityMaps) Validate() error {
	err := errors.Join(validateClient(&c.ClientConfig), notEmpty("zone", c.Zone))
	if _, inHeaders := c.Headers.Get("auth-token"); !inHeaders && !c.Auth.HasValue() {
		err = errors.Join(err, notEmpty("token", string(c.Token)))
	}
	return err
}

// Open implements Settings.
func (c *ElectricityMaps) Open(o *Opening) (*Source, error) {
	s, err := o.server(c.ClientConfig)
	return &Source{Provider: &electricityMaps{s, c.Zone, string(c.Token)}, Options: o.service(&c.ClientConfig), Region: c.Zone}, err
}

type electricityMaps struct {
	*server
	zone, token string
}

// Ask implements signal.Provider.
func (e *electricityMaps) Ask(ctx context.Context) (signal.Answer, error) {
	body, err := e.get(ctx, "/v3/carbon-intensity/latest", url.Values{"zone": {e.zone}}, http.Header{"Auth-Token": {e.token}})
	if err != nil {
		return signal.Answer{}, err
	}
	period, err := parseElectricityMaps(body, e.zone)
	if err != nil {
		return signal.Answer{}, err
	}
	next := period.Until
	if now := time.Now(); next.Before(now) {
		next = now.Add(electricityMapsPause)
	}
	return signal.Answer{Periods: []signal.Period{period}, Next: next}, nil
}

// errGranularity does not contain the server's text, which may repeat a secret.
var errGranularity = errors.New("the answer is for a period of an unknown length")

// granularities are the lengths of periods by their names in temporalGranularity.
var granularities = map[string]time.Duration{
	"": time.Hour, "hourly": time.Hour, "15_minutes": 15 * time.Minute, "5_minutes": 5 * time.Minute,
}

// parseElectricityMaps parses an answer of /v3/carbon-intensity/latest. datetime is the start of the period.
func parseElectricityMaps(body []byte, zone string) (signal.Period, error) {
	var answer struct {
		Zone            string          `json:"zone"`
		CarbonIntensity json.RawMessage `json:"carbonIntensity"` // g CO2e/kWh
		Datetime        string          `json:"datetime"`
		IsEstimated     bool            `json:"isEstimated"`
		Granularity     string          `json:"temporalGranularity"`
	}
	if err := decode(body, &answer); err != nil {
		return signal.Period{}, err
	}
	if !strings.EqualFold(answer.Zone, zone) {
		return signal.Period{}, mismatch("zone", zone)
	}
	length, ok := granularities[answer.Granularity]
	if !ok {
		return signal.Period{}, errGranularity
	}
	intensity, err := rate(answer.CarbonIntensity, signal.GramsPerKWh)
	if err != nil {
		return signal.Period{}, fmt.Errorf("carbonIntensity: %w", err)
	}
	from, err := parseTime(answer.Datetime)
	return signal.Period{From: from, Until: from.Add(length), Rate: intensity, Estimated: answer.IsEstimated}, err
}
