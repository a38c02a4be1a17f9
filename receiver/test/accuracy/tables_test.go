// SPDX-License-Identifier: Apache-2.0

//go:build linux && (amd64 || arm64)

package main

import (
	"math"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Short windows are left out, because there are so many, the settings that train for a day, the effects of real
// machines, hardware events, the largest scenario, and the long intervals of GPUs.
func TestAccuracyTablesAreUpToDate(t *testing.T) {
	p := readGenerated(t, accuracyPage, 0)
	p.onlyOnAMD64(t)
	const summary = "All scenarios"
	lines := strings.SplitAfter(withoutSections(p.text, summary, largeScenario, effectsTitle, eventsTitle), "\n")
	without := func(row string) {
		lines = slices.DeleteFunc(lines, func(line string) bool { return strings.Contains(line, "| "+row+" |") })
	}
	for _, setting := range simRows() {
		if !setting.cheap() {
			without(setting.name)
		}
	}
	var cards []gpuSetting
	for _, setting := range gpuSettings {
		if setting.checked() {
			cards = append(cards, setting)
		} else {
			without(setting.name)
		}
	}
	tables := simMeasure(t, cheapScenarios(), func(s *simSetting) bool { return s.cheap() }).tables()
	requireSameLines(t, lines, withoutSections(tables, summary)+simIdleTables(t)+gpuTables(t, cards))
}

// largeScenario takes too long for every test run.
const largeScenario = "2,000 small containers"

// cheapScenarios returns the scenarios that every test run measures.
func cheapScenarios() []simScenario {
	return slices.DeleteFunc(simAll(), func(sc simScenario) bool { return sc.name == largeScenario })
}

// withoutSections returns the tables without sections of these titles.
func withoutSections(tables string, titles ...string) string {
	sections := strings.SplitAfter(tables, "\n### ")
	for i, section := range sections {
		title, _, _ := strings.Cut(section, "\n")
		if !slices.Contains(titles, title) {
			continue
		}
		sections[i] = ""
	}
	return strings.Join(sections, "")
}

var percentage = regexp.MustCompile(`([+-]?\d+\.\d) %`)

// isSameRow reports whether two lines are the same. Which of two goroutines that wake at the same
// moment runs first is not determined, so the rows of GPUs, which goroutines poll, may differ by
// the energy of a poll.
func isSameRow(page, measured string) bool {
	if page == measured || !strings.Contains(page, ", fdinfo") && !strings.Contains(page, ", library") {
		return page == measured
	}
	of, is := percentage.FindAllStringSubmatch(page, -1), percentage.FindAllStringSubmatch(measured, -1)
	return slices.EqualFunc(of, is, func(a, b []string) bool {
		x, errX := strconv.ParseFloat(a[1], 64)
		y, errY := strconv.ParseFloat(b[1], 64)
		return errX == nil && errY == nil && math.Abs(x-y) <= 0.25
	})
}

// requireSameLines fails with the first lines that differ.
func requireSameLines(t *testing.T, page []string, measured string) {
	text := strings.SplitAfter(measured, "\n")
	for i := range max(len(page), len(text)) {
		if i >= len(page) || i >= len(text) || !isSameRow(page[i], text[i]) {
			part := func(lines []string) string { return strings.Join(lines[min(i, len(lines)):min(i+3, len(lines))], "") }
			require.Equal(t, part(page), part(text), "line %d of the tables, and maybe more: run make accuracy to update the page", i+1)
		}
	}
}

func (p *generated) onlyOnAMD64(t *testing.T) {
	if runtime.GOARCH != "amd64" {
		t.Skip("the tables are written on amd64, and other architectures round floating point otherwise")
	}
}
