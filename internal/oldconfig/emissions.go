// SPDX-License-Identifier: Apache-2.0

package oldconfig

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Emissions maps each renamed key of the emissions processor to its new key. Only the key changes, not its value.
var Emissions = map[string]string{
	"forget_after":                    "max_staleness",
	"intensity::prometheus::interval": "intensity::prometheus::poll_interval",
	"intensity::signal":               "intensity::type",
}

// EmissionsRemoved maps each removed key of the emissions processor to what replaces it. A section stands for all of its keys.
var EmissionsRemoved = map[string]string{
	"metrics::electricity.price": "removed together with price",
	"metrics::electricity.pue":   "removed: the gauge repeated pue",
	"price":                      "removed: cost is computed by Prometheus rules",
	"price::currency":            "removed: the label currency of the rule electricity:price:per_kwh",
	"price::file":                "removed: record electricity:price:per_kwh from a metric with these prices",
	"price::max_age":             "removed together with price",
	"price::prometheus":          "removed: record electricity:price:per_kwh by this query",
	"price::tariff":              "removed: edit deploy/prometheus/price-time-of-use.yaml",
	"price::unit":                "removed: divide a price per MWh by 1000 in the rule electricity:price:per_kwh",
	"price::value":               "removed: edit deploy/prometheus/price-fixed.yaml",
}

// CheckEmissions returns an error that lists each former key in a configuration of the emissions processor with its new place.
func CheckEmissions(config map[string]any) error {
	places := maps.Clone(EmissionsRemoved)
	for key, place := range Emissions {
		places[key] = "now " + place
	}
	if _, section := config["price"].(map[string]any); section {
		delete(places, "price") // its keys are listed
	}
	var lines []string
	for _, key := range slices.Sorted(maps.Keys(places)) {
		if has(config, key) {
			lines = append(lines, fmt.Sprintf("  %s: %s", key, places[key]))
		}
	}
	if len(lines) == 0 {
		return nil
	}
	text := "the configuration contains renamed or removed settings, which `energy convert FILE` converts:\n" + strings.Join(lines, "\n")
	if _, ok := config["price"]; ok {
		text += "\nCost is computed by Prometheus rules: docs/carbon.md#cost"
	}
	return errors.New(text)
}

// has reports whether a configuration has a key, whose parts are separated by "::".
func has(config map[string]any, key string) bool {
	name, rest, nested := strings.Cut(key, "::")
	value, ok := config[name]
	if !ok || !nested {
		return ok
	}
	section, _ := value.(map[string]any)
	return has(section, rest)
}
