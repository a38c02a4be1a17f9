// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// finding is a place that breaks a rule.
type finding struct {
	path string // of the source
	text string // the path, line, column, rule and message
}

// parseFindings parses what vale prints for the text files below dir.
func parseFindings(out, dir string) (found []finding) {
	for line := range strings.Lines(out) {
		line = strings.TrimPrefix(strings.TrimSpace(line), dir+"/")
		if path, rest, ok := strings.Cut(line, ".txt:"); ok {
			found = append(found, finding{path, path + ":" + rest})
		}
	}
	return found
}

// countByDirectory returns the number of findings in the files of each directory.
func countByDirectory(found []finding) map[string]int {
	counts := map[string]int{}
	for _, f := range found {
		counts[filepath.Dir(f.path)]++
	}
	return counts
}

// lowered returns the lower of the limit and the number of findings for each directory. A directory
// without a limit has the limit 0, unless the list is empty.
func lowered(old, counts map[string]int) map[string]int {
	limits := map[string]int{}
	for dir, count := range counts {
		limit, ok := old[dir]
		if !ok && len(old) == 0 {
			limit = count
		}
		if limit = min(limit, count); limit > 0 {
			limits[dir] = limit
		}
	}
	return limits
}

// compare returns an error that names the directories that exceed their limits.
func compare(limits, counts map[string]int) error {
	var over []error
	for _, dir := range slices.Sorted(maps.Keys(counts)) {
		if counts[dir] > limits[dir] {
			over = append(over, fmt.Errorf("%s has %d findings, and its limit is %d: go run ./receiver/test/language %s", dir, counts[dir], limits[dir], dir))
		}
	}
	return errors.Join(over...)
}

// readLimits reads a file of lines "limit directory".
func readLimits(path string) (map[string]int, error) {
	limits := map[string]int{}
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return limits, nil
	}
	for line := range strings.Lines(string(data)) {
		var limit int
		var dir string
		if _, err := fmt.Sscan(line, &limit, &dir); err != nil {
			return nil, fmt.Errorf("%s: %q: %w", path, line, err)
		}
		limits[dir] = limit
	}
	return limits, err
}

func writeLimits(path string, limits map[string]int) error {
	var text strings.Builder
	for _, dir := range slices.Sorted(maps.Keys(limits)) {
		fmt.Fprintf(&text, "%4d %s\n", limits[dir], dir)
	}
	return os.WriteFile(path, []byte(text.String()), 0o644) //nolint:gosec // readable for all users
}
