// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"
)

// A table relates faults and the tests that notice them.
type table struct {
	faults []string
	tests  map[string]*judged // by directory and name
	by     [][]*judged        // of each fault, the tests that notice it
}

// A judged test is a test with the faults that it notices.
type judged struct {
	name     string // directory and name
	lines    int
	noticed  map[int]bool
	alone    int
	position int // in the set of tests that notices all faults; 0 if the set does not need the test
}

func newTable() *table { return &table{tests: map[string]*judged{}} }

func (t *table) add(s *set) {
	for _, p := range s.tests {
		lines := testLines(p.dir)
		for _, name := range p.tests {
			if full := p.dir + " " + name; t.tests[full] == nil {
				t.tests[full] = &judged{name: full, lines: lines[name], noticed: map[int]bool{}}
			}
		}
	}
	for i, f := range s.Mutants {
		number, by := len(t.faults), []*judged{}
		t.faults = append(t.faults, f.Name)
		for _, k := range s.kills[i] {
			for _, name := range k.tests {
				full := k.dir + " " + name
				if t.tests[full] == nil { // testMain
					t.tests[full] = &judged{name: full, noticed: map[int]bool{}}
				}
				by = append(by, t.tests[full])
			}
		}
		for _, test := range by {
			test.noticed[number] = true
		}
		if len(by) == 1 {
			by[0].alone++
		}
		t.by = append(t.by, by)
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
		if n := len(t.by[i]); n > 0 {
			fate = fmt.Sprintf("killed by %d", n)
			killed++
		}
		fmt.Fprintf(out, "%-13s %s\n", fate, name)
	}
	fmt.Fprintf(out, "%d of %d faults killed\n", killed, len(t.faults))
}

// writeTests writes the table of tests. A small set of tests that notices all faults comes first.
func (t *table) writeTests(out io.Writer) error {
	needed := t.cover()
	for i, test := range needed {
		test.position = i + 1
	}
	others := []*judged{}
	for _, test := range t.tests {
		if test.position == 0 {
			others = append(others, test)
		}
	}
	slices.SortFunc(others, func(a, b *judged) int { return strings.Compare(a.name, b.name) })
	rows := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(rows, "\nneeded\tlines\tfaults\talone\ttest")
	for _, test := range slices.Concat(needed, others) {
		fmt.Fprintf(rows, "%d\t%d\t%d\t%d\t%s\n", test.position, test.lines, len(test.noticed), test.alone, test.name)
	}
	if err := rows.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintf(out, "%d tests with %d lines notice all that is noticed; not needed are %d tests with %d lines\n",
		len(needed), linesOf(needed), len(others), linesOf(others))
	return err
}

// cover returns a small set of tests that together notice every fault that is noticed. It takes the test
// with the most further faults per line until no further fault is left.
func (t *table) cover() (needed []*judged) {
	all := []*judged{}
	for _, test := range t.tests {
		all = append(all, test)
	}
	slices.SortFunc(all, func(a, b *judged) int { return strings.Compare(a.name, b.name) })
	noticed := map[int]bool{}
	for {
		var best *judged
		most := 0.
		for _, test := range all {
			further := 0
			for fault := range test.noticed {
				if !noticed[fault] {
					further++
				}
			}
			if perLine := float64(further) / float64(max(test.lines, 1)); perLine > most {
				best, most = test, perLine
			}
		}
		if best == nil {
			return needed
		}
		needed = append(needed, best)
		for fault := range best.noticed {
			noticed[fault] = true
		}
	}
}

func linesOf(tests []*judged) (sum int) {
	for _, test := range tests {
		sum += test.lines
	}
	return sum
}
