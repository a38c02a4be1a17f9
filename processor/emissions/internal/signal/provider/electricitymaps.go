// SPDX-License-Identifier: Apache-2.0

package provider

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/energyreceiver/energyreceiver/processor/emissions/internal/signal"
)

// ElectricityMapsEndpoint is where Electricity Maps is (https://app.electricitymaps.com/developer-hub/api/reference).
const ElectricityMapsEndpoint = "https://api.electricitymaps.com"

// ElectricityMaps provides the average carbon intensity of the electricity used in a zone, with imports, and over the
// life cycle unless the account selects otherwise. It provides one period, of an hour by default, mostly the present
// one.
type ElectricityMaps struct {
	server
	zone, token string
}

// electricityMapsPause is the wait if the present hour is not available yet.
const electricityMapsPause = 5 * time.Minute

// NewElectricityMaps returns the provider of a zone, such as FR. The token is of an account.
func NewElectricityMaps(at Server, zone, token string) (*ElectricityMaps, error) {
	s, err := newServer(at)
	return &ElectricityMaps{server: s, zone: zone, token: token}, err
}

// Ask implements signal.Provider.
func (e *ElectricityMaps) Ask(ctx context.Context) (signal.Answer, error) {
	r, err := e.request(ctx, "/v3/carbon-intensity/latest", url.Values{"zone": {e.zone}})
	if err != nil {
		return signal.Answer{}, err
	}
	r.Header.Set("auth-token", e.token)
	body, err := e.get(r)
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

// errGranularity is the error of an answer for a period of an unknown length. It does not have the server's text,
// which may echo a secret.
var errGranularity = errors.New("the answer is for a period of an unknown length")

// granularities are the lengths of periods by their names in temporalGranularity.
var granularities = map[string]time.Duration{
	"": time.Hour, "hourly": time.Hour, "15_minutes": 15 * time.Minute, "5_minutes": 5 * time.Minute,
}

// parseElectricityMaps parses an answer of /v3/carbon-intensity/latest. datetime is the begin of its period.
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
