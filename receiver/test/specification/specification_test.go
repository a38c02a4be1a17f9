// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
)

func readChecked(t *testing.T) []row {
	t.Helper()
	t.Chdir("../../..")
	rows, err := readRows(sourcePath)
	require.NoError(t, err)
	require.NotEmpty(t, rows)
	return rows
}

func TestEachRowHasAnIDAndATest(t *testing.T) {
	ids := map[string]bool{}
	for _, r := range readChecked(t) {
		assert.False(t, ids[r.ID], "%s occurs twice", r.ID)
		ids[r.ID] = true
		files, err := filepath.Glob(filepath.Join(r.Package, "*_test.go"))
		require.NoError(t, err)
		found := false
		for _, file := range files {
			text, err := os.ReadFile(file)
			require.NoError(t, err)
			found = found || strings.Contains(string(text), "func "+r.Test+"(t ")
		}
		assert.True(t, found, "%s: no file of %s has %s", r.ID, r.Package, r.Test)
	}
}

func TestEachRowHasAFaultOfItsTest(t *testing.T) {
	var tests, rows []string
	for _, r := range readChecked(t) {
		if r.Package == integration { // the built collector does not contain the fault
			continue
		}
		rows = append(rows, r.ID+": "+r.Package+" "+r.Test)
	}
	text, err := os.ReadFile("dev/mutants/specification.yaml")
	require.NoError(t, err)
	var set struct{ Mutants []struct{ Name, Test string } }
	require.NoError(t, yaml.Unmarshal(text, &set))
	for _, m := range set.Mutants {
		tests = append(tests, m.Name+": "+m.Test)
	}
	assert.ElementsMatch(t, rows, tests)
}

func TestAPatternThatMatchesNoRowIsAnError(t *testing.T) {
	readChecked(t)
	require.EqualError(t, check("^nosuchrow$"), `no row has an ID that matches "^nosuchrow$"`)
}

func TestAFigureThatIsMissingOrDiffersIsAnError(t *testing.T) {
	t.Chdir(t.TempDir())
	t.Setenv("GOWORK", "off")
	require.NoError(t, os.WriteFile("go.mod", []byte("module small\n\ngo 1.25\n"), 0o600))
	require.NoError(t, os.WriteFile("small_test.go", []byte(`package small

import "testing"

func TestFigures(t *testing.T) {
	t.Attr("sum", "10 W, 30 W")
	t.Run("of a part", func(t *testing.T) { t.Attr("part", "2 W") })
}
`), 0o600))
	rows := []row{
		{ID: "sum", Package: ".", Test: "TestFigures", Expected: "10 W, 30 W"},
		{ID: "part", Package: ".", Test: "TestFigures", Expected: "3 W"},
		{ID: "rest", Package: ".", Test: "TestFigures", Expected: "1 W"},
	}
	got, err := run(rows)
	require.EqualError(t, err, `part: TestFigures reports "2 W", expected "3 W"`+"\nrest: TestFigures reports no figure")
	assert.Equal(t, "10 W, 30 W", got[rows[0].figure()])
}
