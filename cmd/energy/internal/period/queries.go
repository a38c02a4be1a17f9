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
)

// grouping selects the rows of a report.
type grouping struct {
	energy string   // counter in OTLP
	labels []string // whose values that are not empty are the name of a row, divided by slashes
	part   string   // label of the parts of a row, empty without parts
	rule   string   // prefix of the recording rule, empty without one
}

// workload is the Deployment, StatefulSet, DaemonSet or Job of a pod.
const workload = "workload"

// groupings has the rows of each --by.
var groupings = map[string]grouping{
	"namespace": {snapshot.Pod.EnergyMetric(), []string{"k8s.namespace.name"}, workload, "pod"},
	"workload":  {snapshot.Pod.EnergyMetric(), []string{"k8s.namespace.name", workload}, "", "pod"},
	"pod":       {snapshot.Pod.EnergyMetric(), []string{"k8s.namespace.name", "k8s.pod.name"}, "", "pod"},
	"container": {
		snapshot.Container.EnergyMetric(), []string{"k8s.namespace.name", "k8s.container.name", "container.name"}, "", "",
	},
	"node":    {snapshot.NodeEnergyMetric, []string{"host.name"}, "", "node"},
	"vm":      {snapshot.VM.EnergyMetric(), []string{"vm.name"}, "", "vm"},
	"job":     {snapshot.Job.EnergyMetric(), []string{"slurm.job.id"}, "", "job"},
	"unit":    {snapshot.Unit.EnergyMetric(), []string{"systemd.unit.name"}, "", ""},
	"user":    {snapshot.Process.EnergyMetric(), []string{"process.owner"}, "process.executable.name", ""},
	"program": {snapshot.Process.EnergyMetric(), []string{"process.executable.name"}, "", ""},
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

// queries are the queries of a report. Each query has the energy of a step that ends now.
type queries struct {
	names
	grouping
	match    string // further matchers of all series, empty or from a comma on
	step     time.Duration
	rules    bool // read recording rules instead of counters
	overlaps bool // some nodes have zones that contain other zones
	guests   bool // the energy of guests is also in the energy of their hosts
}

// counter returns a selector of a counter, with further matchers.
func (q *queries) counter(name, more string) string {
	return fmt.Sprintf(`{__name__=%q,%s!~"core|uncore"%s%s}`, q.metric(name), q.quoted("energy.zone"), more, q.match)
}

// active returns a matcher of active energy. Workloads have only active energy unless idle
// energy is attributed, too.
func (q *queries) active() string { return "," + q.quoted("energy.state") + `!="idle"` }

// measured returns a matcher without the energy of guests that is part of their hosts' energy.
func (q *queries) measured() string {
	if !q.guests {
		return ""
	}
	return "," + q.quoted("energy.method") + `!="reported"`
}

// seconds returns a duration for a query.
func seconds(d time.Duration) string { return fmt.Sprintf("%ds", int(d.Seconds())) }

// sum returns the energy of counters, by labels. The recording rules have the same expression
// (deploy/prometheus/rules.yaml), which explain its parts. The sum with 0 removes the name of the
// metric: in range queries, VictoriaMetrics would add series of two names, in place of joining them.
func (q *queries) sum(by []string, counters string) string {
	host, zone, step := q.quoted("host.name"), q.quoted("energy.zone"), seconds(q.step)
	grown := fmt.Sprintf("(increase(%[1]s[%[2]s]) and resets(%[1]s[%[2]s]) > 0"+
		" or last_over_time(%[1]s[%[2]s]) - last_over_time(%[1]s[1h] offset %[2]s) >= 0"+
		" or last_over_time(%[1]s[%[2]s]) + 0 and on (%[3]s) last_over_time(%[4]s[1h] offset %[2]s)"+
		" or last_over_time(%[1]s[%[2]s]) - min_over_time(%[1]s[%[2]s]))", counters, step, host, q.counter(snapshot.NodeEnergyMetric, ""))
	if q.overlaps {
		of := func(zones string) string {
			zones = fmt.Sprintf(",%s=~%q", zone, zones)
			return fmt.Sprintf("last_over_time(%s[%s])", q.counter(snapshot.NodeEnergyMetric, zones), step)
		}
		grown += fmt.Sprintf(" unless on (%[1]s, %[2]s) (%[3]s and on (%[1]s) %[4]s"+
			" or %[5]s and on (%[1]s) (%[6]s unless on (%[1]s) %[4]s))", host, zone, of("platform|psys"), of("package"), of("gpu|psys"), of("platform"))
	}
	return q.sumBy(by, grown)
}

// workloadOfPod matches the name of a pod, as the rule pod:workload:info does.
const workloadOfPod = "(.+?)((-[bcdfghjklmnpqrstvwxz2456789]{5,10}|-[0-9]{8})?-[bcdfghjklmnpqrstvwxz2456789]{5}|-[0-9]+)?"

func (q *queries) sumBy(by []string, series string) string {
	var labels []string
	for _, name := range by {
		labels = append(labels, q.quoted(name))
	}
	if slices.Contains(by, workload) {
		pod := q.label("k8s.pod.name")
		series = fmt.Sprintf(`label_replace(%s, %q, "$1", %q, %q)`, series, workload, pod, workloadOfPod)
	}
	return "sum by (" + strings.Join(labels, ", ") + ") (" + series + ")"
}

// rule returns the sum of a recording rule over the step, by labels. Versions before Prometheus 3
// include both ends of a range, so the range is shorter than the step.
func (q *queries) rule(by []string, name, more string) string {
	return q.sumBy(by, fmt.Sprintf("sum_over_time(%s[%s])", q.recorded(name, more), seconds(q.step-time.Second)))
}

func (q *queries) recorded(name, more string) string {
	return fmt.Sprintf(`{__name__=%q%s%s}`, name, more, q.match)
}

const nodeRule = "node:energy_joules:increase5m"

// nodes returns the energy of all nodes.
func (q *queries) nodes() string {
	if q.rules {
		return q.rule([]string{"energy.method", "energy.state"}, nodeRule, q.measured())
	}
	return q.sum([]string{"energy.zone", "energy.method", "energy.state"}, q.counter(snapshot.NodeEnergyMetric, q.measured()))
}

// unattributed returns the active energy that belongs to no workload.
func (q *queries) unattributed() string {
	if q.rules {
		return q.rule(nil, "node:energy_unattributed_joules:increase5m", q.active())
	}
	return q.sum(nil, q.counter(snapshot.UnattributedMetric, q.active()+q.measured()))
}

// rows returns the active energy of rows and of their parts.
func (q *queries) rows() string {
	by, more := q.labels, q.active()
	if q.part != "" {
		by = append(slices.Clone(by), q.part)
	}
	if q.grouping.energy == snapshot.NodeEnergyMetric {
		more += q.measured()
	}
	if q.rules {
		return q.rule(by, q.grouping.rule+":energy_joules:increase5m", more)
	}
	return q.sum(by, q.counter(q.grouping.energy, more))
}

// slot is the longest expected time between two reports of a node.
const slot = 5 * time.Minute

// slots returns the number of slots with a report, by node.
func (q *queries) slots() string {
	host := q.quoted("host.name")
	if q.rules {
		return fmt.Sprintf("max by (%s) (count_over_time(%s[%s]))",
			host, q.recorded(nodeRule, q.active()), seconds(q.step-time.Second))
	}
	return fmt.Sprintf("count_over_time((group by (%s) (last_over_time(%s[%s])))[%s:%s])", host,
		q.counter(snapshot.NodeEnergyMetric, q.active()), seconds(slot), seconds(q.step), seconds(slot))
}

// anyOf returns a selector of metrics in any translation.
func anyOf(match string, metrics ...string) string {
	var all []string
	for _, name := range metrics {
		for _, n := range translations {
			all = append(all, regexp.QuoteMeta(n.metric(name)))
		}
	}
	return fmt.Sprintf("{__name__=~%q%s}", strings.Join(all, "|"), match)
}
