// SPDX-License-Identifier: Apache-2.0

package provider

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"go.opentelemetry.io/collector/config/confighttp"

	"github.com/energyreceiver/energyreceiver/processor/emissions/internal/signal"
)

// UKCarbonIntensity reads the average carbon intensity of Great Britain, or of one of its regions,
// from its system operator (https://carbon-intensity.github.io/api-definitions): by the half hour,
// from an hour ago to a day ahead. Regions have forecasts only.
type UKCarbonIntensity struct {
	confighttp.ClientConfig `mapstructure:",squash"`

	// Region is the number of a region, from 1 to maxUKRegion. 0 is all of Great Britain.
	Region int `mapstructure:"region"`

	_ struct{} // keyed literals only
}

const (
	maxUKRegion = 17
	// settlementPeriod is the length of the periods of the British electricity market.
	settlementPeriod = 30 * time.Minute
)

// NewUKCarbonIntensity returns the defaults.
func NewUKCarbonIntensity() UKCarbonIntensity {
	return UKCarbonIntensity{ClientConfig: clientAt("https://api.carbonintensity.org.uk")}
}

// Validate checks the settings.
func (c *UKCarbonIntensity) Validate() error {
	err := validateClient(&c.ClientConfig)
	if c.Region < 0 || c.Region > maxUKRegion {
		err = errors.Join(err, fmt.Errorf("region: must be from 1 to %d, or 0 for all of Great Britain, is %d", maxUKRegion, c.Region))
	}
	return err
}

// Open implements Settings.
func (c *UKCarbonIntensity) Open(o *Opening) (*Source, error) {
	region := "GB"
	if c.Region != 0 {
		region = fmt.Sprintf("GB:%d", c.Region)
	}
	s, err := o.server(c.ClientConfig)
	return &Source{Provider: &ukCarbonIntensity{s, c.Region}, Options: o.service(&c.ClientConfig), Region: region}, err
}

type ukCarbonIntensity struct {
	*server
	region int
}

// Ask implements signal.Provider.
func (u *ukCarbonIntensity) Ask(ctx context.Context) (signal.Answer, error) {
	now := time.Now().UTC().Truncate(settlementPeriod)
	path := "/intensity/" + now.Add(-2*settlementPeriod).Format("2006-01-02T15:04Z") + "/fw24h"
	if u.region != 0 {
		path = "/regional" + path + "/regionid/" + strconv.Itoa(u.region)
	}
	body, err := u.get(ctx, path, nil, nil)
	if err != nil {
		return signal.Answer{}, err
	}
	periods, err := parseUKCarbonIntensity(body, u.region)
	return signal.Answer{Periods: periods, Next: now.Add(settlementPeriod + time.Minute)}, err
}

// ukPeriod is an element of data.
type ukPeriod struct {
	From      string `json:"from"`
	To        string `json:"to"`
	Intensity struct {
		Forecast json.RawMessage `json:"forecast"` // gCO2/kWh
		Actual   json.RawMessage `json:"actual"`   // gCO2/kWh; null or absent until it is available
	} `json:"intensity"`
}

// parseUKCarbonIntensity parses an answer of /intensity or, for a region, of /regional/intensity, in
// which the periods are a level deeper.
func parseUKCarbonIntensity(body []byte, region int) ([]signal.Period, error) {
	var answer struct {
		Data json.RawMessage `json:"data"`
	}
	if err := decode(body, &answer); err != nil {
		return nil, err
	}
	data := answer.Data
	if region != 0 {
		var regional struct {
			RegionID int             `json:"regionid"`
			Data     json.RawMessage `json:"data"`
		}
		if err := decode(data, &regional); err != nil {
			return nil, err
		}
		if regional.RegionID != region {
			return nil, mismatch("region", strconv.Itoa(region))
		}
		data = regional.Data
	}
	var list []ukPeriod
	if err := decode(data, &list); err != nil {
		return nil, err
	}
	periods := make([]signal.Period, len(list))
	for i := range list {
		var err error
		if periods[i], err = list[i].parse(); err != nil {
			return nil, err
		}
	}
	return periods, nil
}

func (u *ukPeriod) parse() (p signal.Period, err error) {
	if p.From, err = parseTime(u.From); err != nil {
		return p, err
	}
	if p.Until, err = parseTime(u.To); err != nil {
		return p, err
	}
	if p.Until.Sub(p.From) != settlementPeriod {
		return p, errors.New("the answer has a period that is not half an hour")
	}
	value, name := u.Intensity.Actual, "actual"
	if p.Estimated = len(value) == 0 || bytes.Equal(value, []byte("null")); p.Estimated {
		value, name = u.Intensity.Forecast, "forecast"
	}
	if p.Rate, err = rate(value, signal.GramsPerKWh); err != nil {
		return p, fmt.Errorf("%s: %w", name, err)
	}
	return p, nil
}
