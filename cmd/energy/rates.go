// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"math"
	"strconv"

	"github.com/spf13/pflag"

	"github.com/energyreceiver/energyreceiver/cmd/energy/internal/report"
	"github.com/energyreceiver/energyreceiver/processor/emissions/grid"
)

// rateFlags adds the flags of emissions and cost.
func rateFlags(f *pflag.FlagSet, r *report.Rates) {
	f.Func("grid", "report emissions: the yearly mean of a `place` such as FRA or aws:eu-west-3, or a number of g/kWh", func(text string) error {
		return setGrid(r, text)
	})
	f.Func("price", "report the cost at a `price` per kWh", func(text string) (err error) {
		r.Price, err = rate(text)
		return err
	})
	f.StringVar(&r.Currency, "currency", "", "`name` of the currency of --price, such as EUR")
}

// checkRates returns an error if --currency is set without --price.
func checkRates(r *report.Rates) error {
	if r.Currency != "" && r.Price == nil {
		return errors.New("--currency requires --price")
	}
	return nil
}

// setGrid sets the carbon intensity: a place, or a number of g/kWh.
func setGrid(r *report.Rates, text string) (err error) {
	if r.Grams, err = rate(text); err == nil {
		return nil
	}
	place, err := grid.Lookup(text)
	if err != nil {
		return err
	}
	grams := float64(place.Rate) / 1e6 // from µg
	r.Grams, r.Grid = &grams, place.Name
	if place.Year != 0 {
		r.Grid += fmt.Sprintf(", mean of %d", place.Year)
	}
	return nil
}

// rate parses a number of at least 0.
func rate(text string) (*float64, error) {
	value, err := strconv.ParseFloat(text, 64)
	if err != nil || !(value >= 0 && value <= math.MaxFloat32) {
		return nil, errors.New("must be a number of at least 0")
	}
	return &value, nil
}
