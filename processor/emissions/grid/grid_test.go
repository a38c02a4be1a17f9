// SPDX-License-Identifier: Apache-2.0

package grid

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/energyreceiver/energyreceiver/processor/emissions/internal/signal"
)

func TestPlacesAreFoundByTheirCodes(t *testing.T) {
	france := Place{ID: "FRA", Name: "France", Rate: 56_000_000, Year: 2023, code: "fr"}
	paris := Place{ID: "aws:eu-west-3", Name: "France", Rate: 52_000_000, code: "eu-west-3"}
	amsterdam := Place{ID: "azure:westeurope", Name: "Netherlands", Rate: 390_000_000, code: "westeurope"}
	for name, want := range map[string]Place{
		"FRA": france, "fra": france, "FR": france, " fr ": france,
		"aws:eu-west-3": paris, "eu-west-3": paris, "AWS:EU-WEST-3": paris,
		"azure:West Europe": amsterdam, "westeurope": amsterdam, "West Europe": amsterdam,
	} {
		got, err := Lookup(name)
		assert.NoError(t, err, name)
		assert.Equal(t, want, got, name)
	}
	britain, err := Lookup("uk")
	require.NoError(t, err)
	assert.Equal(t, "GBR", britain.ID)
	aws, err := Lookup("us-east-1")
	require.NoError(t, err)
	gcp, err := Lookup("us-east1")
	require.NoError(t, err)
	assert.NotEqual(t, aws, gcp, "Virginia is not South Carolina")
}

func TestAnUnknownPlaceIsAnErrorThatListsNearNames(t *testing.T) {
	for name, want := range map[string]string{
		"France":    "FRA (France)",
		"Germny":    "DEU (Germany)",
		"eu-west-9": "aws:eu-west-1 (Ireland)",
		"franc":     "FRA (France)",
	} {
		_, err := Lookup(name)
		assert.ErrorContains(t, err, want, name)
	}
	for _, name := range []string{"", "world", "WORLD", "OWID_WRL", "europe", "*", "x", strings.Repeat("a", 1000)} {
		_, err := Lookup(name)
		assert.Error(t, err, "%q", name)
	}
	_, err := Lookup("nowhere at all")
	assert.EqualError(t, err, `no country or cloud region "nowhere at all": it must be an ISO 3166 code such as FRA, or a region such as aws:eu-west-3`)
}

func TestTheTableIsWhole(t *testing.T) {
	codes, ids := map[string]bool{}, map[string]bool{}
	for _, p := range places() {
		assert.False(t, ids[p.ID], p.ID)
		ids[p.ID] = true
		if !strings.Contains(p.ID, ":") {
			assert.Len(t, p.code, 2, p.ID)
			assert.False(t, codes[p.code], p.ID)
			codes[p.code] = true
			assert.GreaterOrEqual(t, p.Year, 2009, p.ID)
		}
		assert.Greater(t, p.Rate, signal.Rate(5_000_000), p.ID)
		assert.Less(t, p.Rate, signal.Rate(1_400_000_000), "%s: tonnes taken as grams", p.ID)
		got, err := Lookup(p.ID)
		assert.NoError(t, err)
		assert.Equal(t, p, got)
	}
	assert.Len(t, ids, 285)
}
