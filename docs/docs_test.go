// SPDX-License-Identifier: Apache-2.0

// Package docs_test checks that what the pages refer to exists.
package docs_test

import (
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
)

const root = ".."

// pages returns the paths of all pages, relative to this folder.
func pages(t *testing.T) []string {
	t.Helper()
	var found []string
	require.NoError(t, filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && path != root && (entry.Name() == "build" || strings.HasPrefix(entry.Name(), ".")):
			return fs.SkipDir
		case filepath.Ext(path) == ".md":
			found = append(found, path)
		}
		return nil
	}))
	return found
}

var (
	codeBlock = regexp.MustCompile("(?ms)^ *```.*?^ *```$")
	link      = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	heading   = regexp.MustCompile(`(?m)^#+ +(.*)$`)
	linked    = regexp.MustCompile(`\[([^\]]*)\]\([^)]*\)`)
	dropped   = regexp.MustCompile(`[^\p{L}\p{N}_ -]`)
)

// text returns a page without its code blocks.
func text(t *testing.T, path string) string {
	t.Helper()
	content, err := os.ReadFile(path)
	require.NoError(t, err)
	return codeBlock.ReplaceAllString(string(content), "")
}

// anchors returns the fragments by which GitHub links to the headings of a page.
func anchors(t *testing.T, path string) []string {
	t.Helper()
	var all []string
	for _, h := range heading.FindAllStringSubmatch(text(t, path), -1) {
		title := linked.ReplaceAllString(h[1], "$1")
		all = append(all, strings.ReplaceAll(dropped.ReplaceAllString(strings.ToLower(strings.TrimSpace(title)), ""), " ", "-"))
	}
	return all
}

func TestRelativeLinksAndAnchorsResolve(t *testing.T) {
	for _, page := range pages(t) {
		for _, l := range link.FindAllStringSubmatch(text(t, page), -1) {
			if strings.Contains(l[1], "://") || strings.HasPrefix(l[1], "mailto:") {
				continue
			}
			file, anchor, hasAnchor := strings.Cut(l[1], "#")
			target := page
			if file != "" {
				target = filepath.Join(filepath.Dir(page), file)
			}
			_, err := os.Stat(target)
			if assert.NoError(t, err, "%s links to %s", page, l[1]) && hasAnchor && filepath.Ext(target) == ".md" {
				assert.Contains(t, anchors(t, target), anchor, "%s links to %s", page, l[1])
			}
		}
	}
}

func TestTroubleshootingHasTheConditionsOfTheCode(t *testing.T) {
	var files []string
	for _, pattern := range []string{"../receiver/*.go", "../receiver/internal/*/*.go", "../extension/energyguests/*.go"} {
		matches, err := filepath.Glob(pattern)
		require.NoError(t, err)
		files = append(files, matches...)
	}
	condition := regexp.MustCompile(`\b(?:c|conditions)\.(?:Observe|Set)\("([^"]+)"`)
	var inCode []string
	for _, file := range files {
		source, err := os.ReadFile(file)
		require.NoError(t, err)
		for _, name := range condition.FindAllStringSubmatch(string(source), -1) {
			inCode = append(inCode, name[1]) // "weight " is the beginning of several
		}
	}
	_, section, ok := strings.Cut(text(t, "troubleshooting.md"), "## Conditions in the log\n")
	require.True(t, ok)
	section, _, _ = strings.Cut(section, "\n## ")
	var onPage []string
	for _, row := range regexp.MustCompile("(?m)^\\| `([^`]+)`").FindAllStringSubmatch(section, -1) {
		onPage = append(onPage, row[1])
	}
	same := func(inCode, onPage string) bool {
		return inCode == onPage || strings.HasSuffix(inCode, " ") && strings.HasPrefix(onPage, inCode)
	}
	for _, name := range inCode {
		assert.True(t, slices.ContainsFunc(onPage, func(row string) bool { return same(name, row) }), "%q is not on the page", name)
	}
	for _, row := range onPage {
		assert.True(t, slices.ContainsFunc(inCode, func(name string) bool { return same(name, row) }), "no condition is called %q", row)
	}
	assert.NotEmpty(t, inCode)
}

// The page of metrics has each metric, its name in Prometheus and each zone kind.
func TestMetricsPageHasTheMetricsOfTheMetadata(t *testing.T) {
	page := text(t, "metrics.md")
	for _, file := range []string{"../metadata.yaml", "../processor/emissions/metadata.yaml"} {
		content, err := os.ReadFile(file)
		require.NoError(t, err)
		_, metrics, ok := strings.Cut(string(content), "\nmetrics:\n")
		require.True(t, ok, file)
		metrics, _, _ = strings.Cut(metrics, "\ntelemetry:\n")
		found := regexp.MustCompile(`(?ms)^  ([a-z][\w.]+):\n.*?^    unit: "?([^"\n]+)`).FindAllStringSubmatch(metrics, -1)
		require.NotEmpty(t, found, file)
		for _, m := range found {
			assert.Contains(t, page, "`"+m[1]+"`", file)
			if suffix, ok := suffixes[m[2]]; ok {
				assert.Contains(t, page, "`"+strings.ReplaceAll(m[1], ".", "_")+suffix+"`", file)
			}
		}
	}
	content, err := os.ReadFile("../metadata.yaml")
	require.NoError(t, err)
	zones := regexp.MustCompile(`(?ms)^  energy\.zone:\n.*?enum: \[([^\]]*)\]`).FindStringSubmatch(string(content))
	require.NotNil(t, zones)
	row := regexp.MustCompile("(?m)^\\| `energy\\.zone` \\|.*$").FindString(page)
	for zone := range strings.SplitSeq(zones[1], ", ") {
		assert.Contains(t, row, "`"+zone+"`")
	}
}

// suffixes holds the suffixes of names in Prometheus by unit.
var suffixes = map[string]string{
	"J": "_joules_total", "W": "_watts", "s": "_seconds_total", "By": "_bytes_total", "1": "_ratio", "{cpu}": "",
}

// A block may have several documents.
func TestYAMLOnThePagesParses(t *testing.T) {
	block := regexp.MustCompile("(?ms)^( *)```yaml\n(.*?)^ *```$")
	for _, page := range pages(t) {
		content, err := os.ReadFile(page)
		require.NoError(t, err)
		for _, b := range block.FindAllSubmatch(content, -1) {
			text := strings.ReplaceAll("\n"+string(b[2]), "\n"+string(b[1]), "\n")
			decoder := yaml.NewDecoder(strings.NewReader(text))
			for {
				var document any
				if err := decoder.Decode(&document); err != nil {
					assert.ErrorIs(t, err, io.EOF, "%s:%s", page, text)
					break
				}
			}
		}
	}
}

// A path with a placeholder in angle brackets is checked up to the placeholder.
func TestPathsOnThePagesExist(t *testing.T) {
	address := regexp.MustCompile(`\w+://\S+|\b(?:github\.com|go\.opentelemetry\.io|helm\.sh)/\S+`)
	path := regexp.MustCompile(`(?:^|[\s(\x60./])((?:cmd|deploy|docs|extension|internal|processor|receiver)/[\w./-]*\w)`)
	for _, page := range pages(t) {
		content, err := os.ReadFile(page)
		require.NoError(t, err)
		for _, p := range path.FindAllSubmatch(address.ReplaceAll(content, nil), -1) {
			_, err := os.Stat(filepath.Join(root, string(p[1])))
			assert.NoError(t, err, "%s", page)
		}
	}
}

// A name that ends in an ellipsis is the beginning of one.
func TestTestsNamedOnThePagesExist(t *testing.T) {
	declaration := regexp.MustCompile(`(?m)^func ((?:Test|Fuzz)\w+)\(`)
	var declared []string
	require.NoError(t, filepath.WalkDir(root, func(path string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		source, err := os.ReadFile(path)
		for _, d := range declaration.FindAllSubmatch(source, -1) {
			declared = append(declared, string(d[1]))
		}
		return err
	}))
	named := regexp.MustCompile("`((?:Test|Fuzz)[A-Z]\\w*)(…|\\.\\.\\.)?`")
	for _, page := range pages(t) {
		for _, n := range named.FindAllStringSubmatch(text(t, page), -1) {
			assert.True(t, slices.ContainsFunc(declared, func(name string) bool {
				return name == n[1] || n[2] != "" && strings.HasPrefix(name, n[1])
			}), "%s names %s", page, n[1])
		}
	}
}
