// SPDX-License-Identifier: Apache-2.0

// Command language checks the English of the code: comments of Go and C files, texts such as log
// messages, errors and flag descriptions, and the descriptions in metadata.yaml.
//
// It writes them to text files with the same line numbers, and checks these files with vale and the
// rules in internal/tools/docs. Each directory has a limit on its number of findings:
//
//	go run ./receiver/test/language          fail if a directory exceeds its limit
//	go run ./receiver/test/language -lower   lower limits to the current numbers
//	go run ./receiver/test/language DIR...   print the findings in these directories
package main

import (
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

const (
	tools      = "internal/tools/docs"
	limitsPath = tools + "/code-limits.txt"
)

func main() {
	lower := flag.Bool("lower", false, "lower the limits to the present numbers")
	flag.Parse()
	if err := run(*lower, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "language:", err)
		os.Exit(1)
	}
}

func run(lower bool, shown []string) error {
	found, err := check()
	if err != nil {
		return err
	}
	if len(shown) > 0 {
		for _, f := range found {
			if slices.ContainsFunc(shown, func(dir string) bool { return isBelow(f.path, filepath.Clean(dir)) }) {
				fmt.Println(f.text)
			}
		}
		return nil
	}
	old, err := readLimits(limitsPath)
	if err != nil {
		return err
	}
	counts := countByDirectory(found)
	if lower {
		return writeLimits(limitsPath, lowered(old, counts))
	}
	return compare(old, counts)
}

// check returns the findings of vale in all files of the repository.
func check() ([]finding, error) {
	dir, err := os.MkdirTemp("", "language")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	paths, err := sources()
	if err != nil {
		return nil, err
	}
	for _, path := range paths {
		if err := extract(path, filepath.Join(dir, path+".txt")); err != nil {
			return nil, err
		}
	}
	cmd := exec.Command("go", "tool", "-modfile="+tools+"/go.mod", "vale", "--config", tools+"/code.ini", "--output=line", "--no-exit", dir)
	cmd.Env = append(os.Environ(), "GOWORK=off")
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("vale: %w", err)
	}
	return parseFindings(string(out), dir), nil
}

// sources returns the files to check: the hand-written sources of the repository without tests.
func sources() (paths []string, err error) {
	out, err := exec.Command("git", "ls-files", "--cached", "--others", "--exclude-standard", "*.go", "*.c", "*.h", "*metadata.yaml").Output()
	for path := range strings.Lines(string(out)) {
		path = strings.TrimSpace(path)
		base := filepath.Base(path)
		if strings.HasSuffix(base, "_test.go") || strings.HasPrefix(base, "generated_") || strings.HasSuffix(base, "_bpfel.go") {
			continue
		}
		if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) { // deleted, but still in the index
			continue
		}
		paths = append(paths, path)
	}
	return paths, err
}

// extract writes the English of a source file to a text file.
func extract(path, to string) error {
	data, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	text := extractC
	switch filepath.Ext(path) {
	case ".go":
		text = extractGo
	case ".yaml":
		text = extractYAML
	}
	lines, err := text(data)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	if err := os.MkdirAll(filepath.Dir(to), 0o750); err != nil {
		return err
	}
	return os.WriteFile(to, []byte(strings.Join(lines, "\n")+"\n"), 0o600)
}

// isBelow reports whether a path is dir or below it.
func isBelow(path, dir string) bool {
	return dir == "." || path == dir || strings.HasPrefix(path, dir+"/")
}
