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
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

// A set is a file of dev/mutants: faults that somebody chose, each of which the tests of some package should notice.
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
}

// variable is the environment variable that selects a fault, and the identifier in New that is true then.
const variable = "MUTANT"

// runSet runs the tests of a set's packages on each of its faults and prints a table: a line for each fault, with the
// number of tests that fail in each package. The tests are compiled once, with all faults.
func runSet(out io.Writer, path string, timeout time.Duration) error {
	data, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	var s set
	decoder := yaml.NewDecoder(bytes.NewReader(data))
	decoder.KnownFields(true)
	if err := decoder.Decode(&s); err != nil {
		return fmt.Errorf("%s: %w", path, err)
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
		if failed := t.failures("", timeout); len(failed) > 0 {
			return fmt.Errorf("%s fails without a fault: %s", t.path, strings.Join(failed, ", "))
		}
	}
	killed := 0
	for _, f := range s.Mutants {
		kills := map[string][]string{}
		for _, t := range tests {
			if failed := t.failures(f.Name, timeout); len(failed) > 0 {
				kills[t.path] = failed
			}
		}
		if len(kills) > 0 {
			killed++
		}
		fmt.Fprintln(out, f.line(kills))
	}
	fmt.Fprintf(out, "%s: %d of %d killed\n", filepath.Base(path), killed, len(s.Mutants))
	return nil
}

// line returns the fault's row of the table.
func (f fault) line(kills map[string][]string) string {
	if len(kills) == 0 {
		return "survived " + f.Name
	}
	var by []string
	for _, pkg := range slices.Sorted(maps.Keys(kills)) {
		tests := kills[pkg]
		by = append(by, fmt.Sprintf("%s %d (%s)", pkg, len(tests), strings.Join(tests[:min(3, len(tests))], " ")))
	}
	return "killed   " + f.Name + ": " + strings.Join(by, ", ")
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
type testBinary struct{ path, dir, binary string }

// compile compiles the tests of packages, except packages without any.
func compile(patterns []string, overlay, work string) (all []testBinary, err error) {
	list := exec.Command("go", append([]string{"list", "-f", "{{if or .TestGoFiles .XTestGoFiles}}{{.ImportPath}} {{.Dir}}{{end}}"}, patterns...)...)
	list.Stderr = os.Stderr
	lines, err := list.Output()
	if err != nil {
		return nil, err
	}
	for i, line := range strings.Fields(string(lines)) {
		if i%2 == 0 {
			all = append(all, testBinary{path: line, binary: filepath.Join(work, fmt.Sprintf("%d.test", i))})
			continue
		}
		t := &all[len(all)-1]
		t.dir = line
		cmd := exec.Command("go", "test", "-c", "-vet=off", "-overlay", overlay, "-o", t.binary, t.path)
		if out, err := cmd.CombinedOutput(); err != nil {
			return nil, fmt.Errorf("%s: %w\n%s", t.path, err, out)
		}
	}
	return all, nil
}

// failures runs the tests with a fault and returns the tests that fail, or the way in which the binary ended.
func (t testBinary) failures(mutant string, timeout time.Duration) (failed []string) {
	cmd := exec.Command(t.binary, "-test.short", "-test.timeout", timeout.String())
	cmd.Dir = t.dir
	cmd.Env = append(os.Environ(), variable+"="+mutant)
	out, err := cmd.CombinedOutput()
	if err == nil {
		return nil
	}
	for line := range strings.Lines(string(out)) {
		if name, ok := strings.CutPrefix(line, "--- FAIL: "); ok {
			failed = append(failed, strings.Fields(name)[0])
		}
	}
	if len(failed) == 0 {
		failed = []string{err.Error()}
	}
	return failed
}
