// SPDX-License-Identifier: Apache-2.0

package report

import (
	"strconv"

	"github.com/energyreceiver/energyreceiver/cmd/energy/internal/figure"
	"github.com/energyreceiver/energyreceiver/internal/units"
)

// Rates convert energy to emissions and money. A nil rate is not applied.
type Rates struct {
	Grams    *float64 // of CO2 equivalent per kWh
	Grid     string   // place of Grams, for people
	Price    *float64 // per kWh
	Currency string   // of Price, such as EUR
}

// perKWh returns the cost or the emissions of an energy at a rate per kWh.
func perKWh(e units.Energy, rate float64) float64 { return e.Joules() / 3.6e6 * rate }

// texts returns the emissions and the price of an energy.
func (r Rates) texts(e units.Energy) (texts []string) {
	if r.Grams != nil {
		texts = append(texts, figure.Grams(perKWh(e, *r.Grams))+" CO2e")
	}
	if r.Price != nil {
		texts = append(texts, r.amount(money(perKWh(e, *r.Price))))
	}
	return texts
}

// explain returns the rates.
func (r Rates) explain() (texts []string) {
	if r.Grams != nil {
		text := strconv.FormatFloat(*r.Grams, 'g', -1, 64) + " g/kWh"
		if r.Grid != "" {
			text += " (" + r.Grid + ")"
		}
		texts = append(texts, text)
	}
	if r.Price != nil {
		texts = append(texts, r.amount(strconv.FormatFloat(*r.Price, 'f', -1, 64))+" per kWh")
	}
	return texts
}

// amount returns an amount of money with its currency, if that has a name.
func (r Rates) amount(number string) string {
	if r.Currency == "" {
		return "cost " + number
	}
	return number + " " + r.Currency
}

// money returns an amount with two decimals, or with two digits if it is below 1. It has no exponent.
func money(v float64) string {
	decimals := 2
	for limit := 0.1; v > 0 && v < limit && decimals < 15; limit /= 10 {
		decimals++
	}
	return strconv.FormatFloat(v, 'f', decimals, 64)
}
