// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"go/build"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"go.yaml.in/yaml/v3"
)

// A set is a file of dev/mutants: faults that somebody chose. The tests of some package should notice each fault.
type set struct {
	// Packages lists the packages whose tests run, as patterns of the go command.
	Packages []string
	Mutants  []fault
}

// A fault is a change of a source file that is compiled in but off, unless the variable MUTANT has its name.
type fault struct {
	Name string
	// Fact is the behavior that the fault breaks. It stays when the code moves; File, Old and New follow the code.
	Fact string
	File string // relative to the root of the checkout
	Old  string // occurs once in the file
	New  string // MUTANT in it is true if the fault is on
	// Test is the directory of a package and the name of one of its tests. Only this test runs. If
	// Test is empty, all tests run.
	Test string
}

// variable is the environment variable that selects a fault, and the identifier in New that is true then.
const variable = "MUTANT"

// runSet runs the tests of a set's packages on each of its faults, and writes a page with a table.
// A row has a fault and the number of tests that fail in each package. The tests are compiled once,
// with all faults. Only packages that import the faulty one run their tests, at most workers of
// them at the same time. The names of the tests go to progress.
//
// Some tests depend on the speed of the machine. So a test does not count if it fails without a fault. If it fails with
// a fault, it is repeated. It counts if it fails again with the fault, and passes again without the fault.
func runSet(out, progress io.Writer, path string, timeout time.Duration, workers int) error {
	s, err := readSet(path)
	if err != nil {
		return err
	}
	work, err := os.MkdirTemp("", "mutants")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(work) }()
	overlay, err := s.overlay(work)
	if err != nil {
		return err
	}
	tests, err := compile(s.Packages, overlay, work)
	if err != nil {
		return err
	}
	for _, t := range tests {
		t.pattern = s.pattern()
		if err := t.calibrate(progress, timeout); err != nil {
			return err
		}
	}
	kills := s.run(tests, progress, workers)
	return s.writePage(out, path, kills)
}

func readSet(path string) (*set, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	s := new(set)
	decoder := yaml.NewDecoder(bytes.NewReader(data))
	decoder.KnownFields(true)
	if err := decoder.Decode(s); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return s, nil
}

// pattern returns a regular expression of the tests that the faults name. It is empty if a fault names
// no test.
func (s *set) pattern() string {
	var names []string
	for _, f := range s.Mutants {
		_, name, ok := strings.Cut(f.Test, " ")
		if !ok {
			return ""
		}
		names = append(names, name)
	}
	return onlyThese(names)
}

// A kill is the tests of one package that notice a fault.
type kill struct {
	dir   string // of the package, relative to the root of the checkout
	tests []string
}

// run returns the kills of each fault.
func (s *set) run(tests []*testBinary, progress io.Writer, workers int) [][]kill {
	kills := make([][]kill, len(s.Mutants))
	var mu sync.Mutex // guards kills and progress
	var group sync.WaitGroup
	free := make(chan struct{}, workers)
	for i, f := range s.Mutants {
		for _, t := range tests {
			dir, only, isOne := strings.Cut(f.Test, " ")
			if !t.dirs[filepath.Dir(f.File)] || isOne && t.dir != dir {
				continue
			}
			pattern := t.pattern
			if isOne {
				pattern = onlyThese([]string{only})
			}
			free <- struct{}{}
			group.Go(func() {
				failed := t.kills(f.Name, pattern)
				<-free
				mu.Lock()
				defer mu.Unlock()
				if len(failed) > 0 {
					kills[i] = append(kills[i], kill{t.dir, failed})
					fmt.Fprintf(progress, "%s: %s: %s\n", f.Name, t.dir, strings.Join(failed, " "))
				}
			})
		}
	}
	group.Wait()
	return kills
}

// writePage writes the table as Markdown.
func (s *set) writePage(out io.Writer, path string, kills [][]kill) error {
	var rows strings.Builder
	killed := 0
	for i, f := range s.Mutants {
		by := []string{}
		slices.SortFunc(kills[i], func(a, b kill) int { return strings.Compare(a.dir, b.dir) })
		for _, k := range kills[i] {
			by = append(by, fmt.Sprintf("`%s` %d", k.dir, len(k.tests)))
		}
		if len(by) > 0 {
			killed++
		} else {
			by = append(by, "**none**")
		}
		fmt.Fprintf(&rows, "| %s | %s | %s |\n", f.Name, f.Fact, strings.Join(by, ", "))
	}
	page := strings.TrimSuffix(path, filepath.Ext(path)) + ".md"
	_, err := fmt.Fprintf(out, `# Faults of %s

The tests notice %d of %d faults. The table is written by

`+"```console\n$ go run ./receiver/test/mutants -set %s >%s\n```"+`

| fault | the fact that it breaks | tests that notice it, by package |
|---|---|---|
%s`, filepath.Base(path), killed, len(s.Mutants), path, page, &rows)
	return err
}

// overlay writes the files with all faults, and in each of their packages a file that defines the variable. It
// returns the path of the overlay, a file for the flag -overlay of the go command.
func (s *set) overlay(work string) (string, error) {
	texts := map[string]string{} // by absolute path
	var errs []error
	for i, f := range s.Mutants {
		path, err := filepath.Abs(f.File)
		if err == nil {
			err = f.apply(path, texts)
		}
		if err == nil {
			err = declare(filepath.Dir(path), texts)
		}
		if err == nil && slices.ContainsFunc(s.Mutants[:i], func(other fault) bool { return other.Name == f.Name }) {
			err = errors.New("the name occurs twice")
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("mutant %s: %w", f.Name, err))
		}
	}
	replaced := map[string]string{}
	for i, path := range slices.Sorted(maps.Keys(texts)) {
		changed := filepath.Join(work, fmt.Sprintf("%d.go", i))
		errs = append(errs, os.WriteFile(changed, []byte(texts[path]), 0o600))
		replaced[path] = changed
	}
	list, err := json.Marshal(map[string]any{"Replace": replaced})
	overlay := filepath.Join(work, "overlay.json")
	return overlay, errors.Join(append(errs, err, os.WriteFile(overlay, list, 0o600))...)
}

// apply adds the fault to the text of its file.
func (f fault) apply(path string, texts map[string]string) error {
	text, ok := texts[path]
	if !ok {
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		text = string(data)
	}
	old := strings.TrimSuffix(f.Old, "\n")
	if n := strings.Count(text, old); n != 1 {
		return fmt.Errorf("%s has the old text %d times, and must have it once", f.File, n)
	}
	if !strings.Contains(f.New, variable) {
		return fmt.Errorf("the new text has no %s", variable)
	}
	isOn := fmt.Sprintf("(selectedMutant == %q)", f.Name)
	texts[path] = strings.Replace(text, old, strings.ReplaceAll(strings.TrimSuffix(f.New, "\n"), variable, isOn), 1)
	return nil
}

// declare adds the file with the variable to the package in dir.
func declare(dir string, texts map[string]string) error {
	pkg, err := build.ImportDir(dir, 0)
	if err != nil {
		return err
	}
	texts[filepath.Join(dir, "selected_mutant.go")] = fmt.Sprintf("package %s\n\nimport \"os\"\n\nvar selectedMutant = os.Getenv(%q)\n", pkg.Name, variable)
	return nil
}

// testBinary is the compiled tests of a package.
type testBinary struct {
	path, binary string
	dir          string          // relative to the root of the checkout
	dirs         map[string]bool // of all packages that are in the binary
	pattern      string          // regular expression of the tests to run; empty for all tests
	doubtful     []string        // tests that failed without a fault
	timeout      time.Duration
}

// A listed is a package as the go command lists it. The tests of a package are another one, with the suffix .test.
type listed struct {
	ImportPath, Dir string
	Deps            []string
}

// compile compiles the tests of packages, except packages without any.
func compile(patterns []string, overlay, work string) (all []*testBinary, err error) {
	packages, err := list(patterns)
	if err != nil {
		return nil, err
	}
	root, err := os.Getwd()
	if err != nil {
		return nil, err
	}
	dirs := map[string]string{} // by import path, relative to the root
	for _, p := range packages {
		if dirs[p.ImportPath], err = filepath.Rel(root, p.Dir); err != nil {
			return nil, err
		}
	}
	for i, p := range packages {
		path, isTest := strings.CutSuffix(p.ImportPath, ".test")
		if !isTest {
			continue
		}
		t := &testBinary{path: path, dir: dirs[p.ImportPath], dirs: map[string]bool{}, binary: filepath.Join(work, fmt.Sprintf("%d.test", i))}
		for _, dep := range p.Deps {
			dep, _, _ = strings.Cut(dep, " ") // "p [p.test]" is p, compiled for its tests
			if dir, ok := dirs[dep]; ok {
				t.dirs[dir] = true
			}
		}
		cmd := exec.Command("go", "test", "-c", "-vet=off", "-overlay", overlay, "-o", t.binary, t.path)
		if out, err := cmd.CombinedOutput(); err != nil {
			return nil, fmt.Errorf("%s: %w\n%s", t.path, err, out)
		}
		all = append(all, t)
	}
	return all, nil
}

// list returns the packages of patterns, their tests, and all that these import.
func list(patterns []string) (all []listed, err error) {
	cmd := exec.Command("go", append([]string{"list", "-test", "-deps", "-json=ImportPath,Dir,Deps"}, patterns...)...)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, err
	}
	for decoder := json.NewDecoder(bytes.NewReader(out)); ; {
		var p listed
		switch err := decoder.Decode(&p); {
		case errors.Is(err, io.EOF):
			return all, nil
		case err != nil:
			return nil, err
		}
		all = append(all, p)
	}
}

// calibrate runs the tests without a fault. With a fault they may take five times this time and a minute.
func (t *testBinary) calibrate(progress io.Writer, timeout time.Duration) error {
	t.timeout = timeout
	began := time.Now()
	t.doubtful = t.failures("", t.pattern)
	took := time.Since(began)
	t.timeout = min(timeout, 5*took+time.Minute)
	fmt.Fprintf(progress, "%s takes %v\n", t.dir, took.Round(time.Second/10))
	if len(t.doubtful) == 0 {
		return nil
	}
	fmt.Fprintf(progress, "%s: without a fault fail, so that they do not count: %s\n", t.dir, strings.Join(t.doubtful, " "))
	if failed := t.failures("", onlyThese(t.doubtful)); len(failed) > 0 {
		return fmt.Errorf("%s fails without a fault: %s", t.path, strings.Join(failed, ", "))
	}
	return nil
}

// kills returns the tests that match a pattern and notice a fault.
func (t *testBinary) kills(mutant, pattern string) []string {
	failed := slices.DeleteFunc(t.failures(mutant, pattern), func(name string) bool { return slices.Contains(t.doubtful, name) })
	for _, repeat := range []struct {
		mutant string
		fails  bool
	}{{mutant, true}, {"", false}} {
		if len(failed) == 0 {
			return nil
		}
		again := t.failures(repeat.mutant, onlyThese(failed))
		failed = slices.DeleteFunc(failed, func(name string) bool { return slices.Contains(again, name) != repeat.fails })
	}
	return failed
}

func onlyThese(tests []string) string { return "^(" + strings.Join(tests, "|") + ")$" }

// failedTest is a line of a test that failed, or that ran when the time was over.
var failedTest = regexp.MustCompile(`(?m)^(?:--- FAIL: |\t+)((?:Test|Fuzz|Example)\w*) \(`)

// failures runs the tests that match a pattern with a fault, and returns the tests that fail. If the process ends with
// an error and names no test, the result is a pattern of all tests.
func (t *testBinary) failures(mutant, pattern string) (failed []string) {
	cmd := exec.Command(t.binary, "-test.short", "-test.timeout", t.timeout.String(), "-test.run="+pattern)
	cmd.Dir = t.dir
	cmd.Env = append(os.Environ(), variable+"="+mutant)
	out, err := cmd.CombinedOutput()
	if err == nil {
		return nil
	}
	for _, match := range failedTest.FindAllSubmatch(out, -1) {
		if name := string(match[1]); !slices.Contains(failed, name) {
			failed = append(failed, name)
		}
	}
	if len(failed) == 0 {
		failed = []string{"Test.*"}
	}
	return failed
}
