// SPDX-License-Identifier: Apache-2.0

package catalog

import (
	"flag"
	"fmt"
	"math"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/energyreceiver/energyreceiver/internal/power/model"
)

var write = flag.Bool("accuracy.write", false, "write the tables of models of dev/accuracy-tables.md")

// deviation is how far a method is from a measured curve, relative to the measured power.
type deviation struct{ mean, worst float64 }

func (d deviation) String() string { return fmt.Sprintf("%.1f %% (%.0f %%)", 100*d.mean, 100*d.worst) }

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
	{"TDP and shape (`auto`)", func(m *measuredMachine) func(float64) float64 {
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

// tables returns the tables of the page.
func tables() string {
	var b strings.Builder
	for _, servers := range []bool{true, false} {
		machines, by := deviations(servers)
		fmt.Fprint(&b, "\n| measured machine |")
		for _, m := range methods {
			fmt.Fprintf(&b, " %s |", m.name)
		}
		fmt.Fprint(&b, "\n|---|"+strings.Repeat("---|", len(methods))+"\n")
		for i, m := range machines {
			fmt.Fprintf(&b, "| %s %s |", plural(m.chips, "chip")+" of", m.cpu)
			for _, d := range by {
				fmt.Fprintf(&b, " %s |", d[i])
			}
			fmt.Fprintln(&b)
		}
		for _, row := range []struct {
			name string
			of   func([]float64) float64
		}{{"median", median}, {"mean", mean}, {"worst", slices.Max[[]float64]}} {
			fmt.Fprintf(&b, "| **%s** |", row.name)
			for _, d := range by {
				fmt.Fprintf(&b, " %.1f %% |", 100*row.of(means(d)))
			}
			fmt.Fprintln(&b)
		}
	}
	memory := means(memoryDeviations())
	ofFamily, ofAll := tdpErrors()
	fmt.Fprint(&b, "\n| what else is estimated | median | mean | worst |\n|---|---|---|---|\n")
	for _, row := range []struct {
		name   string
		values []float64
	}{
		{"memory of a server, by its size", memory},
		{"TDP of a core, by the family", ofFamily},
		{"TDP of a core, by all server CPUs", ofAll},
		{"part of a virtual machine, for any load of itself and of its host", neighborErrors()},
	} {
		fmt.Fprintf(&b, "| %s | %.0f %% | %.0f %% | %.0f %% |\n", row.name,
			100*median(slices.Clone(row.values)), 100*mean(row.values), 100*slices.Max(row.values))
	}
	b.WriteString(expected())
	return b.String()
}

// expected returns the table of the errors to expect.
func expected() string {
	var least, most float64 = 1, 0
	for fields := range lines(familyList) {
		s := lookupSystems(fields[0])
		least, most = min(least, s.spread), max(most, s.spread)
	}
	return fmt.Sprintf(`
`+"`model: auto`"+` says at start what it took, and the error to expect: means of the tables above.

| taken | error to expect |
|---|---|
| the measured curve of the same CPU | %.1f %%: what separates two systems with one CPU, the median of 619 published SPECpower results, at the wall |
| TDP and shape, Xeon Gold and Platinum of the first and second generation | %.1f %% |
| TDP and shape, any other CPU | %.0f %% |
| a CPU that is not listed, by the TDP of a core of its family | %.0f %% (Xeon Scalable of these generations), %.0f %% (any other): the errors of both, added as squares |
| an unknown CPU, by the TDP of a core of all servers | %.0f %%: likewise |
| idle and full power stated, shape `+"`server`"+` | %.1f %% (Xeon Gold and Platinum of these generations), %.0f %% (any other), if both powers are right |
| idle and full power stated, shape `+"`linear`"+` | %.0f %%, %.0f %%: likewise |
| memory | %.0f %% |
| `+"`zone: platform`"+` | half of what the middle 80 %% of the family's published systems span: %.0f %% to %.0f %%; %.0f %% where the family is not known |
| in a virtual machine, unless its two powers are stated | of its host as above, and %.0f %% for the load of its host, which is not known, added as squares: %.0f %% where the CPU was measured. Memory as above |
`, 100*model.SameCPUError, 100*scalableError, 100*otherError, 100*math.Hypot(scalableError, familyError), 100*math.Hypot(otherError, familyError),
		100*math.Hypot(otherError, serverError), 100*scalableShapeError, 100*otherShapeError, 100*scalableLineError, 100*otherLineError, 100*memoryError, 100*least, 100*most, 100*lookupSystems("").spread,
		100*model.PartError, 100*model.ErrorOfPart(model.SameCPUError))
}

const page = "../../../../dev/accuracy-tables.md"

// section returns the page around its tables.
func section(t *testing.T) (before, inside, after string) {
	t.Helper()
	content, err := os.ReadFile(page)
	require.NoError(t, err)
	const begin, end = "<!-- tables of models: make accuracy -->\n", "\n<!-- end of the tables of models -->"
	before, rest, ok := strings.Cut(string(content), begin)
	inside, after, okEnd := strings.Cut(rest, end)
	if !ok || !okEnd {
		t.Fatalf("%s has no tables of models", page)
	}
	return before + begin, inside, end + after
}

func TestLeaveOneOutTablesAreOnThePage(t *testing.T) {
	t.Log(tables())
	before, inside, after := section(t)
	if inside == tables() {
		return
	}
	if !*write {
		t.Fatalf("%s has other tables; write them with make accuracy", page)
	}
	require.NoError(t, os.WriteFile(page, []byte(before+tables()+after), 0o644))
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
