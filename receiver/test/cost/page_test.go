// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestAPageHasTheTableAndTheFiguresAtTheirMarks(t *testing.T) {
	path := filepath.Join(t.TempDir(), "page.md")
	const (
		table   = "# Page\n<!-- make cost SCENARIOS=a -->\nold\n<!-- end -->\n<!-- make cost SCENARIOS=a,b -->\n<!-- end -->\n"
		figures = "It uses <!-- a: bpf, 1 s: % of a CPU -->0.1<!-- --> %, <!-- b: bpf: MiB -->7<!-- --> MiB and <!-- a: bpf: ms -->9.9<!-- --> ms.\n"
	)
	require.NoError(t, os.WriteFile(path, []byte(table+figures), 0o600))
	medians := map[string]float64{markOf("a", "bpf, 1 s", "% of a CPU"): 0.256, markOf("a", "bpf", "ms"): 512.3}
	require.NoError(t, writePage(path, "a", "new\n", medians))
	got, err := os.ReadFile(path)
	require.NoError(t, err)
	assert.Equal(t, "# Page\n<!-- make cost SCENARIOS=a -->\nnew\n<!-- end -->\n<!-- make cost SCENARIOS=a,b -->\n<!-- end -->\n"+
		"It uses <!-- a: bpf, 1 s: % of a CPU -->0.26<!-- --> %, <!-- b: bpf: MiB -->7<!-- --> MiB and <!-- a: bpf: ms -->512<!-- --> ms.\n", string(got))
	require.ErrorContains(t, writePage(path, "c", "new\n", nil), "SCENARIOS=c")
}

func TestPagesHaveMarksOfFiguresThatScenariosMeasure(t *testing.T) {
	measured := map[string]bool{}
	for _, c := range scenarios {
		all, err := (&session{programs: allPrograms(t)}).variants(c)
		require.NoError(t, err)
		for _, v := range all {
			for _, g := range v.goals {
				measured[markOf(c.name, v.name, g.name())] = true
			}
		}
	}
	for _, path := range []string{"../../../README.md", "../../../docs/performance.md"} {
		page, err := os.ReadFile(path)
		require.NoError(t, err)
		for _, mark := range inline.FindAllStringSubmatch(string(page), -1) {
			assert.True(t, measured[mark[1]], "%s: %s", path, mark[1])
		}
	}
}
