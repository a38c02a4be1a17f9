// SPDX-License-Identifier: Apache-2.0

package measure

import (
	"bytes"
	"encoding/json"
	"io"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/energyreceiver/energyreceiver/cmd/energy/internal/figure"
	"github.com/energyreceiver/energyreceiver/cmd/energy/internal/golden"
	"github.com/energyreceiver/energyreceiver/internal/units"
)

// results are those of the golden files.
var results = map[string]*Result{
	"server": {
		Command: []string{"make", "-j8", "all"}, Started: time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC),
		Wall: 10 * time.Second, CPU: 61_250 * time.Millisecond, CPUTime: "cgroup v2",
		Zones: []Zone{
			{Name: "package", Source: "measured", Static: StaticBaseline, Used: 812_345_678, Active: 900_000_001, Idle: 400_000_000},
			{Name: "dram", Source: "measured", Static: StaticUnknown, Used: 40_500_000, Active: 81_000_000, Idle: 19_000_000},
			{Name: "core", Source: "measured", Besides: "package", Static: StaticBaseline, Used: 600_000_000, Active: 700_000_000},
			{Name: "platform", Source: "measured", Besides: "package", Static: StaticConfiguration, Used: 1_100_000_000, Active: 1_300_000_000,
				Idle: 900_000_000, Missing: 2500 * time.Millisecond},
		},
		Programs: []Program{
			{Name: "cc1", Used: []units.Energy{700_000_000, 30_000_000, 500_000_000, 900_000_000}},
			{Name: "ld", Used: []units.Energy{50_000_000, 5_000_000, 50_000_000, 100_000_000}},
			{Name: "as", Used: []units.Energy{40_000_000, 4_000_000, 40_000_000, 80_000_000}},
			{Name: "make (descendants)", Used: []units.Energy{12_345_678, 500_000, 4_000_000, 10_000_000}},
			{Name: "make", Used: []units.Energy{5_000_000, 500_000, 3_000_000, 5_000_000}},
			{Name: "sh\x1b[2J", Used: []units.Energy{3_000_000, 500_000, 2_000_000, 3_000_000}},
			{Name: "rm", Used: []units.Energy{2_000_000, 0, 1_000_000, 2_000_000}},
		},
		Phases: []Phase{
			{Name: "none", Wall: time.Second, CPU: 250 * time.Millisecond, Used: []units.Energy{12_345_678, 500_000, 10_000_000, 100_000_000},
				NodeUsed: []units.Energy{100_000_001, 10_000_000, 70_000_000, 200_000_000}},
			{Name: "compile", Wall: 9 * time.Second, CPU: 61 * time.Second, Used: []units.Energy{800_000_000, 40_000_000, 590_000_000, 1_000_000_000},
				NodeUsed: []units.Energy{1_200_000_000, 90_000_000, 630_000_000, 2_000_000_000}},
		},
		Samples: []Sample{
			{End: time.Second, Wall: time.Second, CPU: 250 * time.Millisecond, Phase: "none",
				Used: []units.Energy{12_345_678, 500_000, 10_000_000, 100_000_000}, NodeUsed: []units.Energy{100_000_001, 10_000_000, 70_000_000, 200_000_000}},
			{End: 10 * time.Second, Wall: 9 * time.Second, CPU: 61 * time.Second, Phase: "compile",
				Used: []units.Energy{800_000_000, 40_000_000, 590_000_000, 1_000_000_000}, NodeUsed: []units.Energy{1_200_000_000, 90_000_000, 630_000_000, 2_000_000_000}},
		},
		Left:  []Process{{PID: 4711, Name: "gopls", CPU: 20 * time.Millisecond}, {PID: 4712, Name: "bad\x1b[2J", CPU: 0}},
		Notes: []string{"The static power of dram is not known, so energy is split by utilization: the joules depend on what else runs. --baseline 10s measures it"},
	},
	"containers": {
		Command: []string{"./scenario.sh"}, Started: time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC), Wall: 10 * time.Second, CPU: time.Second, CPUTime: "cgroup v2",
		WholeNode: true, By: ByContainer, Rates: Rates{Grams: new(56.0), Grid: "France, mean of 2023", Price: new(0.3)},
		Zones: []Zone{{Name: "package", Source: "measured", Static: StaticBaseline, Used: 36_000_000, Active: 300_000_000, Idle: 60_000_000}},
		Phases: []Phase{
			{Name: "none", Wall: 4 * time.Second, Used: []units.Energy{6_000_000}, NodeUsed: []units.Energy{100_000_000}},
			{Name: "login", Wall: 6 * time.Second, Used: []units.Energy{30_000_000}, NodeUsed: []units.Energy{260_000_000}},
		},
		Workloads: []Workload{
			{"db", "none", []units.Energy{60_000_000}}, {"(idle)", "none", []units.Energy{40_000_000}},
			{"db", "login", []units.Energy{160_000_000}}, {"shop-7f/web\x1b[2J", "login", []units.Energy{80_000_000}},
			{"(idle)", "login", []units.Energy{20_000_000}},
		},
	},
	"modeled": {
		Command: []string{"true"}, Started: time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC), Wall: 1234 * time.Microsecond, CPU: 800 * time.Microsecond,
		CPUTime: "child times",
		Zones:   []Zone{{Name: "package", Source: "modeled", Static: StaticModel, Used: 12_345, Active: 20_000, Idle: 30_000}},
		Samples: []Sample{{End: 1234 * time.Microsecond, Wall: 1234 * time.Microsecond, CPU: 800 * time.Microsecond, Phase: "none",
			Used: []units.Energy{12_345}, NodeUsed: []units.Energy{50_000}}},
		Notes: []string{"package is modeled, not measured; the expected error of its power is 6 %"},
	},
	"unknown": {
		Command: []string{"sh", "-c", "exit 7; # " + strings.Repeat("a long command ", 10)}, Started: time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC),
		Wall: 90 * time.Second, CPU: 2 * time.Hour, CPUTime: "cgroup v1", Exit: 7,
		Samples: []Sample{{End: 90 * time.Second, Wall: 90 * time.Second, CPU: 2 * time.Hour, Phase: "none"}},
		Notes:   []string{"No joules are known: no meter can be read, and there is no model. --model auto estimates the energy of CPUs and memory"},
	},
}

func TestWhatIsWritten(t *testing.T) {
	for name, r := range results {
		for ext, write := range map[string]func(io.Writer) error{"txt": r.WriteTable, "json": r.WriteJSON, "csv": r.WriteCSV} {
			t.Run(name+"."+ext, func(t *testing.T) {
				var got bytes.Buffer
				require.NoError(t, write(&got))
				golden.Equal(t, name+"."+ext, got.String())
			})
		}
	}
}

func TestTheTableOfTheWholeNode(t *testing.T) {
	r := *results["server"]
	r.WholeNode = true
	var got bytes.Buffer
	require.NoError(t, r.WriteTable(&got))
	assert.Contains(t, got.String(), `
Energy    852.8 J = 237 mWh, 85.3 W on average
Node      1400.0 J = 389 mWh, 140.0 W on average
`)
	assert.Contains(t, got.String(), `
PHASE                               NODE      POWER  SHARE       TIME
(none)                           110.0 J    110.0 W   7.9%    1.000 s
compile                         1290.0 J    143.3 W  92.1%    9.000 s
`)
}

func TestTheTableFitsATerminal(t *testing.T) {
	for name, r := range results {
		var got bytes.Buffer
		require.NoError(t, r.WriteTable(&got))
		for line := range strings.Lines(got.String()) {
			assert.LessOrEqual(t, utf8.RuneCountInString(strings.TrimSuffix(line, "\n")), figure.Columns, "%s: %s", name, line)
		}
		assert.NotContains(t, got.String(), "\x1b", name)
	}
}

func TestJoulesOfTheDocumentAddUpToTheMicrojoule(t *testing.T) {
	r := results["server"]
	var encoded bytes.Buffer
	require.NoError(t, r.WriteJSON(&encoded))
	var d document
	require.NoError(t, json.Unmarshal(encoded.Bytes(), &d))
	exact := func(joules float64) int64 { return int64(joules*1e6 + 0.5) }
	var sum int64
	for i, z := range d.Zones {
		assert.Equal(t, exact(z.NodeActiveJoules), exact(z.Joules)+exact(z.UnattributedJoules))
		var samples int64
		for _, s := range d.Samples {
			samples += exact(s.Joules[i])
		}
		assert.Equal(t, exact(z.Joules), samples)
		var programs int64
		for _, p := range d.Programs {
			programs += exact(p.Joules[i])
		}
		assert.Equal(t, exact(z.Joules), programs)
		if z.Added {
			sum += exact(z.Joules)
		}
	}
	assert.Equal(t, exact(*d.Joules), sum)
}
