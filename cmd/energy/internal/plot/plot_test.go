// SPDX-License-Identifier: Apache-2.0

package plot

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"html"
	"math"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/energyreceiver/energyreceiver/cmd/energy/internal/golden"
	"github.com/energyreceiver/energyreceiver/cmd/energy/internal/measure"
	"github.com/energyreceiver/energyreceiver/cmd/energy/internal/phase"
	"github.com/energyreceiver/energyreceiver/internal/units"
)

// build is a run of a build with two phases: a package and a DRAM meter, a psys meter that includes
// both, and an unused GPU.
func build(seconds int) *measure.Result {
	r := &measure.Result{Command: []string{"make", "test"}, Zones: []measure.Zone{
		{Name: "psys", Source: "measured", Besides: "package"},
		{Name: "package", Source: "measured"}, {Name: "dram", Source: "modeled"}, {Name: "gpu", Source: "measured"},
	}}
	for i := range seconds {
		s := measure.Sample{Wall: time.Second, End: time.Duration(i+1) * time.Second, Phase: phase.None}
		load := 0.6 + 0.35*math.Sin(float64(i)/3)
		switch {
		case i >= seconds/10 && i < seconds/2:
			s.Phase = "install"
			load /= 3
		case i >= seconds/2 && i < seconds*9/10:
			s.Phase = "test"
		}
		w := func(watts float64) units.Energy { return units.Energy(watts * 1e6) }
		s.Used = []units.Energy{w(34 * load), w(25 * load), w(5 * load), 0}
		s.NodeUsed = []units.Energy{w(34*load + 21), w(25*load + 12), w(5*load + 3), w(6)}
		r.Samples = append(r.Samples, s)
		r.Wall += s.Wall
		for z := range r.Zones {
			r.Zones[z].Used += s.Used[z]
		}
	}
	return r
}

func svg(t *testing.T, panels ...Panel) string {
	t.Helper()
	var b bytes.Buffer
	require.NoError(t, SVG(&b, panels...))
	return b.String()
}

// texts returns the texts of an image, which must be valid XML.
func texts(t *testing.T, image string) (all []string) {
	t.Helper()
	var content struct{}
	require.NoError(t, xml.Unmarshal([]byte(image), &content))
	for _, found := range regexp.MustCompile("(?s)<text[^>]*>([^<]*)</text>").FindAllStringSubmatch(image, -1) {
		all = append(all, html.UnescapeString(found[1]))
	}
	return all
}

// nx12 is a run on the measured package and memory of the server nx12, while a program uses 13 to
// 89 % of its CPUs. The power above the power at rest is the program's.
func nx12(t *testing.T) *measure.Result {
	t.Helper()
	data, err := os.ReadFile("../../../../receiver/test/replay/testdata/kmdb-nx12-cputime.csv")
	require.NoError(t, err)
	r := &measure.Result{Zones: []measure.Zone{{Name: "package", Source: "measured"}, {Name: "dram", Source: "measured"}}}
	var rows [][5]float64 // time, seconds, load, watts of the package, of the memory
	for line := range strings.Lines(string(data)) {
		var row [5]float64
		if n, _ := fmt.Sscanf(line, "%g,%g,%g,%g,%g", &row[0], &row[1], &row[2], &row[3], &row[4]); n == len(row) {
			rows = append(rows, row)
		}
	}
	name := phase.None
	for i, row := range rows[857:934] {
		if row[2] < 0.05 {
			name = phase.None
		} else if name == phase.None {
			name = fmt.Sprintf("%.0f %% load", 100*rows[857+i+2][2])
		}
		s := measure.Sample{Wall: time.Duration(row[1] * float64(time.Second)), Phase: name}
		r.Wall += s.Wall
		s.End = r.Wall
		for z, rest := range []float64{31.8, 38} {
			s.Used = append(s.Used, units.Energy(max(0, row[3+z]-rest)*s.Wall.Seconds()*1e6))
			s.NodeUsed = append(s.NodeUsed, units.Energy(row[3+z]*s.Wall.Seconds()*1e6))
			r.Zones[z].Used += s.Used[z]
		}
		r.Samples = append(r.Samples, s)
	}
	return r
}

// docs/measure-plot.svg is written with -update.
func TestThePictureIsCurrent(t *testing.T) {
	golden.Equal(t, "../../../../../docs/measure-plot.svg", svg(t, Panel{Title: "./load.sh", Result: nx12(t)}))
}

func TestAPlotOfTwoCommands(t *testing.T) {
	b := build(40)
	for i := range b.Samples {
		b.Samples[i].Phase = ""
	}
	a := build(60)
	a.Samples[57].Phase = "narrow"
	golden.Equal(t, "two.svg", svg(t, Panel{Title: "A: make test", Note: "run 3 of 5", Result: a},
		Panel{Title: "B: make check", Note: "run 2 of 5", Result: b}))
}

func TestTheNameOfACommandDoesNotBreakTheImage(t *testing.T) {
	hostile := "sh -c 'a <b> && \"c\" > d' \x00\x1b[31m\xff\u202e ]]>"
	r := build(10)
	r.Zones[1].Name = "pack<age>"
	for i := range r.Samples {
		r.Samples[i].Phase = "<phase>&\x07"
	}
	written := texts(t, svg(t, Panel{Title: hostile, Note: "<note>", Result: r}))
	assert.Contains(t, written, `sh -c 'a <b> && "c" > d' ??[31m?? ]]>`)
	assert.Contains(t, written, "<phase>&?")
	assert.Contains(t, strings.Join(written, "\n"), "<note>")
	assert.Contains(t, strings.Join(written, "\n"), "pack<age>: ")
}

func TestRunsOfFewSamples(t *testing.T) {
	assert.Contains(t, texts(t, svg(t, Panel{Title: "true", Result: &measure.Result{}})), "nothing was measured")
	idle := build(5)
	for i := range idle.Samples {
		clear(idle.Samples[i].Used)
		clear(idle.Samples[i].NodeUsed)
	}
	for _, r := range []*measure.Result{{}, {Samples: []measure.Sample{{}}}, build(1), idle} {
		image := svg(t, Panel{Title: "true", Result: r})
		assert.NotContains(t, image, "NaN")
		assert.NotContains(t, image, "Inf")
		assert.Contains(t, texts(t, image), "1", "axes have a scale")
	}
}

func TestTheNumberOfPointsIsBounded(t *testing.T) {
	r := build(20_000)
	for i := range r.Samples { // as many phases as samples
		r.Samples[i].Phase = []string{"a", "b"}[i%2]
	}
	image := svg(t, Panel{Title: "a day", Result: r})
	assert.Less(t, len(image), 250_000)
	assert.LessOrEqual(t, len(edgesOf(r.Samples)), mostSteps+1)
	assert.Contains(t, texts(t, image), "time (h)")
}

func TestTheAreasOfStepsAreTheEnergies(t *testing.T) {
	r := build(1777)
	end := time.Duration(0)
	for i := range r.Samples {
		r.Samples[i].Wall = time.Duration(1+i%7*1000) * time.Microsecond
		end += r.Samples[i].Wall
		r.Samples[i].End = end
	}
	edges := edgesOf(r.Samples)
	var got, want float64
	for i, watts := range powers(r.Samples, edges, func(s measure.Sample) units.Energy { return s.Used[1] }) {
		assert.GreaterOrEqual(t, edges[i+1]-edges[i], shortestStep)
		got += watts * (edges[i+1] - edges[i]).Seconds()
	}
	for _, s := range r.Samples {
		want += s.Used[1].Joules()
	}
	assert.InEpsilon(t, want, got, 1e-9)
}

func TestAnIdleServerDoesNotFlattenTheCommand(t *testing.T) {
	r := build(10)
	for i := range r.Samples {
		r.Samples[i].NodeUsed[1] += 500 * units.Joule
	}
	_, power := commonScale([]*panel{newPanel(Panel{Result: r})})
	assert.Less(t, power.most, 60.0)
	image := svg(t, Panel{Result: r})
	assert.Regexp(t, "whole node: up to 5.*, above the scale", image)
	assert.Equal(t, 1, strings.Count(image, nodeLine), "the swatch only")
}

func TestUnitsAndTicksOfAxes(t *testing.T) {
	ms, s, m, h := unit{"ms", 1e3}, unit{"s", 1}, unit{"min", 1.0 / 60}, unit{"h", 1.0 / 3600}
	for seconds, want := range map[float64]string{
		0: "s 0 0.5 1", 0.002: "ms 0 1 2", 0.9: "ms 0 500", 1.5: "s 0 0.5 1 1.5", 58: "s 0 20 40", 170: "s 0 100", 200: "min 0 2", 12000: "h 0 2",
	} {
		a := newAxis(seconds, ms, s, m, h)
		assert.Equal(t, want, a.name+" "+strings.Trim(fmt.Sprint(a.ticks(3)), "[]"), seconds)
	}
}
