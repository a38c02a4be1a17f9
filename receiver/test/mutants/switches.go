// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"go/build"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"

	"go.yaml.in/yaml/v3"
)

// A set is faults that are compiled together: a file of dev/mutants, or a draw.
type set struct {
	// Packages lists the packages whose tests run, as patterns of the go command.
	Packages []string
	Mutants  []fault

	name  string      // of the file, without its extension
	tests []testNames // of the packages
	kills [][]kill    // of each fault
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

	drawn *mutant // in place of Old and New; nil if the fault is a chosen one
}

// variable is the environment variable that selects a fault, and the identifier in New that is true then.
const variable = "MUTANT"

func isOn(name string) string { return fmt.Sprintf("(selectedMutant == %q)", name) }

// runSets runs the sets of a file or directory, and writes the number of tests that notice each fault, by package. A
// fault that no test notices has 0 and no package.
func (o *options) runSets(path string) error {
	sets, err := readSets(path)
	if err != nil {
		return err
	}
	table := csv.NewWriter(o.out)
	err = table.Write([]string{"set", "fault", "package", "tests"})
	for _, s := range sets {
		if err := o.runSet(s); err != nil {
			return err
		}
		for i, f := range s.Mutants {
			kills := s.kills[i]
			if len(kills) == 0 {
				kills = []kill{{}}
			}
			for _, k := range kills {
				err = errors.Join(err, table.Write([]string{s.name, f.Name, k.dir, strconv.Itoa(len(k.tests))}))
			}
		}
		table.Flush()
	}
	return errors.Join(err, table.Error())
}

// runSet runs the tests of a set's packages on each of its faults. The tests are compiled once, with all faults. Only
// packages that import the faulty one run their tests, at most workers of them at the same time. The names of the tests
// that notice a fault go to progress.
//
// Some tests depend on the speed of the machine. So a test does not count if it fails without a fault. If it fails with
// a fault, it is repeated, and counts if it fails again.
func (o *options) runSet(s *set) error {
	work, err := os.MkdirTemp("", "mutants")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(work) }()
	overlay, err := s.overlay(work)
	if err != nil {
		return err
	}
	binaries, err := compile(s.Packages, overlay, work)
	if err != nil {
		return err
	}
	for _, t := range binaries {
		doubtful, err := t.calibrate(o, s.named(t.dir))
		if err != nil {
			return err
		}
		for _, f := range s.Mutants {
			if dir, name, _ := strings.Cut(f.Test, " "); dir == t.dir && slices.Contains(doubtful, name) {
				return fmt.Errorf("mutant %s: %s fails without a fault", f.Name, f.Test)
			}
		}
		s.tests = append(s.tests, testNames{t.dir, t.names})
	}
	s.run(binaries, o)
	return nil
}

// readSets returns the set of a file, or the sets of the files of a directory.
func readSets(path string) (sets []*set, err error) {
	files := []string{path}
	if filepath.Ext(path) == "" {
		if files, err = filepath.Glob(filepath.Join(path, "*.yaml")); err != nil {
			return nil, err
		}
	}
	for _, file := range files {
		s, err := readSet(file)
		if err != nil {
			return nil, err
		}
		sets = append(sets, s)
	}
	return sets, nil
}

func readSet(path string) (*set, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	s := &set{name: strings.TrimSuffix(filepath.Base(path), filepath.Ext(path))}
	decoder := yaml.NewDecoder(bytes.NewReader(data))
	decoder.KnownFields(true)
	if err := decoder.Decode(s); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return s, nil
}

// named returns the tests of the package in dir that the faults name. It is nil if a fault names no test.
func (s *set) named(dir string) []string {
	names := []string{}
	for _, f := range s.Mutants {
		of, name, ok := strings.Cut(f.Test, " ")
		if !ok {
			return nil
		}
		if of == dir {
			names = append(names, name)
		}
	}
	return names
}

// testNames is tests of one package.
type testNames struct {
	dir   string // of the package, relative to the root of the checkout
	tests []string
}

// A kill is the tests of one package that notice a fault.
type kill = testNames

// run finds the kills of each fault.
func (s *set) run(binaries []*testBinary, o *options) {
	s.kills = make([][]kill, len(s.Mutants))
	var mu sync.Mutex // guards kills and progress
	var group sync.WaitGroup
	free := make(chan struct{}, o.workers)
	for i, f := range s.Mutants {
		for _, t := range binaries {
			dir, only, isOne := strings.Cut(f.Test, " ")
			if !t.dirs[filepath.Dir(f.File)] || isOne && t.dir != dir {
				continue
			}
			names := t.names
			if isOne {
				names = slices.DeleteFunc(slices.Clone(names), func(name string) bool { return name != only })
			}
			free <- struct{}{}
			group.Go(func() {
				failed, notRun := t.kills(f.Name, names)
				<-free
				mu.Lock()
				defer mu.Unlock()
				if len(notRun) > 0 {
					fmt.Fprintf(o.progress, "%s: %s%s\n", f.Name, t.dir, tooMany(notRun))
				}
				if len(failed) > 0 {
					s.kills[i] = append(s.kills[i], kill{t.dir, failed})
					fmt.Fprintf(o.progress, "%s: %s: %s\n", f.Name, t.dir, strings.Join(failed, " "))
				}
			})
		}
	}
	group.Wait()
	for _, kills := range s.kills {
		slices.SortFunc(kills, func(a, b kill) int { return strings.Compare(a.dir, b.dir) })
	}
}

// overlay writes the files with all faults, and in each of their packages a file that defines the variable. It
// returns the path of the overlay, a file for the flag -overlay of the go command.
func (s *set) overlay(work string) (string, error) {
	texts := map[string]string{} // by absolute path
	var errs []error
	for i, f := range s.Mutants {
		path, err := filepath.Abs(f.File)
		if err == nil {
			err = f.apply(path, texts, i)
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
func (f fault) apply(path string, texts map[string]string, number int) error {
	if f.drawn != nil {
		return f.drawn.apply(texts, f.Name, number)
	}
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
	texts[path] = strings.Replace(text, old, strings.ReplaceAll(strings.TrimSuffix(f.New, "\n"), variable, isOn(f.Name)), 1)
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
