// SPDX-License-Identifier: Apache-2.0

package stores

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"
)

// summed are the zones that the recipes add up.
const summed = `energy_zone=~"package|dram|gpu|other"`

// Recipes are the queries of docs/prometheus.md that the hour can answer. They are asked of all stores, as Queries are.
var Recipes = []Query{
	{
		Name:     "recipe: containers, last value",
		Question: "How many joules did this container use?",
		Text:     map[Language]string{PromQL: `sum by (container_id) (last_over_time(container_energy_joules_total{` + summed + `}[1d]))`},
		By:       "container.id",
		Truth:    during("container.energy", "container.id", 24*time.Hour),
		Least:    1,
	},
	{
		Name:     "recipe: containers, with restarts",
		Question: "How many joules did this container use, whatever became of the collector?",
		Text: map[Language]string{
			PromQL: `sum by (container_id) (last_over_time(container_energy_joules_total{` + summed + `}[2h]))
+ (sum by (container_id) (sum_over_time(
    (container_energy_joules_total{` + summed + `} offset 10s > container_energy_joules_total{` + summed + `})[2h:10s]))
  or 0 * sum by (container_id) (last_over_time(container_energy_joules_total{` + summed + `}[2h])))`,
			MetricsQL: `sum by (container_id) (increase_pure(container_energy_joules_total{` + summed + `}[2h]))`,
		},
		By:     "container.id",
		Truth:  during("container.energy", "container.id", 2*time.Hour),
		Within: 0.25,
		Least:  1,
	},
	{
		Name:     "recipe: pods, last value",
		Question: "How many joules did this run use, with all of its containers?",
		Text:     map[Language]string{PromQL: `sum by (k8s_pod_uid) (last_over_time(k8s_pod_energy_joules_total{` + summed + `}[1d]))`},
		By:       "k8s.pod.uid",
		Truth:    during("k8s.pod.energy", "k8s.pod.uid", 24*time.Hour),
		Least:    1,
	},
	{
		Name:     "recipe: namespaces, an hour",
		Question: "How many joules did a namespace use between two times?",
		Text:     map[Language]string{PromQL: "sum by (k8s_namespace_name) (\n" + Grown("k8s_pod_energy_joules_total{"+summed+"}", "1h") + ")"},
		By:       "k8s.namespace.name",
		Truth:    during("k8s.pod.energy", "k8s.namespace.name", time.Hour),
		Within:   0.005,
	},
	{
		Name:     "recipe: namespaces, watts",
		Question: "How many watts does each namespace draw now?",
		Text:     map[Language]string{PromQL: "sum by (k8s_namespace_name) (\n" + Grown("k8s_pod_energy_joules_total{"+summed+"}", "5m") + ") / 300"},
		By:       "k8s.namespace.name",
		Truth:    per(300, during("k8s.pod.energy", "k8s.namespace.name", 5*time.Minute)),
		Every:    5 * time.Minute,
		Within:   0.03, // extrapolated where the group of short-lived pods begins again,
	},
	{
		Name:     "recipe: containers, the largest",
		Question: "Which ten containers used the most in the last hour?",
		Text: map[Language]string{PromQL: "topk(10, sum by (k8s_namespace_name, k8s_pod_name, container_id) (\n" +
			Grown(`container_energy_joules_total{container_id!="",`+summed+"}", "1h") + "))"},
		By:    "container.id",
		Truth: largest(10, during("container.energy", "container.id", time.Hour)),
	},
	{
		Name:     "recipe: what is gone",
		Question: "How many joules did what has ended by now use?",
		Text: map[Language]string{PromQL: `sum by (k8s_namespace_name) (
  last_over_time(container_energy_joules_total{` + summed + `}[1d]) unless last_over_time(container_energy_joules_total[1m]))`},
		By:    "k8s.namespace.name",
		Truth: gone("container.energy", "k8s.namespace.name", time.Minute),
	},
}

// Grown returns a query for the increase of each counter within a window that ends now.
func Grown(counters, window string) string {
	return fmt.Sprintf(`  increase(%[1]s[%[2]s]) and resets(%[1]s[%[2]s]) > 0
  or last_over_time(%[1]s[%[2]s]) - last_over_time(%[1]s[1h] offset %[2]s) >= 0
  or last_over_time(%[1]s[%[2]s])`, counters, window)
}

// per divides what is true.
func per(divisor float64, truth func(*Truth, time.Time) map[string]float64) func(*Truth, time.Time) map[string]float64 {
	return func(t *Truth, at time.Time) map[string]float64 {
		values := truth(t, at)
		for key := range values {
			values[key] /= divisor
		}
		return values
	}
}

// largest limits a truth to its n largest values, without the value for an empty attribute.
func largest(n int, truth func(*Truth, time.Time) map[string]float64) func(*Truth, time.Time) map[string]float64 {
	return func(t *Truth, at time.Time) map[string]float64 {
		values := truth(t, at)
		delete(values, "")
		keys := slices.SortedFunc(maps.Keys(values), func(a, b string) int { return cmp.Compare(values[b], values[a]) })
		for _, key := range keys[min(n, len(keys)):] {
			delete(values, key)
		}
		return values
	}
}

// during is the energy of the series of a metric in a window, of all zones, by the value of an attribute.
func during(metric, attribute string, window time.Duration) func(*Truth, time.Time) map[string]float64 {
	return func(t *Truth, at time.Time) map[string]float64 {
		sums := map[string]float64{}
		for _, s := range t.Match(metric, nil) {
			if joules := s.Increase(at.Add(-window), at); joules > 0 {
				sums[s.Attributes[attribute]] += joules
			}
		}
		return sums
	}
}

// gone is all energy of the series that have had no point for a time.
func gone(metric, attribute string, since time.Duration) func(*Truth, time.Time) map[string]float64 {
	return func(t *Truth, at time.Time) map[string]float64 {
		sums := map[string]float64{}
		for _, s := range t.Match(metric, nil) {
			if n := len(s.Points); n > 0 && !s.Points[n-1].At.After(at.Add(-since)) {
				sums[s.Attributes[attribute]] += s.Points[n-1].Value
			}
		}
		return sums
	}
}
