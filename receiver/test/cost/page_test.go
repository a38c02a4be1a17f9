// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestAPageHasTheFiguresBetweenTheMarksOfItsScenarios(t *testing.T) {
	path := filepath.Join(t.TempDir(), "page.md")
	const page = "# Page\n<!-- make cost SCENARIOS=a -->\nold\n<!-- end -->\n<!-- make cost SCENARIOS=a,b -->\n<!-- end -->\nrest\n"
	require.NoError(t, os.WriteFile(path, []byte(page), 0o600))
	require.NoError(t, writePage(path, "a", "new\n"))
	require.NoError(t, writePage(path, "a,b", "both\n"))
	got, err := os.ReadFile(path)
	require.NoError(t, err)
	assert.Equal(t, "# Page\n<!-- make cost SCENARIOS=a -->\nnew\n<!-- end -->\n<!-- make cost SCENARIOS=a,b -->\nboth\n<!-- end -->\nrest\n", string(got))
	require.ErrorContains(t, writePage(path, "c", "new\n"), "SCENARIOS=c")
	require.Error(t, writePage(filepath.Join(t.TempDir(), "none.md"), "a", ""))
}
