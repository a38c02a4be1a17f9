// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"strings"
)

// writePage puts a text into a page, between the marks of these scenarios:
//
//	<!-- make cost SCENARIOS=start,exits -->
//	<!-- end -->
func writePage(path, scenarios, text string) error {
	page, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	filled, err := fill(string(page), scenarios, text)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return os.WriteFile(path, []byte(filled), 0o644) //nolint:gosec // as other pages
}

func fill(page, scenarios, text string) (string, error) {
	begin, end := "<!-- make cost SCENARIOS="+scenarios+" -->\n", "<!-- end -->"
	before, rest, ok := strings.Cut(page, begin)
	_, after, ended := strings.Cut(rest, end)
	if !ok || !ended {
		return "", fmt.Errorf("no place is marked by %q and %q", begin, end)
	}
	return before + begin + text + end + after, nil
}
