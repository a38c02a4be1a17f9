// SPDX-License-Identifier: Apache-2.0

// Package judge compares attribution rules with references that are not derived from a rule: the
// energy of each of two programs alone, and their Shapley values. dev/results/two-programs.csv has
// the results.
package judge

import (
	"fmt"
	"math"
	"slices"
	"strconv"

	"github.com/energyreceiver/energyreceiver/receiver/test/table"
)

// Game is the active energy of two programs in the same time: each one alone, and both at once.
type Game struct{ First, Second, Both float64 }

// Solo returns the share of the first program by the energies of both alone.
func (g Game) Solo() float64 { return g.First / (g.First + g.Second) }

// Shapley returns the share of the first program by the Shapley values of the game. The Shapley
// value of a program is the mean of its energy alone and of its additional energy next to the other
// program.
func (g Game) Shapley() float64 { return (g.First + g.Both - g.Second) / 2 / g.Both }

// Less returns the game without the power that any load adds once, whichever programs run.
func (g Game) Less(constant float64) Game {
	return Game{g.First - constant, g.Second - constant, g.Both - constant}
}

// Row holds the errors of one rule.
type Row struct {
	Zone, Rule                  string
	againstSolo, againstShapley []float64
}

// Add adds the share of the first program of a game by the rule.
func (r *Row) Add(g Game, share float64) {
	r.againstSolo = append(r.againstSolo, 100*math.Abs(share-g.Solo()))
	r.againstShapley = append(r.againstShapley, 100*math.Abs(share-g.Shapley()))
}

// Means returns the mean errors in percent of the energy of both programs.
func (r *Row) Means() (solo, shapley float64) {
	return Mean(r.againstSolo), Mean(r.againstShapley)
}

// Mean returns the mean of values.
func Mean(values []float64) (mean float64) {
	for _, v := range values {
		mean += v / float64(len(values))
	}
	return mean
}

// Table returns a table of rules.
func Table(rows []*Row) *table.Table {
	all := table.New("zone", "shares by", "pairs", "against solo energy, mean", "worst", "against Shapley values, mean", "worst")
	for _, r := range rows {
		solo, shapley := r.Means()
		cells := []string{r.Zone, r.Rule, strconv.Itoa(len(r.againstShapley))}
		for _, percent := range []float64{solo, slices.Max(r.againstSolo), shapley, slices.Max(r.againstShapley)} {
			cells = append(cells, fmt.Sprintf("%.1f", percent))
		}
		all.Add(cells...)
	}
	return all
}
