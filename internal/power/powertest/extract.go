// SPDX-License-Identifier: Apache-2.0

package powertest

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Extract creates the files of a machine below root. A line of the file description is
// "path = content" or "path -> target", for a symbolic link. Extract returns the lines that start with each of the
// prefixes, without the prefix and without surrounding white space.
func Extract(t testing.TB, description, root string, prefixes ...string) [][]string {
	t.Helper()
	lines := make([][]string, len(prefixes))
	text, err := os.ReadFile(description)
	require.NoError(t, err)
next:
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSuffix(line, "\n")
		for i, prefix := range prefixes {
			if rest, ok := strings.CutPrefix(line, prefix); ok {
				lines[i] = append(lines[i], strings.TrimSpace(rest))
				continue next
			}
		}
		if name, target, ok := strings.Cut(line, " -> "); ok {
			name = filepath.Join(root, name)
			require.NoError(t, os.MkdirAll(filepath.Dir(name), 0o700))
			require.NoError(t, os.Symlink(target, name))
		} else if name, content, ok := strings.Cut(line, " ="); ok && line[0] != '#' {
			name = filepath.Join(root, name)
			require.NoError(t, os.MkdirAll(filepath.Dir(name), 0o700))
			require.NoError(t, os.WriteFile(name, []byte(strings.TrimPrefix(content, " ")+"\n"), 0o600))
		}
	}
	return lines
}
