// SPDX-License-Identifier: Apache-2.0

package main

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestALineIsSplitAsAShellDoes(t *testing.T) {
	for line, want := range map[string][]string{
		"gzip -9 file":            {"gzip", "-9", "file"},
		"  a\t b  ":               {"a", "b"},
		`a 'b c' "d e" f\ g ''`:   {"a", "b c", "d e", "f g", ""},
		`a"b"'c'd "\"\\" '$x' \*`: {"abcd", `"\`, "$x", "*"},
		"cc --std=c11 a~ b#c x{}": {"cc", "--std=c11", "a~", "b#c", "x{}"},
		"gzip < f":                nil,
		"X=1 make":                nil,
		"cat *.go":                nil,
		"echo $HOME":              nil,
		`echo "$HOME"`:            nil,
		"a | b":                   nil,
		"cat ~/f":                 nil,
		"! true":                  nil,
		"a 'b":                    nil,
		`a b\`:                    nil,
		`a "\x"`:                  nil,
		"a\nb":                    nil,
		`'a\b' c`:                 {`a\b`, "c"},
	} {
		words, byShell, err := shellWords(line)
		require.NoError(t, err, line)
		if want == nil {
			assert.True(t, byShell, line)
			want = []string{"sh", "-c", line}
		}
		assert.Equal(t, want, words, line)
	}
	for _, line := range []string{"", "  \t", "\n"} {
		_, _, err := shellWords(line)
		assert.EqualError(t, err, "the command is empty")
	}
}
