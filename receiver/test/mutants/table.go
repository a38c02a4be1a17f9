// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"maps"
	"path/filepath"
	"slices"
	"text/tabwriter"
)

// A table relates faults and the tests that notice them.
type table struct {
	faults  []string
	noticed [][]string     // of each fault, the tests that notice it, as in fault.Test
	lines   map[string]int // of each test
}

func (t *table) add(s *set) {
	for _, b := range s.binaries {
		lines := testLines(b.dir)
		for _, name := range b.names {
			t.lines[b.test(name)] = lines[name]
		}
	}
	for i, f := range s.Mutants {
		t.faults, t.noticed = append(t.faults, f.Name), append(t.noticed, s.kills[i])
		for _, test := range s.kills[i] {
			if _, ok := t.lines[test]; !ok { // testMain
				t.lines[test] = 0
			}
		}
	}
}

// testLines returns the number of lines of each test function of the package in dir.
func testLines(dir string) map[string]int {
	lines := map[string]int{}
	files, _ := filepath.Glob(filepath.Join(dir, "*_test.go"))
	for _, file := range files {
		fset := token.NewFileSet()
		parsed, err := parser.ParseFile(fset, file, nil, parser.SkipObjectResolution|parser.ParseComments)
		if err != nil {
			continue
		}
		for _, decl := range parsed.Decls {
			if f, ok := decl.(*ast.FuncDecl); ok && f.Recv == nil {
				begin := f.Pos()
				if f.Doc != nil {
					begin = f.Doc.Pos()
				}
				lines[f.Name.Name] = fset.Position(f.End()).Line - fset.Position(begin).Line + 1
			}
		}
	}
	return lines
}

func (t *table) writeFaults(out io.Writer) {
	killed := 0
	for i, name := range slices.Backward(t.faults) {
		fate := "survived"
		if n := len(t.noticed[i]); n > 0 {
			fate = fmt.Sprintf("killed by %d", n)
			killed++
		}
		fmt.Fprintf(out, "%-13s %s\n", fate, name)
	}
	fmt.Fprintf(out, "%d of %d faults killed\n", killed, len(t.faults))
}

// writeTests writes the table of tests. It begins with a small set of tests that notices all
// faults, with numbers.
func (t *table) writeTests(out io.Writer) error {
	needed := t.cover()
	others := without(slices.Sorted(maps.Keys(t.lines)), needed)
	rows := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(rows, "\nneeded\tlines\tfaults\talone\ttest")
	for _, test := range slices.Concat(needed, others) {
		alone := slices.DeleteFunc(slices.Clone(t.noticed), func(tests []string) bool { return len(tests) != 1 })
		fmt.Fprintf(rows, "%d\t%d\t%d\t%d\t%s\n", slices.Index(needed, test)+1, t.lines[test], count(t.noticed, test), count(alone, test), test)
	}
	if err := rows.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintf(out, "%d tests with %d lines notice all that is noticed; not needed are %d tests with %d lines\n",
		len(needed), t.linesOf(needed), len(others), t.linesOf(others))
	return err
}

// count returns how many of the faults a test notices.
func count(noticed [][]string, test string) (n int) {
	for _, tests := range noticed {
		if slices.Contains(tests, test) {
			n++
		}
	}
	return n
}

// cover returns a small set of tests that notices the same faults as all tests. It repeatedly adds
// the test with the most additional faults per line.
func (t *table) cover() (needed []string) {
	all := slices.Sorted(maps.Keys(t.lines))
	further := slices.DeleteFunc(slices.Clone(t.noticed), func(tests []string) bool { return len(tests) == 0 })
	for len(further) > 0 {
		best, most := "", 0.
		for _, test := range all {
			if perLine := float64(count(further, test)) / float64(max(t.lines[test], 1)); perLine > most {
				best, most = test, perLine
			}
		}
		needed = append(needed, best)
		further = slices.DeleteFunc(further, func(tests []string) bool { return slices.Contains(tests, best) })
	}
	return needed
}

func (t *table) linesOf(tests []string) (sum int) {
	for _, test := range tests {
		sum += t.lines[test]
	}
	return sum
}
