// SPDX-License-Identifier: Apache-2.0

package provider

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"github.com/energyreceiver/energyreceiver/internal/fetch"
	"github.com/energyreceiver/energyreceiver/processor/emissions/internal/signal"
)

// WattTimeEndpoint is where WattTime is (https://docs.watttime.org).
const WattTimeEndpoint = "https://api.watttime.org"

const (
	wattTimeSignal = "co2_moer"
	wattTimeUnit   = "lbs_co2_per_mwh"
	// wattTimePeriod is how often a forecast is made, and the length of its periods in most regions.
	wattTimePeriod = 5 * time.Minute
	// wattTimeHorizon is how many hours of forecast are asked for: what an outage of the provider is bridged with.
	wattTimeHorizon = "6"
	maxWattTime     = 24 * time.Hour // of one period
)

// WattTime provides the marginal carbon intensity of a region (marginal operating emissions rate, MOER): that of the
// power plants that follow a change of demand. Its forecast begins with the present, and is an estimate as a whole.
type WattTime struct {
	server
	region, username string
	password         func() (string, error)
	token            string // of the last login; empty if there was none
}

// NewWattTime returns the provider of a region, such as CAISO_NORTH. The password is asked for at each login.
func NewWattTime(at Server, region, username string, password func() (string, error)) (*WattTime, error) {
	s, err := newServer(at)
	return &WattTime{server: s, region: region, username: username, password: password}, err
}

// errLogin is a login that was refused, as often as it is tried.
var errLogin = errors.New("the user name or the password is wrong")

// Ask implements signal.Provider. A token lasts for half an hour; once it is refused, a new one is got and tried once.
func (w *WattTime) Ask(ctx context.Context) (signal.Answer, error) {
	fresh := w.token == ""
	if fresh {
		if err := w.login(ctx); err != nil {
			return signal.Answer{}, fmt.Errorf("login: %w", err)
		}
	}
	body, err := w.forecast(ctx)
	if fetch.Status(err) == http.StatusUnauthorized {
		w.token = ""
		if !fresh {
			return w.Ask(ctx)
		}
	}
	if err != nil {
		return signal.Answer{}, err
	}
	periods, err := parseWattTime(body, w.region)
	return signal.Answer{Periods: periods, Next: time.Now().Truncate(wattTimePeriod).Add(wattTimePeriod)}, err
}

// login gets a token.
func (w *WattTime) login(ctx context.Context) error {
	password, err := w.password()
	if err != nil {
		return err
	}
	r, err := w.request(ctx, "/login", nil)
	if err != nil {
		return err
	}
	r.SetBasicAuth(w.username, password)
	body, err := w.get(r)
	if status := fetch.Status(err); status == http.StatusUnauthorized || status == http.StatusForbidden {
		return errLogin
	}
	if err != nil {
		return err
	}
	var answer struct {
		Token string `json:"token"`
	}
	if err := decode(body, &answer); err != nil {
		return err
	}
	if answer.Token == "" {
		return errors.New("the answer has no token")
	}
	w.token = answer.Token
	return nil
}

func (w *WattTime) forecast(ctx context.Context) ([]byte, error) {
	r, err := w.request(ctx, "/v3/forecast", url.Values{
		"region": {w.region}, "signal_type": {wattTimeSignal}, "horizon_hours": {wattTimeHorizon},
	})
	if err != nil {
		return nil, err
	}
	r.Header.Set("Authorization", "Bearer "+w.token)
	return w.get(r)
}

// parseWattTime parses an answer of /v3/forecast.
func parseWattTime(body []byte, region string) ([]signal.Period, error) {
	var answer struct {
		Data []struct {
			PointTime string          `json:"point_time"`
			Value     json.RawMessage `json:"value"`
		} `json:"data"`
		Meta struct {
			Region string      `json:"region"`
			Signal string      `json:"signal_type"`
			Units  string      `json:"units"`
			Period json.Number `json:"data_point_period_seconds"`
		} `json:"meta"`
	}
	if err := decode(body, &answer); err != nil {
		return nil, err
	}
	switch m := &answer.Meta; {
	case m.Region != region:
		return nil, mismatch("region", region)
	case m.Signal != wattTimeSignal:
		return nil, mismatch("signal", wattTimeSignal)
	case m.Units != wattTimeUnit:
		return nil, mismatch("unit", wattTimeUnit)
	}
	length := wattTimePeriod
	if text := answer.Meta.Period; text != "" {
		seconds, err := text.Int64()
		if err != nil || seconds <= 0 || seconds > int64(maxWattTime/time.Second) {
			return nil, errors.New("the answer has periods of an impossible length")
		}
		length = time.Duration(seconds) * time.Second
	}
	periods := make([]signal.Period, len(answer.Data))
	for i, point := range answer.Data {
		from, err := parseTime(point.PointTime)
		if err != nil {
			return nil, err
		}
		intensity, err := rate(point.Value, signal.PoundsPerMWh)
		if err != nil {
			return nil, fmt.Errorf("value: %w", err)
		}
		periods[i] = signal.Period{From: from, Until: from.Add(length), Rate: intensity, Estimated: true}
	}
	return periods, nil
}
