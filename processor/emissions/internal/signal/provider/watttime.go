// SPDX-License-Identifier: Apache-2.0

package provider

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"go.opentelemetry.io/collector/config/confighttp"
	"go.opentelemetry.io/collector/config/configopaque"

	"github.com/energyreceiver/energyreceiver/internal/fetch"
	"github.com/energyreceiver/energyreceiver/internal/regular"
	"github.com/energyreceiver/energyreceiver/processor/emissions/internal/signal"
)

// WattTime reads the marginal carbon intensity of a region (marginal operating emissions rate, MOER;
// https://docs.watttime.org): the intensity of the power plants that follow a change of demand. Its
// forecast begins with the present, and is an estimate as a whole.
type WattTime struct {
	confighttp.ClientConfig `mapstructure:",squash"`

	// Region is WattTime's name of the region, such as CAISO_NORTH.
	Region string `mapstructure:"region"`
	// Username and Password are those of an account. PasswordFile has the password in place of
	// Password, and is read at each login.
	Username     string              `mapstructure:"username"`
	Password     configopaque.String `mapstructure:"password"`
	PasswordFile string              `mapstructure:"password_file"`

	_ struct{} // keyed literals only
}

const (
	wattTimeSignal = "co2_moer"
	wattTimeUnit   = "lbs_co2_per_mwh"
	// wattTimePeriod is the interval of forecasts, and the length of their periods in most regions.
	wattTimePeriod    = 5 * time.Minute
	maxWattTimePeriod = 24 * time.Hour
	// wattTimeHorizon is the number of hours of the forecast, which bridges an outage of the provider.
	wattTimeHorizon = "6"
)

// NewWattTime returns the defaults.
func NewWattTime() WattTime { return WattTime{ClientConfig: clientAt("https://api.watttime.org")} }

// Validate checks the settings.
func (c *WattTime) Validate() error {
	err := errors.Join(validateClient(&c.ClientConfig), notEmpty("region", c.Region), notEmpty("username", c.Username))
	switch {
	case c.Password != "" && c.PasswordFile != "":
		err = errors.Join(err, errors.New("password: must not be set together with password_file"))
	case c.Password == "" && c.PasswordFile == "":
		err = errors.Join(err, errors.New("password: must not be empty: set it or password_file"))
	}
	if c.Auth.HasValue() {
		err = errors.Join(err, errors.New("auth: must not be set: the provider logs in"))
	}
	return err
}

// Open implements Settings.
func (c *WattTime) Open(o *Opening) (*Source, error) {
	s, err := o.server(c.ClientConfig)
	return &Source{Provider: &wattTime{server: s, c: c}, Options: o.service(&c.ClientConfig), Region: c.Region}, err
}

// password returns the account's password. It never blocks.
func (c *WattTime) password() (string, error) {
	if c.PasswordFile == "" {
		return string(c.Password), nil
	}
	password, err := regular.Secret(c.PasswordFile)
	if err != nil {
		return "", fmt.Errorf("password_file: %w", err)
	}
	return password, nil
}

type wattTime struct {
	*server
	c     *WattTime
	token string // of the last login; empty before the first
}

// Ask implements signal.Provider. A token lasts for half an hour. A token that is refused is
// replaced once.
func (w *wattTime) Ask(ctx context.Context) (signal.Answer, error) {
	fresh := w.token == ""
	if fresh {
		if err := w.login(ctx); err != nil {
			return signal.Answer{}, fmt.Errorf("login: %w", err)
		}
	}
	body, err := w.get(ctx, "/v3/forecast", url.Values{
		"region": {w.c.Region}, "signal_type": {wattTimeSignal}, "horizon_hours": {wattTimeHorizon},
	}, http.Header{"Authorization": {"Bearer " + w.token}})
	if fetch.Status(err) == http.StatusUnauthorized {
		w.token = ""
		if !fresh {
			return w.Ask(ctx)
		}
	}
	if err != nil {
		return signal.Answer{}, err
	}
	periods, err := parseWattTime(body, w.c.Region)
	return signal.Answer{Periods: periods, Next: time.Now().Truncate(wattTimePeriod).Add(wattTimePeriod)}, err
}

// login gets a token.
func (w *wattTime) login(ctx context.Context) error {
	password, err := w.c.password()
	if err != nil {
		return err
	}
	account := base64.StdEncoding.EncodeToString([]byte(w.c.Username + ":" + password))
	body, err := w.get(ctx, "/login", nil, http.Header{"Authorization": {"Basic " + account}})
	if status := fetch.Status(err); status == http.StatusUnauthorized || status == http.StatusForbidden {
		return errors.New("the user name or the password is wrong")
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
		if err != nil || seconds <= 0 || seconds > int64(maxWattTimePeriod/time.Second) {
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
