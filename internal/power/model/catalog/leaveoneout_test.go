// SPDX-License-Identifier: Apache-2.0

package catalog

import (
	"encoding/csv"
	"flag"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/energyreceiver/energyreceiver/internal/power/model"
)

var write = flag.Bool("accuracy.write", false, "write the tables of models of dev/results")

// deviation is how far a method is from a measured curve, relative to the measured power.
type deviation struct{ mean, worst float64 }

// deviationOf compares a method with a machine at each load that was measured.
func deviationOf(m *measuredMachine, watts func(u float64) float64, of func(measurement) float64) (d deviation) {
	for _, p := range m.points {
		e := math.Abs(watts(p.load/100)-of(p)) / of(p)
		d.mean += e / float64(len(m.points))
		d.worst = max(d.worst, e)
	}
	return d
}

func packagesOf(p measurement) float64 { return p.packages }

// method predicts the power of a machine that it has not seen.
type method struct {
	name string
	of   func(*measuredMachine) func(u float64) float64
}

var methods = []method{
	{"TDP and shape (auto)", func(m *measuredMachine) func(float64) float64 {
		return scaled(reference(m.cpu), m.tdp*float64(m.chips))
	}},
	{"CodeCarbon's curve", func(m *measuredMachine) func(float64) float64 {
		return func(u float64) float64 { return m.tdp * float64(m.chips) * (0.1 + 0.9*u*u*u) }
	}},
	{"Alumet's curve", func(m *measuredMachine) func(float64) float64 {
		return func(u float64) float64 { return m.tdp * float64(m.chips) * u }
	}},
	{"idle and full known, shape", func(m *measuredMachine) func(float64) float64 {
		return between(m, shapeOf(m.cpu, isServer))
	}},
	{"idle and full known, line", func(m *measuredMachine) func(float64) float64 {
		return between(m, func(u float64) float64 { return u })
	}},
}

// between runs from the machine's own power at the first load to that at the last.
func between(m *measuredMachine, shape func(u float64) float64) func(u float64) float64 {
	idle, full := m.points[0].packages, m.points[len(m.points)-1].packages
	return func(u float64) float64 { return idle + (full-idle)*shape(u) }
}

// deviations returns those of each method, of servers or of the others.
func deviations(servers bool) (machines []*measuredMachine, by [][]deviation) {
	for i := range measured {
		if m := &measured[i]; isServer(m) == servers {
			machines = append(machines, m)
		}
	}
	by = make([][]deviation, len(methods))
	for i, method := range methods {
		for _, m := range machines {
			by[i] = append(by[i], deviationOf(m, method.of(m), packagesOf))
		}
	}
	return machines, by
}

// memoryDeviations returns those of memory, by its size, of each server.
func memoryDeviations() (d []deviation) {
	for i := range measured {
		if m := &measured[i]; isServer(m) {
			d = append(d, deviationOf(m, scaled(memoryReference(m.cpu), m.memory), func(p measurement) float64 { return p.dram }))
		}
	}
	return d
}

// means returns the machines' means.
func means(of []deviation) (all []float64) {
	for _, d := range of {
		all = append(all, d.mean)
	}
	return all
}

func mean(values []float64) (sum float64) {
	for _, v := range values {
		sum += v / float64(len(values))
	}
	return sum
}

// tdpErrors returns the error of the TDP per core of each listed CPU of a family, by the others: of
// its own family, and of all families.
func tdpErrors() (ofFamily, ofAll []float64) {
	families := map[string][]float64{}
	for fields := range lines(cpuList) {
		if c := cpuOf(fields); c.cores > 0 && c.family != "" {
			families[c.family] = append(families[c.family], c.tdp/float64(c.cores))
		}
	}
	var every []float64
	for _, tdp := range families {
		every = append(every, tdp...)
	}
	withoutOne := func(all []float64) (e []float64) {
		for i, actual := range all {
			if rest := slices.Delete(slices.Clone(all), i, i+1); len(rest) > 0 {
				e = append(e, math.Abs(median(rest)-actual)/actual)
			}
		}
		return e
	}
	for _, tdp := range families {
		ofFamily = append(ofFamily, withoutOne(tdp)...)
	}
	return ofFamily, withoutOne(every)
}

// neighborErrors returns how far the power of a virtual machine is off because the load of its host
// is not known, on a host of the reference: at each load of its own, and each of the host from 5 to
// 100 %. Its actual power is its part of the host's idle power and, in proportion to CPU time, of
// the rest.
func neighborErrors() (e []float64) {
	host := reference("")
	for own := range 21 {
		for all := 1; all <= 20; all++ {
			u, of := float64(own)/20, float64(all)/20
			actual := host(0) + (host(of)-host(0))/of*u
			e = append(e, math.Abs(host(u)-actual)/actual)
		}
	}
	return e
}

// tables returns the files of dev/results: the errors of each method on each machine, and the errors to expect.
func tables() map[string][][]string {
	models := [][]string{{"estimated", "method", "error", "largest"}}
	add := func(estimated, method, figures string) {
		models = append(models, append([]string{estimated, method}, strings.Split(figures, " ")...))
	}
	for _, group := range []string{"servers", "others"} {
		machines, by := deviations(group == "servers")
		for i, m := range machines {
			for k, d := range by {
				add(plural(m.chips, "chip")+" of "+m.cpu, methods[k].name, fmt.Sprintf("%.1f %.0f", 100*d[i].mean, 100*d[i].worst))
			}
		}
		for _, row := range statistics {
			for k, d := range by {
				add(group+", "+row.name, methods[k].name, fmt.Sprintf("%.1f ", 100*row.of(means(d))))
			}
		}
	}
	ofFamily, ofAll := tdpErrors()
	for _, estimate := range []struct {
		name   string
		values []float64
	}{
		{"memory of a server, by its size", means(memoryDeviations())},
		{"TDP of a core, by the family", ofFamily},
		{"TDP of a core, by all server CPUs", ofAll},
		{"part of a virtual machine, for any load of itself and of its host", neighborErrors()},
	} {
		for _, row := range statistics {
			add(estimate.name, row.name, fmt.Sprintf("%.0f ", 100*row.of(slices.Clone(estimate.values))))
		}
	}
	return map[string][][]string{"models.csv": models, "expected-errors.csv": expected()}
}

var statistics = []struct {
	name string
	of   func([]float64) float64
}{{"median", median}, {"mean", mean}, {"worst", slices.Max[[]float64]}}

// expected returns the errors to expect: means of the errors of the methods.
func expected() (rows [][]string) {
	var least, most float64 = 1, 0
	for fields := range lines(familyList) {
		s := lookupSystems(fields[0])
		least, most = min(least, s.spread), max(most, s.spread)
	}
	add := func(taken, format string, errors ...float64) {
		figures := make([]any, len(errors))
		for i, e := range errors {
			figures[i] = 100 * e
		}
		rows = append(rows, []string{taken, fmt.Sprintf(format, figures...)})
	}
	add("taken", "error to expect")
	add("the measured curve of the same CPU",
		"%.1f: what separates two systems with one CPU, the median of 619 published SPECpower results, at the wall", model.SameCPUError)
	add("TDP and shape, Xeon Gold and Platinum of the first and second generation", "%.1f", scalableError)
	add("TDP and shape, any other CPU", "%.0f", otherError)
	add("a CPU that is not listed, by the TDP of a core of its family",
		"%.0f (Xeon Scalable of these generations), %.0f (any other): the errors of both, added as squares",
		math.Hypot(scalableError, familyError), math.Hypot(otherError, familyError))
	add("an unknown CPU, by the TDP of a core of all servers", "%.0f: likewise", math.Hypot(otherError, serverError))
	add("idle and full power stated, shape server",
		"%.1f (Xeon Gold and Platinum of these generations), %.0f (any other), if both powers are right", scalableShapeError, otherShapeError)
	add("idle and full power stated, shape linear", "%.0f, %.0f: likewise", scalableLineError, otherLineError)
	add("memory", "%.0f", memoryError)
	add("zone: platform",
		"half of what the middle 80 %% of the family's published systems span: %.0f to %.0f; %.0f where the family is not known",
		least, most, lookupSystems("").spread)
	add("in a virtual machine, unless its two powers are stated",
		"of its host as above, and %.0f for the load of its host, which is not known, added as squares: %.0f where the CPU was measured. Memory as above",
		model.PartError, model.ErrorOfPart(model.SameCPUError))
	return rows
}

func TestLeaveOneOutTablesAreUpToDate(t *testing.T) {
	for file, rows := range tables() {
		path := filepath.Join("../../../../dev/results", file)
		var text strings.Builder
		require.NoError(t, csv.NewWriter(&text).WriteAll(rows))
		if *write {
			require.NoError(t, os.WriteFile(path, []byte(text.String()), 0o644))
		}
		committed, err := os.ReadFile(path)
		require.NoError(t, err)
		require.Equal(t, text.String(), string(committed), "make accuracy writes %s", file)
	}
}

// TestExpectedErrorsAreThoseOfTheTables compares the constants with the computation. The bounds at its
// end keep the estimates of servers from getting worse when the tables are written again.
func TestExpectedErrorsAreThoseOfTheTables(t *testing.T) {
	_, servers := deviations(true)
	_, others := deviations(false)
	ofFamily, ofAll := tdpErrors()
	for _, tc := range []struct {
		name           string
		constant, want float64
	}{
		{"scalableError", scalableError, mean(means(servers[0]))},
		{"otherError", otherError, mean(means(others[0]))},
		{"scalableShapeError", scalableShapeError, mean(means(servers[3]))},
		{"otherShapeError", otherShapeError, mean(means(others[3]))},
		{"scalableLineError", scalableLineError, mean(means(servers[4]))},
		{"otherLineError", otherLineError, mean(means(others[4]))},
		{"familyError", familyError, mean(ofFamily)},
		{"serverError", serverError, mean(ofAll)},
		{"memoryError", memoryError, mean(means(memoryDeviations()))},
		{"PartError", model.PartError, mean(neighborErrors())},
	} {
		if math.Abs(tc.constant-tc.want) > 0.005 {
			t.Errorf("%s is %g, the tables have %.4f", tc.name, tc.constant, tc.want)
		}
	}
	if got := median(means(servers[0])); got > 0.10 {
		t.Errorf("TDP and shape: the median is %.3f", got)
	}
	for i, d := range servers[0] {
		if known := servers[3][i].mean; d.worst > 0.30 || known > 0.04 {
			t.Errorf("TDP and shape: %.3f at the worst load; idle and full known: mean %.3f", d.worst, known)
		}
	}
}
