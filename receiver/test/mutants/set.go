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
	"runtime"
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

	name     string // of the file, without its extension
	binaries []*testBinary
	kills    [][]string // by fault, the tests that notice it, as in fault.Test
}

// A fault is a change of a source file. It is compiled in, and enabled if the variable MUTANT has
// its name.
type fault struct {
	Name string
	// Fact is the behavior that the fault breaks. It does not change when the code moves; File, Old
	// and New follow the code.
	Fact string
	File string // relative to the root of the checkout
	Old  string // occurs once in the file
	New  string // MUTANT in it is true if the fault is on
	// Test is the directory of a package and the name of one of its tests. Only this test runs. If
	// Test is empty, all tests run.
	Test string

	drawn *mutant // replaces Old and New in drawn faults; nil in chosen faults
}

// variable is the environment variable that selects a fault. In New it is an identifier that is
// then true.
const variable = "MUTANT"

func isOn(name string) string { return fmt.Sprintf("(selectedMutant == %q)", name) }

// runSets runs the sets of a file or directory, and writes the number of tests that notice each
// fault, by package. A fault that no test notices has 0 and no package.
func (r *runner) runSets(path string) error {
	sets, err := readSets(path)
	if err != nil {
		return err
	}
	table := csv.NewWriter(r.out)
	err = table.Write([]string{"set", "fault", "package", "tests"})
	for _, s := range sets {
		if err := r.runSet(s); err != nil {
			return err
		}
		for i, f := range s.Mutants {
			tests := map[string]int{} // by package
			for _, test := range s.kills[i] {
				dir, _, _ := strings.Cut(test, " ")
				tests[dir]++
			}
			if len(tests) == 0 {
				tests[""] = 0
			}
			for _, dir := range slices.Sorted(maps.Keys(tests)) {
				err = errors.Join(err, table.Write([]string{s.name, f.Name, dir, strconv.Itoa(tests[dir])}))
			}
		}
		table.Flush()
	}
	return errors.Join(err, table.Error())
}

// runSet runs the tests of a set's packages on each of its faults. The tests are compiled once,
// with all faults. Only packages that import the faulty package run their tests. The names of the
// tests that notice a fault go to progress.
//
// Some tests depend on the speed of the machine. A test therefore does not count if it fails
// without a fault. If it fails with a fault, it is repeated, and counts if it fails again.
func (r *runner) runSet(s *set) error {
	work, err := os.MkdirTemp("", "mutants")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(work) }()
	overlay, err := s.overlay(work)
	if err != nil {
		return err
	}
	if s.binaries, err = compile(s.Packages, overlay, work); err != nil {
		return err
	}
	needed := func(test string) bool {
		return slices.ContainsFunc(s.Mutants, func(f fault) bool { return f.runs(test) })
	}
	for _, t := range s.binaries {
		doubtful, err := t.calibrate(r.progress, needed)
		if err != nil {
			return err
		}
		for _, f := range s.Mutants {
			if slices.ContainsFunc(doubtful, func(name string) bool { return t.test(name) == f.Test }) {
				return fmt.Errorf("mutant %s: %s fails without a fault", f.Name, f.Test)
			}
		}
	}
	r.findKills(s)
	return nil
}

// runs reports whether a test runs on the fault.
func (f *fault) runs(test string) bool { return f.Test == "" || f.Test == test }

// findKills runs the tests on each fault. As many packages as the machine has CPUs run their tests
// in parallel.
func (r *runner) findKills(s *set) {
	s.kills = make([][]string, len(s.Mutants))
	var mu sync.Mutex // guards kills and progress
	var group sync.WaitGroup
	free := make(chan struct{}, runtime.NumCPU())
	for i, f := range s.Mutants {
		for _, t := range s.binaries {
			names := slices.DeleteFunc(slices.Clone(t.names), func(name string) bool { return !f.runs(t.test(name)) })
			if !t.dirs[filepath.Dir(f.File)] || len(names) == 0 {
				continue
			}
			free <- struct{}{}
			group.Go(func() {
				failed, notRun := t.kills(f.Name, names)
				<-free
				mu.Lock()
				defer mu.Unlock()
				if len(notRun) > 0 {
					fmt.Fprintf(r.progress, "%s: %s%s\n", f.Name, t.dir, tooMany(notRun))
				}
				if len(failed) > 0 {
					fmt.Fprintf(r.progress, "%s: %s: %s\n", f.Name, t.dir, strings.Join(failed, " "))
				}
				for _, name := range failed {
					s.kills[i] = append(s.kills[i], t.test(name))
				}
			})
		}
	}
	group.Wait()
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
		data, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		s := &set{name: strings.TrimSuffix(filepath.Base(file), filepath.Ext(file))}
		decoder := yaml.NewDecoder(bytes.NewReader(data))
		decoder.KnownFields(true)
		if err := decoder.Decode(s); err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		sets = append(sets, s)
	}
	return sets, nil
}

// overlay writes the files with all faults, and in each of their packages a file that defines the
// variable. It returns the path of the overlay, a file for the flag -overlay of the go command.
func (s *set) overlay(work string) (string, error) {
	texts := map[string]string{} // by absolute path
	names := map[string]bool{}
	var errs []error
	for _, f := range s.Mutants {
		err := f.addTo(texts)
		if err == nil && names[f.Name] {
			err = errors.New("the name occurs twice")
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("mutant %s: %w", f.Name, err))
		}
		names[f.Name] = true
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

// addTo adds the fault to the text of its file, and the file with the variable to its package.
func (f *fault) addTo(texts map[string]string) error {
	path, err := filepath.Abs(f.File)
	if err != nil {
		return err
	}
	if _, ok := texts[path]; !ok {
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		texts[path] = string(data)
	}
	if texts[path], err = f.apply(texts[path]); err != nil {
		return err
	}
	pkg, err := build.ImportDir(filepath.Dir(path), 0)
	if err != nil {
		return err
	}
	texts[filepath.Join(pkg.Dir, "selected_mutant.go")] = fmt.Sprintf("package %s\n\nimport \"os\"\n\nvar selectedMutant = os.Getenv(%q)\n", pkg.Name, variable)
	return nil
}

// apply returns the text of a file with the fault.
func (f *fault) apply(text string) (string, error) {
	if f.drawn != nil {
		return f.drawn.apply(text, f.Name), nil
	}
	old, with := strings.TrimSuffix(f.Old, "\n"), strings.TrimSuffix(f.New, "\n")
	if n := strings.Count(text, old); n != 1 {
		return text, fmt.Errorf("%s has the old text %d times, and must have it once", f.File, n)
	}
	if !strings.Contains(with, variable) {
		return text, fmt.Errorf("the new text has no %s", variable)
	}
	return strings.Replace(text, old, strings.ReplaceAll(with, variable, isOn(f.Name)), 1), nil
}
