// SPDX-License-Identifier: Apache-2.0

package report

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"regexp"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/energyreceiver/energyreceiver/cmd/energy/internal/figure"
	"github.com/energyreceiver/energyreceiver/cmd/energy/internal/golden"
	"github.com/energyreceiver/energyreceiver/cmd/energy/internal/measure"
	"github.com/energyreceiver/energyreceiver/cmd/energy/internal/stats"
	"github.com/energyreceiver/energyreceiver/cmd/energy/internal/web"
	"github.com/energyreceiver/energyreceiver/internal/units"
)

// results are those of the golden files.
var results = map[string]*measure.Result{
	"server": {
		Command: []string{"make", "-j8", "all"}, Started: time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC),
		Wall: 10 * time.Second, CPU: 61_250 * time.Millisecond, CPUTime: "cgroup v2",
		Zones: []measure.Zone{
			{Name: "package", Source: "measured", Static: measure.StaticBaseline, Used: 812_345_678, Active: 900_000_001, Idle: 400_000_000},
			{Name: "dram", Source: "measured", Static: measure.StaticUnknown, Used: 40_500_000, Active: 81_000_000, Idle: 19_000_000},
			{Name: "core", Source: "measured", Besides: "package", Static: measure.StaticBaseline, Used: 600_000_000, Active: 700_000_000},
			{Name: "platform", Source: "measured", Besides: "package", Static: measure.StaticConfiguration, Used: 1_100_000_000, Active: 1_300_000_000,
				Idle: 900_000_000, Missing: 2500 * time.Millisecond},
		},
		Programs: []measure.Program{
			{Name: "cc1", Used: []units.Energy{700_000_000, 30_000_000, 500_000_000, 900_000_000}},
			{Name: "ld", Used: []units.Energy{50_000_000, 5_000_000, 50_000_000, 100_000_000}},
			{Name: "as", Used: []units.Energy{40_000_000, 4_000_000, 40_000_000, 80_000_000}},
			{Name: "make (descendants)", Used: []units.Energy{12_345_678, 500_000, 4_000_000, 10_000_000}},
			{Name: "make", Used: []units.Energy{5_000_000, 500_000, 3_000_000, 5_000_000}},
			{Name: "sh\x1b[2J", Used: []units.Energy{3_000_000, 500_000, 2_000_000, 3_000_000}},
			{Name: "rm", Used: []units.Energy{2_000_000, 0, 1_000_000, 2_000_000}},
		},
		Phases: []measure.Phase{
			{Name: "none", Wall: time.Second, CPU: 250 * time.Millisecond, Used: []units.Energy{12_345_678, 500_000, 10_000_000, 100_000_000},
				NodeUsed: []units.Energy{100_000_001, 10_000_000, 70_000_000, 200_000_000}},
			{Name: "compile", Wall: 9 * time.Second, CPU: 61 * time.Second, Used: []units.Energy{800_000_000, 40_000_000, 590_000_000, 1_000_000_000},
				NodeUsed: []units.Energy{1_200_000_000, 90_000_000, 630_000_000, 2_000_000_000}},
		},
		Samples: []measure.Sample{
			{End: time.Second, Wall: time.Second, CPU: 250 * time.Millisecond, Phase: "none",
				Used: []units.Energy{12_345_678, 500_000, 10_000_000, 100_000_000}, NodeUsed: []units.Energy{100_000_001, 10_000_000, 70_000_000, 200_000_000}},
			{End: 10 * time.Second, Wall: 9 * time.Second, CPU: 61 * time.Second, Phase: "compile",
				Used: []units.Energy{800_000_000, 40_000_000, 590_000_000, 1_000_000_000}, NodeUsed: []units.Energy{1_200_000_000, 90_000_000, 630_000_000, 2_000_000_000}},
		},
		Left:     []measure.Process{{PID: 4711, Name: "gopls", CPU: 20 * time.Millisecond}, {PID: 4712, Name: "bad\x1b[2J", CPU: 0}},
		Warnings: []string{"The static power of dram is not available, so energy is split by utilization: the joules depend on what else runs. --baseline 10s measures it"},
		Notes:    []string{"The static power of dram is not available, so energy is split by utilization: the joules depend on what else runs. --baseline 10s measures it"},
	},
	"containers": {
		Command: []string{"./scenario.sh"}, Started: time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC), Wall: 10 * time.Second, CPU: time.Second, CPUTime: "cgroup v2",
		Zones: []measure.Zone{{Name: "package", Source: "measured", Static: measure.StaticBaseline, Used: 36_000_000, Active: 300_000_000, Idle: 60_000_000}},
		Phases: []measure.Phase{
			{Name: "none", Wall: 4 * time.Second, Used: []units.Energy{6_000_000}, NodeUsed: []units.Energy{100_000_000}},
			{Name: "login", Wall: 6 * time.Second, Used: []units.Energy{30_000_000}, NodeUsed: []units.Energy{260_000_000}},
		},
		Workloads: []measure.Workload{
			{Name: "db", Phase: "none", Used: []units.Energy{60_000_000}}, {Name: "(idle)", Phase: "none", Used: []units.Energy{40_000_000}},
			{Name: "db", Phase: "login", Used: []units.Energy{160_000_000}}, {Name: "shop-7f/web\x1b[2J", Phase: "login", Used: []units.Energy{80_000_000}},
			{Name: "(idle)", Phase: "login", Used: []units.Energy{20_000_000}},
		},
	},
	"modeled": {
		Command: []string{"true"}, Started: time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC), Wall: 1234 * time.Microsecond, CPU: 800 * time.Microsecond,
		CPUTime: "child times",
		Zones:   []measure.Zone{{Name: "package", Source: "modeled", Static: measure.StaticModel, Uncertainty: 0.06, Used: 12_345, Active: 20_000, Idle: 30_000}},
		Samples: []measure.Sample{{End: 1234 * time.Microsecond, Wall: 1234 * time.Microsecond, CPU: 800 * time.Microsecond, Phase: "none",
			Used: []units.Energy{12_345}, NodeUsed: []units.Energy{50_000}}},
		Notes: []string{"package is modeled, not measured; the expected error of its power is 6 %"},
	},
	"unknown": {
		Command: []string{"sh", "-c", "exit 7; # " + strings.Repeat("a long command ", 10)}, Started: time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC),
		Wall: 90 * time.Second, CPU: 2 * time.Hour, CPUTime: "cgroup v1", Exit: 7,
		Samples:  []measure.Sample{{End: 90 * time.Second, Wall: 90 * time.Second, CPU: 2 * time.Hour, Phase: "none"}},
		Warnings: []string{"No energy is measured: no meter can be read, and there is no model. --model auto estimates the energy of CPUs and memory"},
		Notes:    []string{"No energy is measured: no meter can be read, and there is no model. --model auto estimates the energy of CPUs and memory"},
	},
}

// run returns a run with energy in two zones that are added, and one that contains them.
func run(packageJ, dramJ float64, wall time.Duration) *measure.Result {
	return &measure.Result{Command: []string{"x"}, Wall: wall, CPU: 2 * wall, Zones: []measure.Zone{
		{Name: "platform", Source: "measured", Besides: "package", Used: inEnergy(2 * packageJ)},
		{Name: "package", Source: "measured", Used: inEnergy(packageJ)},
		{Name: "dram", Source: "measured", Used: inEnergy(dramJ)},
	}}
}

// pairs are runs of two commands of which the second uses a third more. They have two phases.
func pairs() (a, b []*measure.Result) {
	for i := range 5 {
		jitter := 1 + 0.01*float64(i*i%5)
		a = append(a, run(12*jitter, 1.5, time.Duration(1100+3*i)*time.Millisecond))
		b = append(b, run(16*jitter+0.1*float64(i), 1.6, time.Duration(1500-20*i)*time.Millisecond))
	}
	for _, r := range a {
		for _, name := range []string{"install", "test"} {
			p := measure.Phase{Name: name, Wall: r.Wall / 2}
			for _, z := range r.Zones {
				p.Used = append(p.Used, z.Used/2)
			}
			r.Phases = append(r.Phases, p)
		}
	}
	return a, b
}

// model makes the energy of runs one of models.
func model(runs []*measure.Result, packages, dram float64) []*measure.Result {
	for _, r := range runs {
		for i := range r.Zones {
			r.Zones[i].Source, r.Zones[i].Uncertainty = "modeled", packages
		}
		r.Zones[2].Uncertainty = dram
	}
	return runs
}

func one(label string, run *measure.Result) []Command {
	return []Command{{Label: label, Runs: []*measure.Result{run}}}
}

// reports are those of the golden files.
func reports() map[string]*Report {
	a, b := pairs()
	c, d := pairs()
	functions := &measure.Result{Zones: []measure.Zone{{Name: "package", Source: "modeled", Uncertainty: 0.5, Used: 780_000_000, Active: 1_000_000_000}},
		Command: []string{"f"}, Wall: time.Second, Profile: &measure.Profile{Compared: true, Stacks: &measure.Stack{
			Name: "f", Used: 780_000_000, Base: 1_320_000_000, Children: []*measure.Stack{{Name: "main", Used: 0, Base: 1}},
		}}}
	for i := range 12 {
		functions.Profile.Functions = append(functions.Profile.Functions,
			measure.Function{Name: strings.Repeat("f", 5*i+1), Used: units.Energy(120-10*i) * 1e6, Base: units.Energy(20*i) * 1e6})
	}
	rates := Rates{Grams: new(56.0), Grid: "France, mean of 2023", Price: new(0.3), Currency: "EUR"}
	return map[string]*Report{
		"server":     New(Options{}, one("A", results["server"])),
		"modeled":    New(Options{}, one("A", results["modeled"])),
		"unknown":    New(Options{}, one("A", results["unknown"])),
		"containers": New(Options{Node: true, By: measure.ByContainer, Rates: rates}, one("A", results["containers"])),
		"functions":  New(Options{}, one("A", functions)),
		"alone":      New(Options{}, []Command{{"A", model(b, 0.5, 0.2)}}),
		"pairs":      New(Options{}, []Command{{"A", a}, {"B", b[:5]}}, "Interrupted: 5 of 10 pairs of runs are complete"),
		"models":     New(Options{}, []Command{{"A", model(c, 0.5, 0.2)}, {"B", model(d, 0.5, 0.2)}}),
		"base":       New(Options{}, []Command{{Now, c[:1]}, {Base, d[:1]}}),
	}
}

func TestReportsOfTheGoldenFiles(t *testing.T) {
	for name, r := range reports() {
		t.Run(name, func(t *testing.T) {
			var text, markdown, document, records bytes.Buffer
			for _, r.Verbose = range []bool{false, true} {
				require.NoError(t, r.WriteText(&text))
				text.WriteString("\n")
			}
			require.NoError(t, r.WriteMarkdown(&markdown))
			golden.Equal(t, name+".txt", text.String()+markdown.String())
			for line := range strings.Lines(text.String()) {
				assert.LessOrEqual(t, utf8.RuneCountInString(strings.TrimSuffix(line, "\n")), figure.Columns, line)
			}
			assert.NotContains(t, text.String()+markdown.String(), "\x1b")
			require.NoError(t, r.WriteJSON(&document))
			page, err := web.ReadReport([]byte(written(t, r.WriteHTML)))
			require.NoError(t, err)
			assert.JSONEq(t, document.String(), string(page))
			require.NoError(t, r.WriteCSV(&records))
			switch name {
			case "server", "unknown", "pairs", "containers":
				golden.Equal(t, name+".csv", records.String())
			}
			switch name {
			case "server", "modeled", "unknown", "containers", "base", "functions":
				golden.Equal(t, name+".json", document.String())
			}
		})
	}
}

func written(t *testing.T, write func(io.Writer) error) string {
	t.Helper()
	var b bytes.Buffer
	require.NoError(t, write(&b))
	return b.String()
}

func TestEnergiesOfARunAreByItsOwnZones(t *testing.T) {
	a, b := run(10, 1, time.Second), run(10, 1, time.Second)
	a.Zones = a.Zones[2:]
	b.Programs = []measure.Program{{Name: "x", Used: []units.Energy{20e6, 10e6, 1e6}}}
	var d struct {
		Commands []struct {
			Zones []struct{}
			Runs  []struct {
				Zones    []struct{ Joules float64 }
				Programs []struct{ Joules []float64 }
			}
		}
	}
	require.NoError(t, json.Unmarshal([]byte(written(t, New(Options{}, []Command{{"A", []*measure.Result{a, b}}}).WriteJSON)), &d))
	assert.Len(t, d.Commands[0].Zones, 3)
	assert.Len(t, d.Commands[0].Runs[0].Zones, 1)
	for i, z := range d.Commands[0].Runs[1].Zones {
		assert.InDelta(t, z.Joules, d.Commands[0].Runs[1].Programs[0].Joules[i], 0)
	}
	assert.InDelta(t, 11, b.Used().Joules(), 0, "package and dram, which platform contains")
	t.Attr("cpu-and-memory", fmt.Sprintf("%g J", b.Used().Joules()))
}

func TestTheErrorOfModelsIsInTheMarginAndNotInTheRatio(t *testing.T) {
	a, b := pairs()
	measured := New(Options{}, []Command{{"A", a}, {"B", b}})
	a, b = pairs()
	modeled := New(Options{}, []Command{{"A", model(a, 0.5, 0.2)}, {"B", model(b, 0.5, 0.2)}})
	interval := measured.whole(0).margin(Joules)
	mean := func(zone string) float64 {
		return modeled.row(Key{Zone: zone, Source: "modeled"}).value(Joules)
	}
	assert.InDelta(t, math.Hypot(math.Hypot(interval, 0.5*mean("package")), 0.2*mean("dram")), modeled.whole(0).margin(Joules), 1e-3)
	assert.InDelta(t, math.Hypot(0.5*mean("package"), 0.2*mean("dram"))/modeled.whole(0).value(Joules), modeled.whole(0).relative(), 1e-4)
	assert.InDelta(t, modeled.whole(0).relative(), modeled.whole(0).statistics(Uncertainty)[0], 0, "CSV and JSON have one error")
	assert.True(t, math.IsNaN(modeled.whole(0).statistics(Uncertainty)[1]), "the error of a model has no interval")
	assert.InDelta(t, measured.whole(0).margin(Seconds), modeled.whole(0).margin(Seconds), 0)
	assert.Equal(t, measured.whole(0).Ratios[Joules], modeled.whole(0).Ratios[Joules])
	assert.Contains(t, modeled.verdicts(), "Energy is modeled from CPU time and the load of the machine: compare CPU times. A meter may show a different ratio")
	assert.Len(t, measured.verdicts(), 2)
}

func TestTheErrorOfASumIsNotKnownIfThatOfAModelIsNot(t *testing.T) {
	r := run(10, 1, time.Second)
	joules, uncertainty := sum(r, []units.Energy{0, 10e6, 1e6})
	assert.InDelta(t, 11, joules, 0)
	assert.True(t, math.IsNaN(uncertainty), "no zone has an error")
	r.Zones[2].Uncertainty = 0.5
	_, uncertainty = sum(r, []units.Energy{0, 10e6, 1e6})
	assert.InDelta(t, 0.5/11, uncertainty, 1e-9, "measured zones add none")
	r.Zones[1].Source, r.Zones[1].Uncertainty = "modeled", math.NaN()
	_, uncertainty = sum(r, []units.Energy{0, 10e6, 1e6})
	assert.True(t, math.IsNaN(uncertainty))
}

func TestAnEarlierResultIsABase(t *testing.T) {
	a, b := pairs()
	earlier := New(Options{}, []Command{{"A", b}})
	base, err := ReadBase(strings.NewReader(written(t, earlier.WriteJSON)))
	require.NoError(t, err)
	r := New(Options{}, []Command{{Now, a}, *base})
	for q := range numQuantities {
		assert.Equal(t, decimals(earlier.whole(0).Values[q]), decimals(r.whole(1).Values[q]))
	}
	assert.InDelta(t, 0.758, r.whole(0).Ratios[Joules].Mean, 0.001)
	assert.Empty(t, r.Warnings)
	assert.Contains(t, New(Options{}, []Command{{Now, model(a, 0.5, 0.2)}, *base}).Warnings[0], "The base has other meters or models (platform measured, "+
		"package measured, dram measured) than this result (platform modeled ± 50 %, package modeled ± 50 %, dram modeled ± 20 %)")
	assert.Contains(t, r.verdicts()[0], "This command used 24.2 % less energy than the base: the ratio is 0.758 (95 % confidence: ")

	alone := New(Options{}, one("A", results["server"]))
	base, err = ReadBase(strings.NewReader(written(t, alone.WriteJSON)))
	require.NoError(t, err)
	r = New(Options{}, append(one(Now, results["server"]), *base))
	assert.Contains(t, r.verdicts(), "One run does not show whether that is significant: --runs does")
	assert.NotContains(t, r.Warnings, "The base ran another command: make -j8 all")
	r = New(Options{MaxRatio: 1.02}, []Command{{Now, a}, *base})
	assert.Contains(t, r.Warnings, "The base ran another command: make -j8 all")
	var compared struct {
		Base struct {
			Command []string
			Runs    []struct{ Joules float64 }
		}
		Verdict []string
	}
	require.NoError(t, json.Unmarshal([]byte(written(t, r.WriteJSON)), &compared))
	assert.Equal(t, []string{"make", "-j8", "all"}, compared.Base.Command)
	assert.InDelta(t, results["server"].Used().Joules(), compared.Base.Runs[0].Joules, 0)
	limit := "--max-ratio is not checked: the ratio of energy has no confidence interval"
	assert.Equal(t, append(r.verdicts(), limit), compared.Verdict, "JSON and the page have the sentences of the text")
	assert.Contains(t, r.verdicts(), "The base has one run, which does not show whether that is significant")
	r = New(Options{}, append(one(Now, results["server"]), *base))
	var d struct {
		Ratios struct{ Joules map[string]any }
	}
	require.NoError(t, json.Unmarshal([]byte(written(t, r.WriteJSON)), &d))
	assert.InDelta(t, 1, d.Ratios.Joules["a_to_b"], 1e-9)

	for _, wrong := range []string{"", "{}", "[]", `{"schema": 2}`, `{"schema": 1, "command": []}`,
		`{"schema": 1, "command": ["x"], "phases": [{"joules": [1]}]}`, `{"schema": 1, "commands": [{"runs": []}]}`,
		`{"schema": 1, "command": ["x"], "zones": [{"joules": -1}]}`, `{"schema": 1, "command": ["x"], "zones": [{"joules": 1e20}]}`,
		"<html>", `<script type="application/json" id="data">{"data"`, `{"schema": 1, "command": ["x"], "seconds": 1e10}`, `{"schema": 1, "command": ["x"], "phases": [{}]}`} {
		_, err := ReadBase(strings.NewReader(wrong))
		assert.Error(t, err, wrong)
	}
	var month strings.Builder
	require.NoError(t, web.WriteReport(&month, "report", map[string]any{"schema": 1, "by": "namespace"}))
	_, err = ReadBase(strings.NewReader(month.String()))
	assert.EqualError(t, err, "not a result of energy measure: it has no command")
}

func TestAPageOfACommandWithHostileNamesCanBeABase(t *testing.T) {
	r := run(10, 1, time.Second)
	plain := written(t, New(Options{}, one("A", r)).WriteHTML)
	r.Command = []string{`</script><script type="application/json" id="data">{"data":{}}`, "<!--", "\u202e\x00\xff"}
	report := New(Options{}, one("A", r))
	page := written(t, report.WriteHTML)
	assert.Contains(t, page, "ratios?.compared_by", "the script of the page reads the field of the document")
	assert.Equal(t, strings.Count(plain, "<script"), strings.Count(page, "<script"))
	want, err := ReadBase(strings.NewReader(written(t, report.WriteJSON)))
	require.NoError(t, err)
	got, err := ReadBase(strings.NewReader(page))
	require.NoError(t, err)
	assert.Equal(t, want, got)
	_, err = readResult(strings.NewReader(page), int64(len(page)-1))
	require.ErrorContains(t, err, "it has more than")
}

func decimals(values []float64) (of []string) {
	for _, v := range values {
		of = append(of, decimal(v))
	}
	return of
}

func TestTheCSVHasProgramsIfTheyAreAskedFor(t *testing.T) {
	text := written(t, New(Options{By: measure.ByProgram}, one("A", results["server"])).WriteCSV)
	assert.Contains(t, text, "\nA,1,,cc1,,,,,10,,730,")
	t.Attr("csv", regexp.MustCompile(`A,1,,cc1,+10,,730`).FindString(text))
}

func TestEmissionsAreEnergyTimesIntensity(t *testing.T) {
	intensity := 56.0
	assert.InDelta(t, 907.5e-6, perKWh(58.34, &intensity), 1e-7)
	t.Attr("emissions", fmt.Sprintf("%.1f µg", 1e6*perKWh(58.34, &intensity)))
}

func TestARunAfterWarmUpRunsIsOneRun(t *testing.T) {
	r := New(Options{Warmup: 2, Verbose: true, Rates: Rates{Price: new(0.3)}}, one("A", results["server"]))
	text := written(t, r.WriteText)
	assert.Contains(t, text, "\nWarm-up   2 before")
	assert.Contains(t, text, "\nPROGRAM ", "the tables are those of one run")
	assert.Contains(t, text, " · cost 0.000071\n", "a price without a currency has a name")
	assert.Contains(t, written(t, r.WriteJSON), `"warmup_runs": 2`)
}

func TestTheOnlyProgramIsNamedUnlessItIsTheCommand(t *testing.T) {
	for program, want := range map[string]string{"gzip": "gzip 100 %", "a-program-with-": "", "a-program-with- (descendants)": ""} {
		r := *results["modeled"]
		r.Command, r.Programs = []string{"/bin/a-program-with-a-long-name"}, []measure.Program{{Name: program, Used: []units.Energy{12_345}}}
		assert.Equal(t, want, New(Options{}, one("A", &r)).largest())
	}
}

func TestMoneyHasNoExponent(t *testing.T) {
	for want, v := range map[string]float64{"0.00": 0, "0.0000035": 3.47e-6, "< 0.000001": 9e-7, "0.30": 0.3, "0.035": 0.0347, "1234.50": 1234.5, "0.10": 0.1} {
		assert.Equal(t, want, money(v), v)
	}
}

func TestACommandIsNoMarkup(t *testing.T) {
	assert.Equal(t, "`a \\| b`", Code("a | b"))
	assert.Equal(t, "`` a ` b ``", Code("a ` b"))
	r := *results["modeled"]
	r.Warnings = []string{"@team <img src=x> [a](b) | *c*"}
	assert.Contains(t, written(t, New(Options{}, one("A", &r)).WriteMarkdown), "\n@<!-- -->team &lt;img src=x> \\[a](b) \\| \\*c\\*.\n")
}

func TestNotesOfRuns(t *testing.T) {
	runs := []*measure.Result{run(90, 0, time.Second)}
	for i := range 5 {
		runs = append(runs, run(10+0.1*float64(i), 0, time.Second))
	}
	runs[1].Notes, runs[2].Notes = []string{"The last 1.5 s are missing"}, []string{"The last 0.123 s are missing", "modeled"}
	runs[3].Exit = 1
	runs[4].Zones = runs[4].Zones[:2]
	runs[2].Left = []measure.Process{{Name: "gpg-agent"}, {Name: "dbus"}}
	runs[5].Left = []measure.Process{{Name: "dbus"}}
	assert.Equal(t, []string{
		"1 of 6 runs failed: their exit status is not 0",
		"2 of 6 runs left processes behind, which are no longer measured: dbus, gpg-agent",
		"Zone dram is missing in 1 of 6 runs, which count with 0 J of it",
		"Outliers in energy: run 1, more than 10 standard deviations from the median, these estimated from the median absolute deviation. " +
			"The first run may have filled caches: --warmup 1 leaves it out",
		"The last 1.5 s are missing", "modeled",
	}, New(Options{}, []Command{{"A", runs}}).Notes)
	assert.NotContains(t, strings.Join(New(Options{Warmup: 1}, []Command{{"A", runs}}).Notes, " "), "--warmup", "it was given")
}

func TestTypicalIsTheRunOfMedianEnergy(t *testing.T) {
	c := Command{"A", []*measure.Result{run(9, 0, 1), run(1, 0, 2), run(5, 0, 3), run(7, 0, 4)}}
	assert.Equal(t, 2, c.typical())
}

func TestCommandsWithoutEnergyAreNotCompared(t *testing.T) {
	var none, some []*measure.Result
	for i := range 4 {
		none = append(none, run(0, 0, time.Second))
		some = append(some, run(1+0.01*float64(i), 0, time.Second))
	}
	r := New(Options{}, []Command{{"A", none}, {"B", some}})
	assert.Equal(t, 4, r.whole(0).Ratios[Joules].Left)
	assert.InDelta(t, 1, r.whole(0).Ratios[Seconds].Mean, 1e-12)
	assert.Equal(t, []string{"4 of 4 pairs are not compared: an energy below 1 mJ is too little to be divided by"}, r.Notes)
	assert.Equal(t, "A and B are not compared: their energy is too small", r.verdicts()[0])
	none[1] = run(2, 0, time.Second)
	assert.InDelta(t, 2/1.01, New(Options{}, []Command{{"A", none}, {"B", some}}).whole(0).Ratios[Joules].Mean, 1e-9)
	r = New(Options{}, []Command{{"A", []*measure.Result{{Command: []string{"x"}, Wall: 1}}}, {"B", some[:1]}})
	assert.Equal(t, "No energy is available", r.verdicts()[0])
	_, missing := r.Used()
	assert.True(t, missing)
}

func TestVerdicts(t *testing.T) {
	for want, ratio := range map[string]stats.Ratio{
		"A used 23.1 % less energy than B: A/B is 0.769 (95 % confidence: 0.752 to 0.787)":                  {Pairs: 10, Mean: 0.769, Low: 0.752, High: 0.787},
		"A used 12.0 % more energy than B: A/B is 1.120 (95 % confidence: 1.010 to 1.242)":                  {Pairs: 5, Mean: 1.12, Low: 1.01, High: 1.242},
		"A used 12.3 times the energy of B (95 % confidence: 11.0 to 140)":                                  {Pairs: 5, Mean: 12.3, Low: 11, High: 140},
		"B used 4.855 times the energy of A (95 % confidence: 2.014 to 11.7)":                               {Pairs: 5, Mean: 1 / 4.855, Low: 0.0854, High: 0.4965},
		"No significant difference in energy: A/B is 1.010, and may be 1 (95 % confidence: 0.980 to 1.041)": {Pairs: 5, Mean: 1.01, Low: 0.98, High: 1.041},
		"A used as much energy as B":                          {Pairs: 1, Mean: 1.0004},
		"A used 10.0 % less energy than B":                    {Pairs: 1, Mean: 0.9},
		"A and B are not compared: their energy is too small": {Left: 3},
		"A and B are not compared: there is no pair of runs":  {},
	} {
		r := &Report{Commands: []Command{{Label: "A"}, {Label: "B"}}}
		assert.Equal(t, want, r.verdict(ratio, "used", "energy"))
	}
}
