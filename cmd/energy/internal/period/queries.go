// SPDX-License-Identifier: Apache-2.0

package period

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/otlptranslator"

	"github.com/energyreceiver/energyreceiver/cmd/energy/internal/snapshot"
	"github.com/energyreceiver/energyreceiver/internal/note"
)

// grouping selects the rows of a report.
type grouping struct {
	energy string   // counter in OTLP
	labels []string // labels whose nonempty values, joined by slashes, name a row
	part   string   // label of the parts of a row, empty without parts
}

// workload is the Deployment, StatefulSet, DaemonSet or Job of a pod.
const workload = "workload"

// groupings has the rows of each --by.
var groupings = map[string]grouping{
	"namespace": {snapshot.Pod.EnergyMetric(), []string{"k8s.namespace.name"}, workload},
	"workload":  {snapshot.Pod.EnergyMetric(), []string{"k8s.namespace.name", workload}, ""},
	"pod":       {snapshot.Pod.EnergyMetric(), []string{"k8s.namespace.name", "k8s.pod.name"}, ""},
	"container": {
		snapshot.Container.EnergyMetric(), []string{"k8s.namespace.name", "k8s.container.name", "container.name"}, "",
	},
	"node":    {snapshot.NodeEnergyMetric, []string{"host.name"}, ""},
	"vm":      {snapshot.VM.EnergyMetric(), []string{"vm.name"}, ""},
	"job":     {snapshot.Job.EnergyMetric(), []string{"slurm.job.id"}, ""},
	"unit":    {snapshot.Unit.EnergyMetric(), []string{"systemd.unit.name"}, ""},
	"user":    {snapshot.Process.EnergyMetric(), []string{"process.owner"}, "process.executable.name"},
	"program": {snapshot.Process.EnergyMetric(), []string{"process.executable.name"}, ""},
}

// Groupings returns the values of --by.
func Groupings() []string { return slices.Sorted(maps.Keys(groupings)) }

// names translates names of OTLP to the names in a database.
type names struct{ suffixes, dots bool }

// translations are the translations of Prometheus, the most common one first.
var translations = []names{{true, false}, {true, true}, {false, false}, {false, true}}

func (n names) metric(name string) string {
	namer := otlptranslator.MetricNamer{WithMetricSuffixes: n.suffixes, UTF8Allowed: n.dots}
	name, _ = namer.Build(otlptranslator.Metric{Name: name, Unit: "J", Type: otlptranslator.MetricTypeMonotonicCounter})
	return name
}

func (n names) label(name string) string {
	name, _ = (&otlptranslator.LabelNamer{UTF8Allowed: n.dots}).Build(name)
	return name
}

// quoted returns a label for a query.
func (n names) quoted(name string) string {
	if name = n.label(name); strings.Contains(name, ".") {
		return strconv.Quote(name)
	}
	return name
}

// queries are the queries of a report. Each returns the energy of a step that ends now.
type queries struct {
	names
	grouping
	match  string // further matchers of all series, empty or from a comma on
	guests bool   // the energy of guests is also in the energy of their hosts
}

// energyOf returns a selector of a counter in OTLP. Zones that are parts of packages are left out.
func (q *queries) energyOf(counter string, more ...string) string {
	return fmt.Sprintf(`{__name__=%q,%s!~"core|uncore"%s%s}`,
		q.metric(counter), q.quoted("energy.zone"), strings.Join(more, ""), q.match)
}

// active returns a matcher of active energy. Workloads have only active energy unless idle energy
// is attributed, too.
func (q *queries) active() string { return "," + q.quoted("energy.state") + `!="idle"` }

// measured returns a matcher without the energy of guests that is part of their hosts' energy.
func (q *queries) measured() string {
	if !q.guests {
		return ""
	}
	return "," + q.quoted("energy.method") + `!="reported"`
}

// StepLength is the length of a step of a report. A node is expected to report in each slot of a
// step, which is five minutes long. The queries have these lengths, too.
const (
	StepLength = time.Hour
	slots      = 12
)

// sum returns the energy of a step, by labels. The recording rules (deploy/prometheus/rules.yaml)
// have the same expression and explain its parts. The sum with 0 removes the name of the metric: in
// range queries, VictoriaMetrics would add series of two names instead of matching them.
func (q *queries) sum(by []string, energy string) string {
	grown := fmt.Sprintf("(increase(%[1]s[1h]) and resets(%[1]s[1h]) > 0"+
		" or last_over_time(%[1]s[1h]) - last_over_time(%[1]s[1h] offset 1h) >= 0"+
		" or last_over_time(%[1]s[1h]) + 0 and on (%[2]s) last_over_time(%[3]s[1h] offset 1h)"+
		" or last_over_time(%[1]s[1h]) - min_over_time(%[1]s[1h])) unless on (%[2]s, %[4]s) (%[5]s)",
		energy, q.quoted("host.name"), q.energyOf(snapshot.NodeEnergyMetric), q.quoted("energy.zone"), q.overlapping())
	var labels []string
	for _, name := range by {
		if labels = append(labels, q.quoted(name)); name == workload {
			grown = fmt.Sprintf(`label_replace(%s, %q, "$1", %q, %q)`, grown, workload, q.label("k8s.pod.name"), workloadOfPod)
		}
	}
	return "sum by (" + strings.Join(labels, ", ") + ") (" + grown + ")"
}

// overlapping returns the zones of nodes that are not added, as the rule
// node:energy_zone:overlapping does.
func (q *queries) overlapping() string {
	of := func(zones string) string {
		zones = fmt.Sprintf(",%s=~%q", q.quoted("energy.zone"), zones)
		return fmt.Sprintf("last_over_time(%s[1h])", q.energyOf(snapshot.NodeEnergyMetric, zones))
	}
	return fmt.Sprintf("%[2]s and on (%[1]s) %[3]s or %[4]s and on (%[1]s) (%[5]s unless on (%[1]s) %[3]s)",
		q.quoted("host.name"), of("platform|psys"), of("package"), of("gpu|psys"), of("platform"))
}

// workloadOfPod matches the name of a pod, as the rule pod:workload:info does.
const workloadOfPod = "(.+?)((-[bcdfghjklmnpqrstvwxz2456789]{5,10}|-[0-9]{8})?" +
	"-[bcdfghjklmnpqrstvwxz2456789]{5}|-[0-9]+)?"

// ofNodes returns the query of the energy of all nodes.
func (q *queries) ofNodes() string {
	by := []string{"energy.zone", "energy.method", "energy.state"}
	return q.sum(by, q.energyOf(snapshot.NodeEnergyMetric, q.measured()))
}

// ofUnattributed returns the query of the active energy that belongs to no workload.
func (q *queries) ofUnattributed() string {
	return q.sum(nil, q.energyOf(snapshot.UnattributedMetric, q.active(), q.measured()))
}

// ofRows returns the query of the active energy of rows and of their parts.
func (q *queries) ofRows() string {
	by, more := q.labels, q.active()
	if q.part != "" {
		by = append(slices.Clone(by), q.part)
	}
	if q.energy == snapshot.NodeEnergyMetric {
		more += q.measured()
	}
	return q.sum(by, q.energyOf(q.energy, more))
}

// required returns the labels without which a series has no row.
func (q *queries) required() string {
	var labels []string
	for i, name := range q.labels {
		if name == workload {
			name = "k8s.pod.name"
		}
		if i > 0 || len(q.labels) == 1 {
			labels = append(labels, q.label(name))
		}
	}
	text := strings.Join(labels, " or ")
	if strings.HasPrefix(q.labels[0], "k8s.") {
		text += " (see " + note.Pages + "configuration.md#names-of-containers)"
	}
	return text
}

// ofSlots returns the query of the number of slots with a report, by node.
func (q *queries) ofSlots() string {
	return fmt.Sprintf("count_over_time((group by (%s) (last_over_time(%s[5m])))[1h:5m])",
		q.quoted("host.name"), q.energyOf(snapshot.NodeEnergyMetric, q.active()))
}

// anyOf returns a selector of counters in any translation.
func anyOf(match string, counters ...string) string {
	var all []string
	for _, counter := range counters {
		for _, n := range translations {
			all = append(all, regexp.QuoteMeta(n.metric(counter)))
		}
	}
	return fmt.Sprintf("{__name__=~%q%s}", strings.Join(all, "|"), match)
}
