// SPDX-License-Identifier: Apache-2.0

package series

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/energyreceiver/energyreceiver/receiver/internal/metadata"
)

// The energy counters, by their names in OTLP.
var (
	System       = metadata.MetricsInfo.SystemEnergy.Name
	Unattributed = metadata.MetricsInfo.SystemUnattributedEnergy.Name
	Process      = metadata.MetricsInfo.ProcessEnergy.Name
	Container    = metadata.MetricsInfo.ContainerEnergy.Name
	Pod          = metadata.MetricsInfo.K8sPodEnergy.Name
)

// Stored returns the name that Prometheus and Mimir give a metric:
// https://opentelemetry.io/docs/specs/otel/compatibility/prometheus_and_openmetrics/#metric-metadata-1
func Stored(metric, unit string, counter bool) string {
	name := Label(metric) + map[string]string{"J": "_joules", "W": "_watts"}[unit]
	if counter {
		name += "_total"
	}
	return name
}

// Joules returns the name of an energy counter in Prometheus, followed by label matchers.
func Joules(metric, matchers string) string { return Stored(metric, "J", true) + "{" + matchers + "}" }

// Label returns the label that Prometheus gives an attribute.
func Label(attribute string) string { return strings.ReplaceAll(attribute, ".", "_") }

// Key identifies a series by its name and labels in Prometheus.
func Key(name string, labels map[string]string) string {
	key := name
	for _, label := range slices.Sorted(maps.Keys(labels)) {
		if labels[label] != "" && label != "__name__" && !strings.HasPrefix(label, "otel_scope_") {
			key += "," + label + "=" + labels[label]
		}
	}
	return key
}

// Increase returns a query in PromQL and MetricsQL for the increase of each counter within a window
// that ends at the time of the query. It extrapolates only counters that restarted in the window.
func Increase(counters, window string) string {
	return fmt.Sprintf(`  increase(%[1]s[%[2]s]) and resets(%[1]s[%[2]s]) > 0
  or last_over_time(%[1]s[%[2]s]) - last_over_time(%[1]s[1h] offset %[2]s) >= 0
  or last_over_time(%[1]s[%[2]s])`, counters, window)
}
