// SPDX-License-Identifier: Apache-2.0

package plot

import (
	"bytes"
	"encoding/csv"
	"encoding/xml"
	"fmt"
	"html"
	"math"
	"os"
	"regexp"
	"strconv"
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
	file, err := os.Open("../../../../receiver/test/replay/testdata/kmdb-nx12-cputime.csv")
	require.NoError(t, err)
	defer func() { require.NoError(t, file.Close()) }()
	lines := csv.NewReader(file)
	lines.Comment, lines.FieldsPerRecord = '#', -1
	rows, err := lines.ReadAll()
	require.NoError(t, err)
	rows = rows[858:935] // time, seconds, load, watts of the package, of the memory
	number := func(row, column int) float64 {
		v, err := strconv.ParseFloat(rows[row][column], 64)
		require.NoError(t, err)
		return v
	}
	r := &measure.Result{Zones: []measure.Zone{{Name: "package", Source: "measured"}, {Name: "dram", Source: "measured"}}}
	name := phase.None
	for i := range rows {
		if number(i, 2) < 0.05 {
			name = phase.None
		} else if name == phase.None {
			name = fmt.Sprintf("%.0f %% load", 100*number(i+2, 2))
		}
		s := measure.Sample{Wall: time.Duration(number(i, 1) * float64(time.Second)), Phase: name}
		r.Wall += s.Wall
		s.End = r.Wall
		for z, rest := range []float64{31.8, 38} {
			watts := number(i, 3+z)
			s.Used = append(s.Used, units.Energy(max(0, watts-rest)*s.Wall.Seconds()*1e6))
			s.NodeUsed = append(s.NodeUsed, units.Energy(watts*s.Wall.Seconds()*1e6))
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

func TestWhatACommandIsCalledDoesNotBreakTheImage(t *testing.T) {
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

func TestLongNamesAreCutAndThoseOfNarrowPhasesRunDownward(t *testing.T) {
	r := build(100)
	for i := range r.Samples {
		r.Samples[i].Phase = "wide enough for its name"
		if i >= 50 {
			r.Samples[i].Phase = strings.Repeat([]string{"even ", "odd "}[i%2], 20)
		}
	}
	image := svg(t, Panel{Title: strings.Repeat("word ", 1000), Result: r})
	written := texts(t, image)
	assert.Regexp(t, "^word word .*…$", written[0])
	assert.Less(t, len(written[0]), 150)
	assert.Contains(t, written, "wide enough for its name")
	turned := regexp.MustCompile(`rotate\(90 [^)]*\)">([^<]*)…<`).FindAllStringSubmatch(image, -1)
	require.NotEmpty(t, turned)
	assert.Regexp(t, "^(even |odd )+", turned[0][1])
	assert.Less(t, len(turned), 30, "there is no name over another")
}

func TestATextIsCutToItsWidthAndLeftOutIfNextToNoneFits(t *testing.T) {
	assert.Equal(t, "install", fit("install", 10, 100))
	assert.Equal(t, "ins…", fit("install", 10, 24))
	assert.Empty(t, fit("install", 10, 17))
	assert.Equal(t, "in", fit("in", 10, 12))
	assert.Empty(t, fit("install", 10, 0))
}

func TestRunsOfFewSamples(t *testing.T) {
	empty := &measure.Result{}
	assert.Contains(t, texts(t, svg(t, Panel{Title: "true", Result: empty})), "nothing was measured")
	assert.Contains(t, texts(t, svg(t, Panel{Title: "true", Result: &measure.Result{Samples: []measure.Sample{{}}}})), "time (s)")
	assert.NotContains(t, svg(t, Panel{Title: "sleep 1", Result: build(1)}), "NaN")

	idle := build(5)
	for i := range idle.Samples {
		clear(idle.Samples[i].Used)
		clear(idle.Samples[i].NodeUsed)
	}
	image := svg(t, Panel{Title: "idle", Result: idle}, Panel{Title: "none", Result: empty})
	assert.NotContains(t, image, "NaN")
	assert.NotContains(t, image, "Inf")
	assert.Contains(t, texts(t, image), "1.0", "the power axis has a scale")
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
	for i := range r.Samples {
		r.Samples[i].Wall = time.Duration(1+i%7*1000) * time.Microsecond
		r.Samples[i].End = r.Samples[i].Wall
		if i > 0 {
			r.Samples[i].End += r.Samples[i-1].End
		}
		if i%15 != 3 { // psys is reported seldom
			r.Samples[i].Used[0], r.Samples[i].NodeUsed[0] = 0, 0
		}
	}
	edges := edgesOf(r.Samples)
	for zone := range r.Zones {
		var gotUsed, gotNode, wantUsed, wantNode float64
		used, node := powers(r.Samples, edges, zone)
		for i := range used {
			seconds := (edges[i+1] - edges[i]).Seconds()
			assert.GreaterOrEqual(t, seconds, shortestStep.Seconds())
			gotUsed, gotNode = gotUsed+used[i]*seconds, gotNode+node[i]*seconds
		}
		for _, sample := range r.Samples {
			wantUsed, wantNode = wantUsed+sample.Used[zone].Joules(), wantNode+sample.NodeUsed[zone].Joules()
		}
		assert.InEpsilon(t, wantUsed+1, gotUsed+1, 1e-9)
		assert.InEpsilon(t, wantNode+1, gotNode+1, 1e-9)
	}
}

func TestTheEnergyOfASlowMeterBelongsToAllTimeSinceItsLast(t *testing.T) {
	j := func(joules ...units.Energy) (samples []measure.Sample) {
		for i, e := range joules {
			samples = append(samples, measure.Sample{
				Wall: time.Second, End: time.Duration(i+1) * time.Second, Used: []units.Energy{e * units.Joule}, NodeUsed: []units.Energy{2 * e * units.Joule},
			})
		}
		return samples
	}
	onlyNode := j(0, 5) // of a node that is used while the command is not
	onlyNode[0].NodeUsed[0] = 10 * units.Joule
	for _, c := range []struct {
		samples    []measure.Sample
		used, node []float64
	}{
		{j(0, 0, 9, 0, 0, 3), []float64{3, 3, 3, 1, 1, 1}, []float64{6, 6, 6, 2, 2, 2}}, // every third second
		{j(0, 8, 0, 0), []float64{2, 2, 2, 2}, []float64{4, 4, 4, 4}},                   // no report at the end
		{j(4, 2, 0), []float64{4, 1, 1}, []float64{8, 2, 2}},
		{j(0, 0), []float64{0, 0}, []float64{0, 0}},
		{onlyNode, []float64{0, 5}, []float64{10, 10}},
	} {
		used, node := powers(c.samples, edgesOf(c.samples), 0)
		assert.Equal(t, c.used, used)
		assert.Equal(t, c.node, node)
	}
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
	assert.NotContains(t, image, nodeLine, "a line that is not visible")

	for i := range r.Samples {
		clear(r.Samples[i].Used)
	}
	_, power = commonScale([]*panel{newPanel(Panel{Result: r})})
	assert.Greater(t, power.most, 500.0)
	assert.Equal(t, 2, strings.Count(svg(t, Panel{Result: r}), nodeLine), "the line and its swatch")
}

func TestUnitsAndTicksOfAxes(t *testing.T) {
	ms, s, m, h := unit{"ms", 1e3}, unit{"s", 1}, unit{"min", 1.0 / 60}, unit{"h", 1.0 / 3600}
	for seconds, want := range map[float64]string{
		0: "s 0.0 0.5 1.0", 0.002: "ms 0 1 2", 0.9: "ms 0 500", 1.5: "s 0.0 0.5 1.0 1.5", 58: "s 0 20 40", 170: "s 0 100", 200: "min 0 2", 12000: "h 0 2",
	} {
		a := newAxis(seconds, ms, s, m, h)
		got := a.name
		for _, tick := range a.ticks(3) {
			got += " " + tick.label
		}
		assert.Equal(t, want, got, seconds)
	}
}
