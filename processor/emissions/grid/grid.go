// SPDX-License-Identifier: Apache-2.0

// Package grid has the yearly mean carbon intensity of countries and of the regions of clouds. Its sources are at the
// head of grid.csv.
package grid

import (
	"cmp"
	_ "embed"
	"encoding/csv"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/energyreceiver/energyreceiver/processor/emissions/internal/signal"
)

//go:embed grid.csv
var text string

// Place is a country or a region of a cloud.
type Place struct {
	ID   string // such as FRA or aws:eu-west-3
	Name string // such as France
	Rate signal.Rate
	Year int // of the mean; 0 if the source states none

	alpha2 string // of a country
	region string // of a cloud, without the cloud
}

// places returns all places, countries first.
var places = sync.OnceValue(func() []Place {
	alpha2 := map[string]string{}
	for pair := range strings.FieldsSeq(countries) {
		alpha2[pair[2:]] = pair[:2]
	}
	r := csv.NewReader(strings.NewReader(text))
	r.Comment = '#'
	rows, err := r.ReadAll()
	if err != nil {
		panic(err) // the file is embedded, and tests read it
	}
	var all []Place
	for _, row := range rows[1:] {
		kind, id, name, value, year := row[0], row[1], row[2], row[3], row[4]
		p := Place{ID: id, Name: name}
		if p.Rate, err = signal.Parse(value, signal.GramsPerKWh); err != nil {
			panic(id + ": " + err.Error())
		}
		_, _ = fmt.Sscan(year, &p.Year) // 0 if it is empty
		if kind == "country" {
			p.alpha2 = alpha2[id]
		} else {
			p.region = compact(id)
			p.ID = kind + ":" + p.region
		}
		all = append(all, p)
	}
	return all
})

// compact returns the name of a cloud's region as its API has it: Azure's "West Europe" is westeurope.
func compact(region string) string {
	return strings.ToLower(strings.ReplaceAll(region, " ", ""))
}

// UnknownError is a place that is not in the table.
type UnknownError struct {
	Place string
	Near  []Place // places with similar names
}

// Error lists the near places.
func (e *UnknownError) Error() string {
	if len(e.Near) == 0 {
		return fmt.Sprintf("no country or region of a cloud is known as %q: it must be an ISO 3166 code such as FRA, or a region such as aws:eu-west-3",
			e.Place)
	}
	near := make([]string, len(e.Near))
	for i, p := range e.Near {
		near[i] = fmt.Sprintf("%s (%s)", p.ID, p.Name)
	}
	return fmt.Sprintf("no country or region of a cloud is known as %q; near it: %s", e.Place, strings.Join(near, ", "))
}

// Lookup returns the place of an ISO 3166 code of a country, alpha-3 or alpha-2, or of a region of a cloud, such as
// aws:eu-west-3, or eu-west-3 where only one cloud has it. The error is an *UnknownError.
func Lookup(place string) (Place, error) {
	name := strings.TrimSpace(place)
	if strings.EqualFold(name, "UK") { // ISO 3166 reserves it for GB
		name = "GB"
	}
	var found []Place
	for _, p := range places() {
		if strings.EqualFold(name, p.ID) || p.alpha2 != "" && strings.EqualFold(name, p.alpha2) || p.ID == compact(name) || p.region != "" && p.region == compact(name) {
			found = append(found, p)
		}
	}
	if len(found) == 1 {
		return found[0], nil
	}
	if len(found) == 0 {
		found = near(name)
	}
	return Place{}, &UnknownError{Place: place, Near: found}
}

const (
	maxNear = 5
	// maxDistance is how many letters may differ.
	maxDistance = 2
)

// near returns the places with the most similar names.
func near(name string) []Place {
	name = compact(name)
	type candidate struct {
		Place
		distance int
	}
	var all []candidate
	for _, p := range places() {
		best := min(distance(name, compact(p.ID)), distance(name, compact(p.Name)))
		if p.region != "" {
			best = min(best, distance(name, p.region))
		}
		if len(name) >= 3 && (strings.HasPrefix(compact(p.Name), name) || strings.Contains(p.region, name)) {
			best = min(best, 1)
		}
		if best <= min(maxDistance, len(name)-1) {
			all = append(all, candidate{p, best})
		}
	}
	slices.SortStableFunc(all, func(a, b candidate) int { return cmp.Compare(a.distance, b.distance) })
	found := make([]Place, 0, maxNear)
	for _, c := range all[:min(len(all), maxNear)] {
		found = append(found, c.Place)
	}
	return found
}

// distance is how many characters must be added, left out or replaced to get one word from another (Levenshtein). It
// is at least the difference of their lengths, and not computed where that is more than maxDistance.
func distance(a, b string) int {
	if d := len(a) - len(b); d > maxDistance || -d > maxDistance {
		return maxDistance + 1
	}
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			replaced := diagonal
			if a[i] != b[j] {
				replaced++
			}
			diagonal = row[j+1]
			row[j+1] = min(replaced, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
