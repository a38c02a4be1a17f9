// SPDX-License-Identifier: Apache-2.0

package stores

import (
	"fmt"
	"strings"

	"github.com/energyreceiver/energyreceiver/receiver/test/series"
)

// identities lists the attributes that identify a workload. Other attributes may change: processors
// add them later. Overflow series have no identity, so all attributes distinguish them.
var identities = map[string][]string{
	series.Process:   {"process.pid", "process.creation.time"},
	series.Container: {"container.id"},
	series.Pod:       {"k8s.pod.uid"},
}

// increased returns a query in SQL of ClickHouse for the increase of the counters of a metric in
// the zone package, by the values of an attribute, unless it is empty. The interval ends now. A
// total begins at 0 at its start time.
func increased(metric, attribute, interval string) string {
	by, named, groups := "", "", ""
	if attribute != "" {
		name := series.Label(attribute)
		by = name + ", "
		named = fmt.Sprintf("any(ResourceAttributes['%s']) AS %s, ", attribute, name)
		groups = "\nGROUP BY " + name
	}
	keys := []string{"ResourceAttributes['host.name']"}
	for i, id := range identities[metric] {
		keys = append(keys, fmt.Sprintf("ResourceAttributes['%s']", id))
		if i == 0 {
			keys = append(keys, fmt.Sprintf("if(ResourceAttributes['%s'] = '', toString(ResourceAttributes), '')", id))
		}
	}
	return fmt.Sprintf(`SELECT %[1]ssum(increase) AS joules
FROM (
    SELECT %[2]smax(Value) - maxIf(Value, TimeUnix <= now() - INTERVAL %[6]s) AS increase
    FROM otel_metrics_sum
    WHERE MetricName = '%[3]s' AND Attributes['energy.zone'] = 'package' AND TimeUnix <= now()
    GROUP BY %[4]s, Attributes, StartTimeUnix
)%[5]s`, by, named, metric, strings.Join(keys, ", "), groups, interval)
}

// added returns the command that asks files of the collector's file exporter the same.
func added(metric, attribute string) string {
	return strings.TrimSpace("deploy/file/joules.py "+metric+" "+attribute) + " --zone package --hours 1 < energy.json"
}
