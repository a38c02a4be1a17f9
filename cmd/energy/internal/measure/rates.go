// SPDX-License-Identifier: Apache-2.0

package measure

import (
	"fmt"
	"strings"

	"github.com/energyreceiver/energyreceiver/cmd/energy/internal/figure"
	"github.com/energyreceiver/energyreceiver/internal/units"
)

// Rates convert energy to emissions and money. A nil rate converts nothing.
type Rates struct {
	Grams *float64 // of CO2 equivalent per kWh
	Grid  string   // that Grams is of, for people
	Price *float64 // per kWh, in any currency
}

// perKWh returns what an energy costs or emits at a rate per kWh.
func perKWh(e units.Energy, rate float64) float64 { return e.Joules() / 3.6e6 * rate }

// write writes the emissions and the price of the command, and of the node if it is shown.
func (r Rates) write(b *strings.Builder, of *Result) {
	line := func(head string, amount func(units.Energy) string, rate string) {
		fmt.Fprintf(b, "%-10s%s", head, amount(of.Used()))
		if of.WholeNode {
			fmt.Fprintf(b, ", node %s", amount(of.Node()))
		}
		fmt.Fprintf(b, ", at %s\n", rate)
	}
	if r.Grams != nil {
		rate := fmt.Sprintf("%g g/kWh", *r.Grams)
		if r.Grid != "" {
			rate += " (" + r.Grid + ")"
		}
		line("CO2e", func(e units.Energy) string { return figure.Grams(perKWh(e, *r.Grams)) }, rate)
	}
	if r.Price != nil {
		line("Price", func(e units.Energy) string { return fmt.Sprintf("%.3g", perKWh(e, *r.Price)) }, fmt.Sprintf("%g per kWh", *r.Price))
	}
}
