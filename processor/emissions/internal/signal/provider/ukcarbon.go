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

	"github.com/energyreceiver/energyreceiver/processor/emissions/internal/signal"
)

// UKCarbonIntensityEndpoint is where the Carbon Intensity API of Great Britain's system operator is
// (https://carbon-intensity.github.io/api-definitions).
const UKCarbonIntensityEndpoint = "https://api.carbonintensity.org.uk"

// MaxUKRegion is the highest number of a region.
const MaxUKRegion = 17

// settlementPeriod is the length of the periods of the British electricity market.
const settlementPeriod = 30 * time.Minute

// UKCarbonIntensity provides the average carbon intensity of Great Britain, or of one of its regions, by the half
// hour: from an hour ago to a day ahead. Regions have forecasts only.
type UKCarbonIntensity struct {
	server
	region int // 0 is all of Great Britain
}

// NewUKCarbonIntensity returns the provider of a region from 1 to MaxUKRegion, or of all of Great Britain for 0.
func NewUKCarbonIntensity(at Server, region int) (*UKCarbonIntensity, error) {
	s, err := newServer(at)
	return &UKCarbonIntensity{server: s, region: region}, err
}

// Ask implements signal.Provider.
func (u *UKCarbonIntensity) Ask(ctx context.Context) (signal.Answer, error) {
	this := time.Now().UTC().Truncate(settlementPeriod)
	path := "/intensity/" + this.Add(-2*settlementPeriod).Format("2006-01-02T15:04Z") + "/fw24h"
	if u.region != 0 {
		path = "/regional" + path + "/regionid/" + strconv.Itoa(u.region)
	}
	r, err := u.request(ctx, path, nil)
	if err != nil {
		return signal.Answer{}, err
	}
	body, err := u.get(r)
	if err != nil {
		return signal.Answer{}, err
	}
	periods, err := parseUKCarbonIntensity(body, u.region)
	return signal.Answer{Periods: periods, Next: this.Add(settlementPeriod + time.Minute)}, err
}

// ukPeriod is an element of data.
type ukPeriod struct {
	From      string `json:"from"`
	To        string `json:"to"`
	Intensity struct {
		Forecast json.RawMessage `json:"forecast"` // gCO2/kWh
		Actual   json.RawMessage `json:"actual"`   // gCO2/kWh; null or absent while it is not known
	} `json:"intensity"`
}

// parseUKCarbonIntensity parses an answer of /intensity, or one of /regional/intensity where the region is not 0:
// there the periods are a level deeper.
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
