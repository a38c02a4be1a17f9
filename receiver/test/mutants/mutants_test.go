// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
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

// The test notices every change of count, but no change of larger.
const test = `package small

import "testing"

func TestCount(t *testing.T) {
	if count() != 3 {
		t.Fatal(count())
	}
}

// A crash does not keep the other test from running.
func TestCountAgain(t *testing.T) {
	if count() != 3 {
		panic(count())
	}
}
`

func quick(out io.Writer) *runner { return &runner{out: out, progress: io.Discard} }

func TestMutants(t *testing.T) {
	dir := small(t)
	t.Chdir(dir)
	var out strings.Builder
	require.NoError(t, quick(&out).runDraw([]string{"."}, 100, 1, true))
	lines := strings.Split(out.String(), "\n")
	assert.Equal(t, []string{
		"survived      small/small.go:3:28 return",
		"survived      small/small.go:4:5 condition",
		"survived      small/small.go:4:7 operator",
		"killed by 2   small/small.go:10:23 return",
		"killed by 2   small/small.go:11:2 statement",
		"killed by 2   small/small.go:11:6 constant",
		"3 of 6 faults killed",
		"",
		"needed  lines  faults  alone  test",
		"1       5      3       0      . TestCount",
		"0       6      3       0      . TestCountAgain",
		"1 tests with 5 lines notice all that is noticed; not needed are 1 tests with 6 lines",
		"",
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
	err := quick(&out).runSets("set.yaml")
	return out.String(), err
}

func TestChosenFaultsAreOnOneAtATime(t *testing.T) {
	out, err := runChosen(t, `
- {name: larger is smaller, fact: larger returns the larger number, file: small.go, old: "if a > b {", new: "if a > b != MUTANT {"}
- {name: four, fact: count returns 3, file: small.go, old: "n = 3", new: "n = 3; if MUTANT { n++ }"}
- {name: panics, fact: count returns, file: small.go, old: "	return n\n", new: "	if MUTANT { panic(1) }; return n\n"}
`)
	require.NoError(t, err)
	assert.Equal(t, "set,fault,package,tests\nset,larger is smaller,,0\nset,four,.,2\nset,panics,.,2\n", out)
}

func TestOnlyTheTestThatAFaultNamesRuns(t *testing.T) {
	out, err := runChosen(t, `
- {name: four, fact: count returns 3, file: small.go, old: "n = 3", new: "n = 3; if MUTANT { n++ }", test: . TestCount}
- {name: five, fact: count returns 3, file: small.go, old: "return n", new: "if MUTANT { n = 5 }; return n", test: . TestOther}
- {name: six, fact: count returns 3, file: small.go, old: "func count() (n int) {", new: "func count() (n int) { if MUTANT { return 6 };", test: other TestCount}
`)
	require.NoError(t, err)
	assert.Equal(t, "set,fault,package,tests\nset,four,.,1\nset,five,,0\nset,six,,0\n", out)
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
	assert.Equal(t, "set,fault,package,tests\nset,four,.,2\n", out)

	require.NoError(t, os.Remove("ran"))
	_, err = runChosenHere(t, `
- {name: four, fact: count returns 3, file: small.go, old: "n = 3", new: "n = 3; if MUTANT { n++ }", test: . TestThatFailsAtFirst}
`)
	require.EqualError(t, err, "mutant four: . TestThatFailsAtFirst fails without a fault")
}

func TestATestThatDoesNotEndNoticesAFault(t *testing.T) {
	dir := small(t)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "hang_test.go"), []byte(`package small

import "testing"

func TestThatHangs(*testing.T) { select {} }
`), 0o600))
	t.Chdir(dir)
	binary := testBinary{dir: dir, binary: filepath.Join(dir, "small.test"), timeout: time.Second}
	_, err := goTool(dir, "test", "-c", "-o", binary.binary)
	require.NoError(t, err)
	failed, notRun := binary.failures("", []string{"TestCount", "TestThatHangs"})
	assert.Equal(t, []string{"TestThatHangs"}, failed)
	assert.Empty(t, notRun)
}

func TestAProcessThatFailsAfterItsTestsNoticesAFault(t *testing.T) {
	const faults = `
- {name: four, fact: count returns 3, file: small.go, old: "n = 3", new: "n = 3; if MUTANT { n++ }"}
- {name: smaller, fact: larger returns the larger number, file: small.go, old: "if a > b {", new: "if a > b != MUTANT {"}
`
	for condition, noticed := range map[string]string{
		"larger(1, 2) != 2":          "set,four,.,2\nset,smaller,.,1\n",
		"os.Args[1] != `-test.list`": "set,four,.,2\nset,smaller,,0\n", // also without a fault
	} {
		t.Run(condition, func(t *testing.T) {
			t.Chdir(small(t))
			require.NoError(t, os.WriteFile("main_test.go", []byte(`package small

import (
	"os"
	"testing"
)

func TestMain(m *testing.M) {
	status := m.Run()
	if `+condition+` {
		status = 1
	}
	os.Exit(status)
}
`), 0o600))
			out, err := runChosenHere(t, faults)
			require.NoError(t, err)
			assert.Equal(t, "set,fault,package,tests\n"+noticed, out)
		})
	}
}

func TestTestsThatCrashesKeepFromRunningAreReported(t *testing.T) {
	t.Chdir(small(t))
	var text strings.Builder
	text.WriteString("package small\n\nimport \"testing\"\n")
	for i := range mostRuns + 2 {
		fmt.Fprintf(&text, "\nfunc TestCrash%02d(*testing.T) { if count() != 3 { panic(1) } }\n", i)
	}
	require.NoError(t, os.WriteFile("small_test.go", []byte(text.String()), 0o600))
	require.NoError(t, os.WriteFile("set.yaml", []byte(`packages: [.]
mutants:
- {name: four, fact: count returns 3, file: small.go, old: "n = 3", new: "n = 3; if MUTANT { n++ }"}
`), 0o600))
	var progress strings.Builder
	o := quick(io.Discard)
	o.progress = &progress
	require.NoError(t, o.runSets("set.yaml"))
	assert.Contains(t, progress.String(), "four: ., 10 crashes keep from running: TestCrash10 TestCrash11\n")
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
	sets, err := readSets("dev/mutants")
	require.NoError(t, err)
	require.NotEmpty(t, sets)
	for _, s := range sets {
		_, err = s.overlay(t.TempDir())
		assert.NoError(t, err, s.name)
	}
}
