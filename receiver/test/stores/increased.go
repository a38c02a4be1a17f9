// SPDX-License-Identifier: Apache-2.0

package stores

import (
	"fmt"
	"strings"

	"github.com/energyreceiver/energyreceiver/receiver/test/series"
)

// increased returns a query in SQL of ClickHouse for the increase of the counters of a metric in
// the zone package, by the values of an attribute, unless it is empty. The interval ends now. A
// total begins at 0 at its start time. All attributes of the resource identify a series: overflow
// series have no ID.
func increased(metric, attribute, interval string) string {
	by, named, groups := "", "", ""
	if attribute != "" {
		name := series.Label(attribute)
		by = name + ", "
		named = fmt.Sprintf("any(ResourceAttributes['%s']) AS %s, ", attribute, name)
		groups = "\nGROUP BY " + name
	}
	return fmt.Sprintf(`SELECT %[1]ssum(increase) AS joules
FROM (
    SELECT %[2]smax(Value) - maxIf(Value, TimeUnix <= now() - INTERVAL %[5]s) AS increase
    FROM otel_metrics_sum
    WHERE MetricName = '%[3]s' AND Attributes['energy.zone'] = 'package' AND TimeUnix <= now()
    GROUP BY ResourceAttributes, Attributes, StartTimeUnix
)%[4]s`, by, named, metric, groups, interval)
}

// added returns the command that asks files of the collector's file exporter the same.
func added(metric, attribute string) string {
	return strings.TrimSpace("deploy/file/joules.py "+metric+" "+attribute) + " --zone package --hours 1 < energy.json"
}
