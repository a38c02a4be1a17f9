// SPDX-License-Identifier: Apache-2.0

package report

import (
	"math"
	"strconv"

	"github.com/energyreceiver/energyreceiver/cmd/energy/internal/figure"
)

// Rates convert energy to emissions and money. A nil rate is not applied.
type Rates struct {
	Grams    *float64 `json:"grams,omitempty"`    // of CO2 equivalent per kWh
	Grid     string   `json:"grid,omitempty"`     // place of Grams, for people
	Price    *float64 `json:"price,omitempty"`    // per kWh
	Currency string   `json:"currency,omitempty"` // of Price, such as EUR
}

// perKWh returns the cost or the emissions of an energy at a rate per kWh, NaN without a rate.
func perKWh(joules float64, rate *float64) float64 {
	if rate == nil {
		return math.NaN()
	}
	return joules / 3.6e6 * *rate
}

// Columns returns the titles of the columns of Of.
func (r Rates) Columns() (names []string) {
	if r.Grams != nil {
		names = append(names, "emissions")
	}
	if r.Price != nil {
		names = append(names, "cost")
	}
	return names
}

// Of returns the emissions and the cost of an energy in joules, as texts.
func (r Rates) Of(joules float64) (texts []string) {
	if r.Grams != nil {
		texts = append(texts, figure.Grams(perKWh(joules, r.Grams))+" CO2e")
	}
	if r.Price != nil {
		texts = append(texts, r.amount(money(perKWh(joules, r.Price))))
	}
	return texts
}

// Explain describes the rates.
func (r Rates) Explain() (texts []string) {
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
	if v > 0 && v < 1e-6 {
		return "< 0.000001"
	}
	decimals := 2
	for limit := 0.1; v > 0 && v < limit; limit /= 10 {
		decimals++
	}
	return strconv.FormatFloat(v, 'f', decimals, 64)
}
