// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestAPageHasTheMediansAtTheirMarks(t *testing.T) {
	path := filepath.Join(t.TempDir(), "page.md")
	const page = "It uses <!-- a: bpf, 1 s: % of a CPU -->0.1<!-- --> %, <!-- b: bpf: MiB -->7<!-- --> MiB and <!-- a: bpf: ms -->9.9<!-- --> ms.\n"
	require.NoError(t, os.WriteFile(path, []byte(page), 0o600))
	m := newMeasured("2 x CPU")
	require.ErrorContains(t, m.write(path), "no mark")
	m.medians[markOf("a", "bpf, 1 s", "% of a CPU")], m.medians[markOf("a", "bpf", "ms")] = 0.256, 512.3
	require.NoError(t, m.write(path))
	got, err := os.ReadFile(path)
	require.NoError(t, err)
	assert.Equal(t, "It uses <!-- a: bpf, 1 s: % of a CPU -->0.26<!-- --> %, <!-- b: bpf: MiB -->7<!-- --> MiB and <!-- a: bpf: ms -->512<!-- --> ms.\n", string(got))
}

func TestACSVFileHasARowForEachFigure(t *testing.T) {
	path := filepath.Join(t.TempDir(), "cost.csv")
	const head = "scenario,program,figure,at most,median,least,most,times others,machine\n"
	const other = "a,floor,% of a CPU,,1.000,1.000,1.000,,2 x CPU\n"
	require.NoError(t, os.WriteFile(path, []byte(head+"a,bpf,% of a CPU,2,9,9,9,,1 x CPU\n"+other), 0o600))
	m := newMeasured("2 x CPU")
	bpf := []turn{{share: 0.01}, {share: 0.03}, {share: 0.015}}
	writeScenario(io.Discard, "a", []result{{variant{name: "bpf", goals: []goal{{figure: cpuAll, most: 2}}}, bpf}}, false, m)
	require.NoError(t, m.write(path))
	got, err := os.ReadFile(path)
	require.NoError(t, err)
	assert.Equal(t, head+"a,bpf,% of a CPU,2,1.500,1.000,3.000,,2 x CPU\n"+other, string(got))
}

func TestPagesHaveMarksOfMeasuredFigures(t *testing.T) {
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
