// SPDX-License-Identifier: Apache-2.0

package main

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const source = `package small

func larger(a, b int) int {
	if a > b {
		return a
	}
	return b
}

func count() (n int) {
	n = 3
	return n
}
`

// The test notices every change of count, and none of larger.
const test = `package small

import "testing"

func TestCount(t *testing.T) {
	if count() != 3 {
		t.Fatal(count())
	}
}
`

func TestMutants(t *testing.T) {
	dir := small(t)
	var out strings.Builder
	require.NoError(t, run(&out, dir, 100, 1, time.Minute))
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	assert.ElementsMatch(t, []string{
		"survived small/small.go:3:28 return",
		"survived small/small.go:4:5 condition",
		"survived small/small.go:4:7 operator",
		"killed   small/small.go:10:23 return",
		"killed   small/small.go:11:2 statement",
		"killed   small/small.go:11:6 constant",
		"small: 3 of 6 killed",
	}, lines)

	first, err := drawn(dir, 1)
	require.NoError(t, err)
	again, err := drawn(dir, 1)
	require.NoError(t, err)
	assert.Equal(t, first, again, "the same draw")
	other, err := drawn(dir, 2)
	require.NoError(t, err)
	assert.NotEqual(t, first, other, "a draw of another seed")
}

// small writes a module and returns its directory.
func small(t *testing.T) string {
	t.Helper()
	t.Setenv("GOWORK", "off")
	dir := filepath.Join(t.TempDir(), "small")
	require.NoError(t, os.Mkdir(dir, 0o700))
	for name, text := range map[string]string{"go.mod": "module small\n\ngo 1.24\n", "small.go": source, "small_test.go": test} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	return dir
}

func runChosen(t *testing.T, chosen string) (string, error) {
	t.Helper()
	t.Chdir(small(t))
	return runChosenHere(t, chosen)
}

func runChosenHere(t *testing.T, chosen string) (string, error) {
	t.Helper()
	require.NoError(t, os.WriteFile("set.yaml", []byte("packages: [.]\nmutants:\n"+chosen), 0o600))
	var out strings.Builder
	err := runSet(&out, io.Discard, "set.yaml", time.Minute, 2)
	return out.String(), err
}

func TestChosenFaultsAreOnOneAtATime(t *testing.T) {
	out, err := runChosen(t, `
- {name: larger is smaller, fact: larger returns the larger number, file: small.go, old: "if a > b {", new: "if a > b != MUTANT {"}
- {name: four, fact: count returns 3, file: small.go, old: "n = 3", new: "n = 3; if MUTANT { n++ }"}
- {name: panics, fact: count returns, file: small.go, old: "	return n\n", new: "	if MUTANT { panic(1) }; return n\n"}
`)
	require.NoError(t, err)
	assert.Contains(t, out, "The tests notice 2 of 3 faults.")
	assert.Contains(t, out, "$ go run ./receiver/test/mutants -set set.yaml >set.md\n")
	assert.True(t, strings.HasSuffix(out, "\n|---|---|---|\n"+
		"| larger is smaller | larger returns the larger number | **none** |\n"+
		"| four | count returns 3 | `.` 1 |\n"+
		"| panics | count returns | `.` 1 |\n"), out)
}

func TestOnlyTheTestThatAFaultNamesRuns(t *testing.T) {
	out, err := runChosen(t, `
- {name: four, fact: count returns 3, file: small.go, old: "n = 3", new: "n = 3; if MUTANT { n++ }", test: . TestCount}
- {name: five, fact: count returns 3, file: small.go, old: "return n", new: "if MUTANT { n = 5 }; return n", test: . TestOther}
- {name: six, fact: count returns 3, file: small.go, old: "func count() (n int) {", new: "func count() (n int) { if MUTANT { return 6 };", test: other TestCount}
`)
	require.NoError(t, err)
	assert.True(t, strings.HasSuffix(out, "| four | count returns 3 | `.` 1 |\n| five | count returns 3 | **none** |\n| six | count returns 3 | **none** |\n"), out)
}

func TestATestThatFailsWithoutAFaultDoesNotCount(t *testing.T) {
	t.Chdir(small(t))
	require.NoError(t, os.WriteFile("first_test.go", []byte(`package small

import (
	"os"
	"testing"
)

func TestThatFailsAtFirst(t *testing.T) {
	if os.Mkdir("ran", 0o700) == nil || count() != 3 {
		t.Fatal(count())
	}
}
`), 0o600))
	out, err := runChosenHere(t, `
- {name: four, fact: count returns 3, file: small.go, old: "n = 3", new: "n = 3; if MUTANT { n++ }"}
`)
	require.NoError(t, err)
	assert.Contains(t, out, "| four | count returns 3 | `.` 1 |\n")
}

func TestATestThatDoesNotEndNoticesAFault(t *testing.T) {
	dir := small(t)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "hang_test.go"), []byte(`package small

import "testing"

func TestThatHangs(*testing.T) { select {} }
`), 0o600))
	t.Chdir(dir)
	binary := testBinary{dir: dir, binary: filepath.Join(dir, "small.test"), timeout: time.Second}
	require.NoError(t, goTool(dir, "test", "-c", "-o", binary.binary))
	assert.Equal(t, []string{"TestThatHangs"}, binary.failures("", ""))
}

func TestAFaultThatDoesNotFitTheCodeIsAnError(t *testing.T) {
	_, err := runChosen(t, `
- {name: gone, fact: a, file: small.go, old: "if c > d {", new: "MUTANT"}
- {name: several, fact: a, file: small.go, old: "return", new: "MUTANT"}
- {name: off, fact: a, file: small.go, old: "n = 3", new: "n = 4"}
`)
	assert.EqualError(t, err, "mutant gone: small.go has the old text 0 times, and must have it once\n"+
		"mutant several: small.go has the old text 3 times, and must have it once\nmutant off: the new text has no MUTANT")
}

func TestTheFaultsOfAllSetsFitTheCode(t *testing.T) {
	t.Chdir("../../..")
	sets, err := filepath.Glob("dev/mutants/*.yaml")
	require.NoError(t, err)
	require.NotEmpty(t, sets)
	for _, path := range sets {
		s, err := readSet(path)
		require.NoError(t, err)
		_, err = s.overlay(t.TempDir())
		assert.NoError(t, err, path)
	}
}
