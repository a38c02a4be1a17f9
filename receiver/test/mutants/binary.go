// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

// testBinary is the compiled tests of a package.
type testBinary struct {
	binary    string
	dir       string          // of the package, relative to the root of the checkout
	dirs      map[string]bool // of all packages that are in the binary
	names     []string        // tests to run
	exitFails bool            // without a fault, although its tests pass
	timeout   time.Duration
}

// A listed is a package as the go command lists it. The tests of a package are another one, with
// the suffix .test.
type listed struct {
	ImportPath, ForTest string
	Dir                 string // relative to the root of the checkout
	DepOnly             bool
	Deps                []string
}

// list returns the packages of patterns, their tests, and all that these import.
func list(patterns []string) (all []listed, err error) {
	root, err := os.Getwd()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command("go", append([]string{"list", "-test", "-deps", "-json=ImportPath,Dir,ForTest,DepOnly,Deps"}, patterns...)...)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, err
	}
	for decoder := json.NewDecoder(bytes.NewReader(out)); decoder.More(); {
		var p listed
		if err := decoder.Decode(&p); err != nil {
			return nil, err
		}
		if p.Dir, err = filepath.Rel(root, p.Dir); err != nil {
			return nil, err
		}
		all = append(all, p)
	}
	return all, nil
}

// compile compiles the tests of packages, except packages without any.
func compile(patterns []string, overlay, work string) (all []*testBinary, err error) {
	packages, err := list(patterns)
	if err != nil {
		return nil, err
	}
	dirs := map[string]string{} // by import path
	for _, p := range packages {
		dirs[p.ImportPath] = p.Dir
	}
	for i, p := range packages {
		path, isTest := strings.CutSuffix(p.ImportPath, ".test")
		if !isTest {
			continue
		}
		t := &testBinary{dir: p.Dir, dirs: map[string]bool{}, binary: filepath.Join(work, fmt.Sprintf("%d.test", i))}
		for _, dep := range p.Deps {
			dep, _, _ = strings.Cut(dep, " ") // "p [p.test]" is p, compiled for its tests
			if dir, ok := dirs[dep]; ok {
				t.dirs[dir] = true
			}
		}
		if out, err := goTool(".", "test", "-c", "-vet=off", "-overlay", overlay, "-o", t.binary, path); err != nil {
			return nil, fmt.Errorf("%s: %w\n%s", path, err, out)
		}
		all = append(all, t)
	}
	return all, nil
}

func goTool(dir string, args ...string) (string, error) {
	cmd := exec.Command("go", args...)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// longest is the timeout of the tests of a package without a fault.
const longest = 10 * time.Minute

// calibrate runs the needed tests without a fault, and removes and returns tests that fail. With a
// fault, the limit is three times the duration plus half a minute.
func (t *testBinary) calibrate(progress io.Writer, needed func(test string) bool) (doubtful []string, err error) {
	cmd := exec.Command(t.binary, "-test.list", "^(Test|Fuzz|Example)")
	cmd.Dir = t.dir
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", t.dir, err)
	}
	names := slices.DeleteFunc(strings.Fields(string(out)), func(name string) bool { return !needed(t.test(name)) })
	t.timeout = longest
	began := time.Now()
	doubtful, notRun := t.failures("", names)
	took := time.Since(began)
	t.timeout = min(longest, 3*took+time.Minute/2)
	t.names, t.exitFails = without(names, append(notRun, doubtful...)), slices.Contains(doubtful, testMain)
	fmt.Fprintf(progress, "%s takes %v\n", t.dir, took.Round(time.Second/10))
	if len(doubtful) > 0 {
		fmt.Fprintf(progress, "%s: without a fault fail, so that they do not count: %s\n", t.dir, strings.Join(doubtful, " "))
	}
	if len(notRun) > 0 {
		fmt.Fprintf(progress, "%s: without a fault%s\n", t.dir, tooMany(notRun))
	}
	return doubtful, nil
}

// test returns a test of the package as fault.Test has it.
func (t *testBinary) test(name string) string { return t.dir + " " + name }

func without(all, some []string) []string {
	return slices.DeleteFunc(slices.Clone(all), func(name string) bool { return slices.Contains(some, name) })
}

// kills returns the tests with these names that notice a fault, and the tests that too many crashes
// kept from running.
func (t *testBinary) kills(mutant string, names []string) (failed, notRun []string) {
	failed, notRun = t.failures(mutant, names)
	if slices.Contains(failed, testMain) {
		failed = names
	}
	failed, _ = t.failures(mutant, failed)
	return failed, notRun
}

// tooMany describes tests that did not run, for progress.
func tooMany(notRun []string) string {
	return fmt.Sprintf(", %d crashes keep from running: %s", mostRuns, strings.Join(notRun, " "))
}

// The output lines of a test binary: a test or a subtest begins or continues, ends, or was running
// at the timeout.
var (
	began  = regexp.MustCompile(`\x16=== (?:RUN|CONT|NAME) +(\w+)`)
	ended  = regexp.MustCompile(`\x16--- (PASS|FAIL|SKIP): (\w+) \(`)
	hanged = regexp.MustCompile(`(?m)^\t+(\w+)\S* \(`)
)

// mostRuns bounds how often failures runs the tests that a crash has kept from running.
const mostRuns = 10

// testMain is the name for a process that failed although its tests passed.
const testMain = "TestMain"

// failures runs the tests with these names on a fault, and returns the tests that fail. If a test
// ends the process, the tests that have not run yet run in another one. After mostRuns processes,
// failures returns them in notRun.
func (t *testBinary) failures(mutant string, names []string) (failed, notRun []string) {
	for range mostRuns {
		if len(names) == 0 {
			return failed, nil
		}
		fails, remaining := t.runOnce(mutant, names)
		failed, names = append(failed, fails...), remaining
	}
	return failed, names
}

func (t *testBinary) runOnce(mutant string, names []string) (failed, remaining []string) {
	cmd := exec.Command(t.binary, "-test.short", "-test.v=test2json", "-test.timeout", t.timeout.String(),
		"-test.run=^("+strings.Join(names, "|")+")$")
	cmd.Dir = t.dir
	cmd.Env = append(os.Environ(), variable+"="+mutant)
	out, err := cmd.CombinedOutput()
	if err == nil {
		return nil, nil
	}
	remaining = names
	for _, match := range ended.FindAllSubmatch(out, -1) {
		remaining = without(remaining, []string{string(match[2])})
		if string(match[1]) == "FAIL" {
			failed = append(failed, string(match[2]))
		}
	}
	if len(remaining) == 0 {
		// The process failed after its tests, such as for a running goroutine.
		if len(failed) == 0 && !t.exitFails {
			failed = []string{testMain}
		}
		return failed, nil
	}
	if _, stacks, ok := bytes.Cut(out, []byte("panic: test timed out")); ok {
		for _, match := range hanged.FindAllSubmatch(stacks, -1) {
			if name := string(match[1]); slices.Contains(remaining, name) && !slices.Contains(failed, name) {
				failed = append(failed, name)
			}
		}
	}
	if len(failed) == 0 { // the test that began last has ended the process
		all := began.FindAllSubmatch(out, -1)
		if len(all) == 0 {
			return remaining, nil
		}
		failed = []string{string(all[len(all)-1][1])}
	}
	return failed, without(remaining, failed)
}
