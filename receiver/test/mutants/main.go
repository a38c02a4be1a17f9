// SPDX-License-Identifier: Apache-2.0

// Command mutants reports faults in the code that no test notices, and tests that notice no fault.
//
// It draws mutants of packages: a negated condition, another operator or constant, a missing
// statement, an early return. All are compiled into one test binary and enabled one after the
// other. Source and seed determine the draw, so that runs before and after a change of the tests
// compare line by line:
//
//	go run ./receiver/test/mutants -n 20 ./internal/attribution ./internal/window
//
// With -tests it also runs the chosen faults of dev/mutants in these packages, and writes a table
// of the tests. A row has the lines of a test, the number of faults that it notices, and the number
// that it alone notices. The first rows are a small set of tests that notices all faults. The other
// tests are candidates for deletion:
//
//	go run ./receiver/test/mutants -tests -n 60 ./internal/ledger ./internal/attribution
//
// With -set it runs a file or a directory of chosen faults, and writes the number of tests that
// notice each fault:
//
//	go run ./receiver/test/mutants -set dev/mutants >dev/mutants/kills.csv
package main

import (
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// A runner runs tests on faults.
type runner struct{ out, progress io.Writer }

func main() {
	r := runner{out: os.Stdout, progress: os.Stderr}
	count := flag.Int("n", 20, "mutants of each package")
	seed := flag.Uint64("seed", 33, "seed of the draw")
	tests := flag.Bool("tests", false, "add the faults of dev/mutants and a table of the tests")
	chosen := flag.String("set", "", "file with a set of chosen faults, or a directory of such files")
	flag.Parse()
	err := error(nil)
	if *chosen != "" {
		err = r.runSets(*chosen)
	} else {
		err = r.runDraw(flag.Args(), *count, *seed, *tests)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		os.Exit(1)
	}
}

// runDraw prints how many tests of the packages notice each of count mutants per package. With
// tests, it adds the faults of dev/mutants in these packages, and the table of the tests.
func (r *runner) runDraw(patterns []string, count int, seed uint64, tests bool) error {
	packages, err := list(patterns)
	if err != nil {
		return err
	}
	random, dirs := &set{Packages: patterns}, []string{}
	for _, p := range packages {
		if p.DepOnly || p.ForTest != "" || strings.HasSuffix(p.ImportPath, ".test") {
			continue
		}
		faults, err := draw(p.Dir, count, seed)
		if err != nil {
			return err
		}
		dirs, random.Mutants = append(dirs, p.Dir), append(random.Mutants, faults...)
	}
	sets := []*set{random}
	if tests {
		chosen, err := chosenIn(dirs, patterns)
		if err != nil {
			return err
		}
		sets = append(sets, chosen...)
	}
	t := &table{lines: map[string]int{}}
	for _, s := range sets {
		if len(s.Mutants) == 0 {
			continue
		}
		if err := r.runSet(s); err != nil {
			return err
		}
		t.add(s)
	}
	t.writeFaults(r.out)
	if tests {
		return t.writeTests(r.out)
	}
	return nil
}

// chosenIn returns the sets of dev/mutants with only the faults of the packages in dirs. All tests
// of the patterns run on them.
func chosenIn(dirs, patterns []string) ([]*set, error) {
	sets, err := readSets("dev/mutants")
	for _, s := range sets {
		s.Packages = patterns
		s.Mutants = slices.DeleteFunc(s.Mutants, func(f fault) bool { return !slices.Contains(dirs, filepath.Dir(f.File)) })
		for i := range s.Mutants {
			s.Mutants[i].Test = ""
		}
	}
	return sets, err
}
