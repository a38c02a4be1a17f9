// SPDX-License-Identifier: Apache-2.0

package table

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestUpdateReplacesRowsWithTheSameKey(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.csv")
	all := New("scenario", "rule", "error")
	all.Add("a", "x", "1")
	all.Add("a", "y", "2")
	require.NoError(t, all.Write(path))
	some := New("scenario", "rule", "error")
	some.Add("a", "y", "3,5")
	some.Add("b", "x", `"4"`)
	require.NoError(t, some.Update(path, 2))
	got, err := Read(path)
	require.NoError(t, err)
	assert.Equal(t, [][]string{{"a", "x", "1"}, {"a", "y", "3,5"}, {"b", "x", `"4"`}}, got.Rows)
	assert.Equal(t, "| scenario | rule | error |\n|---|---|---|\n| a | x | 1 |\n", (&Table{all.Columns, all.Rows[:1]}).Markdown())
}

func TestPutReplacesTheTextBetweenTheMarkersOfACommand(t *testing.T) {
	path := filepath.Join(t.TempDir(), "page.md")
	require.NoError(t, os.WriteFile(path, []byte("# A\n<!-- make a writes what follows -->\nold\n<!-- make a wrote what is above -->\n"), 0o600))
	require.NoError(t, Put(path, "make a", "| c |\n"))
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	assert.Equal(t, "# A\n<!-- make a writes what follows -->\n\n| c |\n\n<!-- make a wrote what is above -->\n", string(text))
	require.ErrorContains(t, Put(path, "make b", ""), "lacks")
}
