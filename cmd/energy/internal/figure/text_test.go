// SPDX-License-Identifier: Apache-2.0

package figure

import (
	"bytes"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestATextIsCutOrPaddedToItsColumns(t *testing.T) {
	for _, tt := range []struct {
		text     string
		columns  int
		fit, pad string
	}{
		{"", 4, "", "    "},
		{"abc", 3, "abc", "abc"},
		{"abcd", 3, "ab…", "ab…"},
		{"abcd", 1, "…", "…"},
		{"abcd", 0, "", ""},
		{"日本語", 6, "日本語", "日本語"},
		{"日本語", 5, "日本…", "日本…"},
		{"日本語", 4, "日…", "日… "},
		{"日本語", 2, "…", "… "},
		{"e\u0301te\u0301", 3, "e\u0301te\u0301", "e\u0301te\u0301"},
		{"\u202eab", 4, "\u202eab", "?ab "},
	} {
		assert.Equal(t, tt.fit, Fit(tt.text, tt.columns))
		assert.Equal(t, tt.pad, Pad(tt.text, tt.columns))
		assert.Equal(t, tt.columns, Width(tt.pad))
	}
	assert.Empty(t, Fit("abcd", -1))
}

func TestCharactersThatAreNotVisibleAreReplaced(t *testing.T) {
	for text, want := range map[string]string{
		"\x1b[2J":                          "?[2J",
		"\x1b]0;title\x07":                 "?]0;title?",
		"a\nb\tc\x00\x7f":                  "a?b?c??",
		"\u009b31m\u0085":                  "?31m?",
		"\xff":                             "?",
		"\u202eexe.gnp":                    "?exe.gnp",
		"a\u2028b\u2029c\u00a0d":           "a?b?c?d",
		"java\u200b":                       "java?",
		"java\ufe0f":                       "java?",
		"java\u3164\u2800\uffa0\u115f":     "java????",
		"java\U000e0041\U000e0100\u034f":   "java???",
		"\u0301a":                          "?a",
		"e" + strings.Repeat("\u0301", 50): "e\u0301\u0301\u0301",
		"日本 café ✓":                        "日本 café ✓",
	} {
		assert.Equal(t, want, Clean(text), "%q", text)
	}
	const bidirectional = "\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069" // Unicode, annex 9, table 3
	assert.Equal(t, strings.Repeat("?", 12), Clean(bidirectional))
}

func TestAWriterCleansEachLine(t *testing.T) {
	var out bytes.Buffer
	w := Writer(&out)
	n, err := w.Write([]byte("a\x1b[2J\n\n\u202eb\r\n"))
	require.NoError(t, err)
	assert.Equal(t, 13, n)
	assert.Equal(t, "a?[2J\n\n?b?\n", out.String())
}
