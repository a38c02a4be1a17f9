// SPDX-License-Identifier: Apache-2.0

// Command specification runs the tests that dev/specification.yaml names and writes
// dev/specification.md:
//
//	go run ./receiver/test/specification
//
// A test reports the figure of a row with t.Attr(ID of the row, figure). The command fails and writes
// no page if a test fails, or if a figure is missing or differs from the expected figure.
//
// With -run it prints the figures of the rows whose ID matches, and writes no page.
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

// The files of the page, relative to the root of the checkout.
const (
	sourcePath = "dev/specification.yaml"
	pagePath   = "dev/specification.md"
)

// integration is the directory of the package whose tests need a built collector.
const integration = "receiver/test/integration"

// A page is the content of dev/specification.yaml.
type page struct {
	Head     string
	Sections []section
	Tail     string
}

// A section is a table and the text below it.
type section struct {
	Title string
	Rows  []row
	Text  string
}

// A row is a statement of a document, and the test that reports the figure of this project.
type row struct {
	ID       string
	Document int // number in the list of documents at the head of the page
	Stated   string
	Package  string // directory, relative to the root of the checkout
	Test     string
	Expected string
}

func main() {
	only := flag.String("run", "", "regular expression of the IDs of rows to run without writing the page")
	flag.Parse()
	if err := write(*only); err != nil {
		fmt.Fprintln(os.Stderr, "specification:", err)
		os.Exit(1)
	}
}

// write runs the rows whose ID matches, and writes the page if only is empty.
func write(only string) error {
	p, err := readPage(sourcePath)
	if err != nil {
		return err
	}
	matches, err := regexp.Compile(only)
	if err != nil {
		return err
	}
	rows := slices.DeleteFunc(p.rows(), func(r row) bool { return !matches.MatchString(r.ID) })
	if len(rows) == 0 {
		return fmt.Errorf("no row has an ID that matches %q", only)
	}
	got, err := run(rows)
	if only != "" {
		for _, r := range rows {
			fmt.Printf("%s: %s\n", r.ID, got[r.figure()])
		}
		return err
	}
	if err != nil {
		return err
	}
	return os.WriteFile(pagePath, []byte(p.markdown(func(r row) string { return got[r.figure()] })), 0o644) //nolint:gosec // a page of the checkout
}

func readPage(path string) (*page, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	p := new(page)
	decoder := yaml.NewDecoder(bytes.NewReader(data))
	decoder.KnownFields(true)
	if err := decoder.Decode(p); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return p, nil
}

// rows returns the rows of all sections.
func (p *page) rows() (all []row) {
	for _, s := range p.Sections {
		all = append(all, s.Rows...)
	}
	return all
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

// attribute matches the output of t.Attr in go test -v. Its groups are the test, without the name of a
// subtest, the key and the value.
var attribute = regexp.MustCompile(`(?m)^=== ATTR +(\w+)\S* (\S+) (.*)$`)

// run runs the tests of rows once, and returns the figures by test and ID. The error names each test
// that failed, and each row whose figure is missing or differs from the expected figure.
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

// markdown returns the page. got returns the figure of a row.
func (p *page) markdown(got func(row) string) string {
	var b strings.Builder
	b.WriteString(p.Head)
	for _, s := range p.Sections {
		fmt.Fprintf(&b, "\n## %s\n\n| document | stated | command | expected | got |\n|---|---|---|---|---|\n", s.Title)
		for _, r := range s.Rows {
			fmt.Fprintf(&b, "| %d | %s | `%s` | %s | %s |\n", r.Document, r.Stated, command(r.Package, "^"+r.Test+"$"), r.Expected, got(r))
		}
		if s.Text != "" {
			b.WriteString("\n" + s.Text)
		}
	}
	b.WriteString("\n" + p.Tail)
	return b.String()
}
