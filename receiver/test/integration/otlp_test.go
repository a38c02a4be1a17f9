// SPDX-License-Identifier: Apache-2.0

//go:build linux

package integration

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// point is a data point with its own and its resource's attributes.
type point struct {
	metric     string
	attributes map[string]string
	// series identifies the series within its metric: attributes and start.
	series    string
	value     float64
	start, at time.Time
}

// emission is one collection. The receiver sends large collections in parts.
type emission []point

// readEmissions reads the output of the file exporter: OTLP in JSON, one export per line
// (https://opentelemetry.io/docs/specs/otel/protocol/file-exporter/). It leaves out an incomplete
// last line.
func readEmissions(t *testing.T, path string) []emission {
	t.Helper()
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	text = text[:bytes.LastIndexByte(text, '\n')+1]
	var all []emission
	for line := range bytes.Lines(text) {
		e, last := parseEmission(t, line), len(all)-1
		switch {
		case len(e) == 0:
		case last >= 0 && all[last].at().Equal(e.at()):
			all[last] = append(all[last], e...)
		default:
			all = append(all, e)
		}
	}
	return all
}

// noRecordedValue is DATA_POINT_FLAGS_NO_RECORDED_VALUE_MASK (opentelemetry/proto/metrics/v1).
const noRecordedValue = 1

type keyValues []struct {
	Key   string
	Value struct {
		StringValue *string
		IntValue    *string
		BoolValue   *bool
	}
}

func (kv keyValues) into(m map[string]string) {
	for _, a := range kv {
		switch v := a.Value; {
		case v.StringValue != nil:
			m[a.Key] = *v.StringValue
		case v.IntValue != nil:
			m[a.Key] = *v.IntValue
		case v.BoolValue != nil:
			m[a.Key] = strconv.FormatBool(*v.BoolValue)
		}
	}
}

func parseEmission(t *testing.T, line []byte) emission {
	t.Helper()
	type points struct {
		DataPoints []struct {
			Attributes        keyValues
			StartTimeUnixNano string
			TimeUnixNano      string
			AsDouble          *float64
			Flags             uint32
		}
	}
	var export struct {
		ResourceMetrics []struct {
			Resource     struct{ Attributes keyValues }
			ScopeMetrics []struct {
				Scope   struct{ Name string }
				Metrics []struct {
					Name       string
					Sum, Gauge *points
				}
			}
		}
	}
	require.NoError(t, json.Unmarshal(line, &export))
	var e emission
	for _, rm := range export.ResourceMetrics {
		for _, sm := range rm.ScopeMetrics {
			for _, m := range sm.Metrics {
				if strings.HasPrefix(m.Name, "otelcol_") || !strings.HasPrefix(sm.Scope.Name, "github.com/energyreceiver/") {
					continue // the collector's own telemetry
				}
				of := m.Sum
				if of == nil {
					of = m.Gauge
				}
				require.NotNilf(t, of, "%s is neither sum nor gauge", m.Name)
				for _, dp := range of.DataPoints {
					if dp.Flags&noRecordedValue != 0 {
						continue // the series has ended
					}
					p := point{metric: m.Name, attributes: map[string]string{}}
					rm.Resource.Attributes.into(p.attributes)
					dp.Attributes.into(p.attributes)
					p.start, p.at = unixNano(t, dp.StartTimeUnixNano), unixNano(t, dp.TimeUnixNano)
					require.NotNilf(t, dp.AsDouble, "%s is not a double", m.Name)
					p.value = *dp.AsDouble
					var series strings.Builder
					for _, key := range slices.Sorted(maps.Keys(p.attributes)) {
						fmt.Fprintf(&series, "%s=%s,", key, p.attributes[key])
					}
					fmt.Fprintf(&series, "since %d", p.start.UnixNano())
					p.series = series.String()
					e = append(e, p)
				}
			}
		}
	}
	return e
}

func unixNano(t *testing.T, text string) time.Time {
	t.Helper()
	if text == "" {
		return time.Time{}
	}
	n, err := strconv.ParseInt(text, 10, 64)
	require.NoError(t, err)
	return time.Unix(0, n)
}

// at returns the latest time of any point.
func (e emission) at() time.Time {
	var latest time.Time
	for _, p := range e {
		if p.at.After(latest) {
			latest = p.at
		}
	}
	return latest
}

// filter returns the points of a metric with these attributes, "key=value".
func (e emission) filter(metric string, want ...string) []point {
	var found []point
	for _, p := range e {
		matches := p.metric == metric
		for _, w := range want {
			key, value, _ := strings.Cut(w, "=")
			matches = matches && p.attributes[key] == value
		}
		if matches {
			found = append(found, p)
		}
	}
	return found
}

// totals returns, after each emission, the sum of the last values of all series of a metric.
func totals(emissions []emission, metric string, want ...string) []float64 {
	last := map[string]float64{}
	sum := 0.0
	var sums []float64
	for _, e := range emissions {
		for _, p := range e.filter(metric, want...) {
			sum += p.value - last[p.series]
			last[p.series] = p.value
		}
		sums = append(sums, sum)
	}
	return sums
}

// total returns the last of totals.
func total(emissions []emission, metric string, want ...string) float64 {
	if len(emissions) == 0 {
		return 0
	}
	return totals(emissions, metric, want...)[len(emissions)-1]
}

// requireBalance checks after each emission that processes and unattributed energy add up to active
// energy, zone by zone.
func requireBalance(t *testing.T, emissions []emission, zones ...string) {
	t.Helper()
	for _, zone := range zones {
		zone = "energy.zone=" + zone
		processes := totals(emissions, "process.energy", zone)
		unattributed := totals(emissions, "system.unattributed.energy", zone)
		active := totals(emissions, "system.energy", zone, "energy.state=active")
		for i := range emissions {
			// Values are whole microjoules, and sums of doubles below 100 kJ are more exact than that.
			require.InDeltaf(t, active[i], processes[i]+unattributed[i], 0.5e-6,
				"processes %.6f J + unattributed %.6f J == active of %s, emission %d", processes[i], unattributed[i], zone, i)
		}
		require.Positivef(t, active[len(active)-1], "active energy of %s", zone)
	}
}

// member is a workload: the metrics of its CPU time and its energy, and an attribute of both.
type member struct{ cpu, energy, attribute string }

// requireSameRate checks that all workloads with CPU time between two emissions got the same energy
// per second of CPU time.
func requireSameRate(t *testing.T, emissions []emission, members []member) {
	t.Helper()
	used, billed := make([][]float64, len(members)), make([][]float64, len(members))
	for i, m := range members {
		used[i] = totals(emissions, m.cpu, m.attribute)
		billed[i] = totals(emissions, m.energy, m.attribute)
	}
	compared := 0
	for e := 1; e < len(emissions); e++ {
		var rates []float64
		for i := range members {
			if cpu := used[i][e] - used[i][e-1]; cpu > 0.05 {
				rates = append(rates, (billed[i][e]-billed[i][e-1])/cpu)
			}
		}
		if len(rates) > 1 {
			compared++
			require.InEpsilon(t, slices.Max(rates), slices.Min(rates), 0.001, "J per second of CPU time, emission %d: %v", e, rates)
		}
	}
	require.Greater(t, compared, 3, "emissions in which several ran")
}
