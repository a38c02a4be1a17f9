// SPDX-License-Identifier: Apache-2.0

// Package grid provides the yearly mean carbon intensity of countries and of cloud regions. The
// header of grid.csv lists its sources.
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

// Place is a country or a cloud region.
type Place struct {
	ID   string // such as FRA or aws:eu-west-3
	Name string // such as France
	Rate signal.Rate
	Year int // of the mean; 0 if the source does not state it

	code string // the alpha-2 code of a country, or the region of a cloud
}

// places returns all places, countries first.
var places = sync.OnceValue(func() []Place {
	r := csv.NewReader(strings.NewReader(text))
	r.Comment = '#'
	rows, err := r.ReadAll()
	if err != nil {
		panic(err) // the file is embedded, and tests read it
	}
	var all []Place
	for _, row := range rows[1:] {
		p := Place{ID: row[1], code: compact(row[2]), Name: row[3]}
		if kind := row[0]; kind != "country" {
			p.code = compact(p.ID)
			p.ID = kind + ":" + p.code
		}
		if p.Rate, err = signal.Parse(row[4], signal.GramsPerKWh); err != nil {
			panic(p.ID + ": " + err.Error())
		}
		_, _ = fmt.Sscan(row[5], &p.Year) // 0 if it is empty
		all = append(all, p)
	}
	return all
})

// compact returns a name in lower case and without spaces, as the APIs of clouds spell their
// regions: Azure's "West Europe" is westeurope.
func compact(name string) string { return strings.ToLower(strings.ReplaceAll(name, " ", "")) }

// Lookup returns a country by its ISO 3166 code (alpha-3 or alpha-2), or a cloud region by a name
// such as aws:eu-west-3. The name of the cloud may be omitted if only one cloud has the region. If
// there is no such place, the error lists places with similar names.
func Lookup(place string) (Place, error) {
	name := compact(place)
	if name == "uk" { // ISO 3166 reserves it for GB
		name = "gb"
	}
	var found []Place
	for _, p := range places() {
		if name == compact(p.ID) || name == p.code {
			found = append(found, p)
		}
	}
	if len(found) == 1 {
		return found[0], nil
	}
	if len(found) == 0 {
		found = near(name)
	}
	if len(found) == 0 {
		return Place{}, fmt.Errorf("no country or cloud region %q: it must be an ISO 3166 code such as FRA, or a region such as aws:eu-west-3", place)
	}
	similar := make([]string, len(found))
	for i, p := range found {
		similar[i] = fmt.Sprintf("%s (%s)", p.ID, p.Name)
	}
	return Place{}, fmt.Errorf("no country or cloud region %q; similar: %s", place, strings.Join(similar, ", "))
}

const (
	maxNear = 5
	// maxDistance is the maximum Levenshtein distance of similar names.
	maxDistance = 2
)

// near returns the places with the most similar names.
func near(name string) []Place {
	distances := map[string]int{} // by ID
	distanceOf := func(p Place) int {
		full := compact(p.Name)
		if len(name) >= 3 && (strings.HasPrefix(full, name) || strings.Contains(p.code, name)) {
			return 1
		}
		return min(distance(name, compact(p.ID)), distance(name, full), distance(name, p.code))
	}
	var found []Place
	for _, p := range places() {
		distances[p.ID] = distanceOf(p)
		if distances[p.ID] <= min(maxDistance, len(name)-1) {
			found = append(found, p)
		}
	}
	slices.SortStableFunc(found, func(a, b Place) int { return cmp.Compare(distances[a.ID], distances[b.ID]) })
	return found[:min(len(found), maxNear)]
}

// distance returns the number of characters to add, remove or replace to get b from a (Levenshtein).
func distance(a, b string) int {
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
