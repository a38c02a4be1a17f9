// SPDX-License-Identifier: Apache-2.0

//go:build linux && (amd64 || arm64)

package main

import (
	"math"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/energyreceiver/energyreceiver/receiver/test/table"
)

// cheap reports whether every test run measures a row. It leaves out trained models, short windows
// (there are many), long intervals of cards, and long scenarios.
func cheap(sc *simScenario, s *simSetting) bool {
	switch {
	case sc.name == largeScenario, slices.ContainsFunc(simEffects, func(e simScenario) bool { return e.name == sc.name }), s.warm > 0:
		return false
	case s.by != nil:
		return true
	case s.driver != "":
		return s.training == 0 && s.config().WindowLength() > 0
	}
	window := s.config().WindowLength()
	return s.training == 0 && (window == 0 || window >= time.Second)
}

// largeScenario takes too long for every test run.
const largeScenario = "2,000 small containers"

func TestResultsAreUpToDate(t *testing.T) {
	onlyOnAMD64(t)
	for _, m := range measurements(t) {
		requireRows(t, m.file, m.run(t, cheap).table(), m.settings[0].driver != "")
	}
	requireRows(t, "idle.csv", idleTable(t), false)
}

func TestMeansAreTakenOverAllScenarios(t *testing.T) {
	m := measurement{
		scenarios: []simScenario{{name: "a"}, {name: "b"}},
		settings:  []simSetting{{name: "x"}, {name: "in one scenario only", in: []string{"a"}}, {name: "exact"}},
		cells: [][]*accuracy{
			{{misattributed: 0.1, active: -0.2, partsOf: 1}, {}, {partsOf: 1}},
			{{misattributed: 0.3, active: 0, partsOf: 1.5}, nil, {partsOf: 1}},
		},
	}
	assert.Equal(t, [][]string{
		{"x", "20.0", "30.0", "b", "10.0", "-20.0", "a", "100.0", "150.0"}, {"exact", "0.0", "0.0", "", "0.0", "0.0", "", "100.0", "100.0"},
	}, means(&m).Rows)
}

// The committed means agree with the committed rows, which are rounded.
func TestMeansAreUpToDate(t *testing.T) {
	committed, err := table.Read(filepath.Join(results, "means.csv"))
	require.NoError(t, err)
	figures := map[string]map[string][]float64{} // by setting and column
	for _, file := range []string{"accuracy.csv", "rules.csv"} {
		all, err := table.Read(filepath.Join(results, file))
		require.NoError(t, err)
		for _, row := range all.Rows {
			if figures[row[1]] == nil {
				figures[row[1]] = map[string][]float64{}
			}
			for i, column := range all.Columns {
				if figure, err := strconv.ParseFloat(row[i], 64); err == nil {
					figures[row[1]][column] = append(figures[row[1]][column], math.Abs(figure))
				}
			}
		}
	}
	require.Len(t, committed.Rows, 8+15)
	for _, row := range committed.Rows {
		for column, cell := range map[string]int{"misattributed": 1, "active": 4} {
			all := figures[row[0]][column]
			require.Len(t, all, len(simAll()), "%s: %s", row[0], column)
			sum := 0.0
			for _, figure := range all {
				sum += figure
			}
			mean, err := strconv.ParseFloat(row[cell], 64)
			require.NoError(t, err)
			worst, err := strconv.ParseFloat(row[cell+1], 64)
			require.NoError(t, err)
			assert.InDelta(t, sum/float64(len(all)), mean, 0.11, "%s: %s", row[0], column)
			assert.InDelta(t, slices.Max(all), math.Abs(worst), 0.01, "%s: %s", row[0], column)
		}
	}
}

// requireRows fails with the first row that differs from the row in the file. Rows of cards may
// differ by the energy of a poll: goroutines poll the cards, and the order of two goroutines that
// wake at the same time is random.
func requireRows(t *testing.T, file string, measured *table.Table, polled bool) {
	committed, err := table.Read(filepath.Join(results, file))
	require.NoError(t, err)
	require.Equal(t, committed.Columns, measured.Columns, file)
	for _, row := range measured.Rows {
		keys := 2
		if file == "idle.csv" {
			keys = 3
		}
		i := committed.Find(row[:keys]...)
		require.GreaterOrEqual(t, i, 0, "%s lacks %q: run make accuracy", file, row[:keys])
		same := slices.EqualFunc(committed.Rows[i], row, func(a, b string) bool {
			x, errX := strconv.ParseFloat(a, 64)
			y, errY := strconv.ParseFloat(b, 64)
			return a == b || polled && errX == nil && errY == nil && math.Abs(x-y) <= 0.25
		})
		if !same {
			require.Equal(t, committed.Rows[i], row, "%s, and maybe more: run make accuracy", file)
		}
	}
}

func onlyOnAMD64(t *testing.T) {
	if runtime.GOARCH != "amd64" {
		t.Skip("the tables are written on amd64, and other architectures round floating point differently")
	}
}

func TestResultsHaveARowForEachScenarioUnderEachOfItsSettings(t *testing.T) {
	for _, m := range measurements(t) {
		assert.False(t, m.run(t, func(*simScenario, *simSetting) bool { return false }).isComplete())
		require.Empty(t, m.table().Rows, "rows that are not measured")
		for i := range m.cells {
			for k := range m.settings {
				if has(&m.scenarios[i], &m.settings[k]) {
					m.cells[i][k] = new(accuracy)
				}
			}
		}
		assert.True(t, m.isComplete())
		committed, err := table.Read(filepath.Join(results, m.file))
		require.NoError(t, err)
		var want, got [][]string
		for _, row := range m.table().Rows {
			want = append(want, row[:2])
		}
		for _, row := range committed.Rows {
			got = append(got, row[:2])
		}
		assert.Equal(t, want, got, m.file)
	}
	committed, err := table.Read(filepath.Join(results, "scenarios.csv"))
	require.NoError(t, err)
	assert.Equal(t, descriptions(), committed)
}
