// SPDX-License-Identifier: Apache-2.0

// Command specification runs the tests that dev/specification.yaml names:
//
//	go run ./receiver/test/specification
//
// A test reports the figure of a row with t.Attr(ID of the row, figure). The command fails if a
// test fails, or if a figure is missing or differs from the expected figure. It prints the figures;
// with -run it runs only the rows whose ID matches.
package main

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// sourcePath is the file of the rows, relative to the root of the checkout.
const sourcePath = "dev/specification.yaml"

// integration is the directory of the package whose tests need a built collector.
const integration = "receiver/test/integration"

// A section is a list of rows.
type section struct {
	Title string
	Rows  []row
}

// A row is a statement of a document, and the test that reports the figure of this project.
type row struct {
	ID       string
	Document int // number in the list of documents at the head of the file
	Stated   string
	Package  string // directory, relative to the root of the checkout
	Test     string
	Expected string
}

func main() {
	only := flag.String("run", "", "regular expression of the IDs of rows to run")
	flag.Parse()
	if err := check(*only); err != nil {
		fmt.Fprintln(os.Stderr, "specification:", err)
		os.Exit(1)
	}
}

// check runs the rows whose ID matches, and prints their figures.
func check(only string) error {
	rows, err := readRows(sourcePath)
	if err != nil {
		return err
	}
	matches, err := regexp.Compile(only)
	if err != nil {
		return err
	}
	rows = slices.DeleteFunc(rows, func(r row) bool { return !matches.MatchString(r.ID) })
	if len(rows) == 0 {
		return fmt.Errorf("no row has an ID that matches %q", only)
	}
	got, err := run(rows)
	for _, r := range rows {
		fmt.Printf("%s: %s\n", r.ID, got[r.figure()])
	}
	return err
}

// readRows returns the rows of all sections.
func readRows(path string) (all []row, err error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var content struct{ Sections []section }
	decoder := yaml.NewDecoder(bytes.NewReader(data))
	decoder.KnownFields(true)
	if err := decoder.Decode(&content); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	for _, s := range content.Sections {
		all = append(all, s.Rows...)
	}
	return all, nil
}

// figure returns the key of the row's figure in the result of run.
func (r row) figure() string { return r.Test + " " + r.ID }

// command returns the shell command that runs the tests of a package that match a pattern.
func command(dir, pattern string) string {
	if dir == integration {
		return fmt.Sprintf("RUN='%s' make integration", pattern)
	}
	return fmt.Sprintf("go test -v -run '%s' ./%s", pattern, dir)
}

// attribute matches the output of t.Attr in go test -v. Its groups are the test, without the name
// of a subtest, the key and the value.
var attribute = regexp.MustCompile(`(?m)^=== ATTR +(\w+)\S* (\S+) (.*)$`)

// run runs the tests of rows once, and returns the figures by test and ID. The error names each
// test that failed, and each row whose figure is missing or differs from the expected figure.
func run(rows []row) (map[string]string, error) {
	tests := map[string][]string{} // by package
	for _, r := range rows {
		if !slices.Contains(tests[r.Package], r.Test) {
			tests[r.Package] = append(tests[r.Package], r.Test)
		}
	}
	got := map[string]string{}
	var errs []error
	for _, dir := range slices.Sorted(maps.Keys(tests)) {
		out, err := exec.Command("sh", "-c", command(dir, "^("+strings.Join(tests[dir], "|")+")$")).CombinedOutput()
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w\n%s", dir, err, out))
		}
		for _, match := range attribute.FindAllSubmatch(out, -1) {
			got[fmt.Sprintf("%s %s", match[1], match[2])] = string(match[3])
		}
	}
	for _, r := range rows {
		if figure, ok := got[r.figure()]; !ok {
			errs = append(errs, fmt.Errorf("%s: %s reports no figure", r.ID, r.Test))
		} else if figure != r.Expected {
			errs = append(errs, fmt.Errorf("%s: %s reports %q, expected %q", r.ID, r.Test, figure, r.Expected))
		}
	}
	return got, errors.Join(errs...)
}
