// SPDX-License-Identifier: Apache-2.0

package main

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestCommentsAndProseOfGoFilesKeepTheirLines(t *testing.T) {
	lines, err := extractGo([]byte(`// SPDX-License-Identifier: Apache-2.0

// Package p is short.
//
//	code(1)
package p

//go:noinline
var a = f("no file was found", "two words", "rate(x{a='b'}[5m]) is a query") // of b
/* one
   two */
`))
	require.NoError(t, err)
	assert.Equal(t, []string{
		"", "", "Package p is short.", "", "", "", "", "", "of b. no file was found.", "one", "two.", "",
	}, lines)
}

func TestCommentsOfCFilesKeepTheirLines(t *testing.T) {
	lines, err := extractC([]byte("// SPDX-License-Identifier: GPL-2.0\nint a; // the first\n\n// one sentence\n// on two lines\n/*\n * A block\n */\n"))
	require.NoError(t, err)
	assert.Equal(t, []string{"", "the first.", "", "one sentence", "on two lines.", "", "A block", "", ""}, lines)
}

func TestDescriptionsOfMetadataKeepTheirLines(t *testing.T) {
	lines, err := extractYAML([]byte("type: energy\ndescription: >-\n  Measures the\n  energy.\nmetrics:\n  a:\n    description: Energy of a\n    unit: J\n"))
	require.NoError(t, err)
	assert.Equal(t, []string{"", "", "Measures the", "energy.", "", "", "Energy of a.", "", ""}, lines)
}

func TestFindingsAreCountedByDirectory(t *testing.T) {
	found := parseFindings("/tmp/x/a/b.go.txt:3:1:Code.Patterns:Say\n/tmp/x/a/c.go.txt:1:1:Rule:Text\n/tmp/x/d.go.txt:9:9:R:T\n", "/tmp/x")
	assert.Equal(t, finding{"a/b.go", "a/b.go:3:1:Code.Patterns:Say"}, found[0])
	assert.Equal(t, map[string]int{"a": 2, ".": 1}, countByDirectory(found))
}

func TestALimitIsExceededButNeverRaised(t *testing.T) {
	old := map[string]int{"a": 2, "b": 5}
	counts := map[string]int{"a": 3, "b": 1, "new": 1}
	assert.EqualError(t, compare(old, counts), "a has 3 findings, and its limit is 2: go run ./receiver/test/language a\n"+
		"new has 1 findings, and its limit is 0: go run ./receiver/test/language new")
	assert.NoError(t, compare(old, map[string]int{"b": 5}))
	assert.Equal(t, map[string]int{"a": 2, "b": 1}, lowered(old, counts))
	assert.Equal(t, counts, lowered(nil, counts), "the first limits")
}

func TestLimitsAreReadAsWritten(t *testing.T) {
	path := filepath.Join(t.TempDir(), "limits")
	limits := map[string]int{"a/b": 12, ".": 1}
	require.NoError(t, writeLimits(path, limits))
	read, err := readLimits(path)
	require.NoError(t, err)
	assert.Equal(t, limits, read)
}
