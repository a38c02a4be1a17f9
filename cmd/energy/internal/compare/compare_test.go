// SPDX-License-Identifier: Apache-2.0

package compare

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestStepsAlternate(t *testing.T) {
	var order strings.Builder
	for step := range (Plan{Runs: 3, Warmup: 1, Two: true}).Steps() {
		if step.Warmup {
			order.WriteString("w")
		}
		order.WriteString([]string{"A", "B"}[step.Command])
	}
	assert.Equal(t, "wAwBABBAAB", order.String())
	assert.Equal(t, "warm-up run 1 of 2", Plan{Runs: 3, Warmup: 2}.Name(Step{Warmup: true}))
	assert.Equal(t, "run 3 of 3 of B", Plan{Runs: 3, Two: true}.Name(Step{Run: 2, Command: 1}))
	assert.Len(t, slices.Collect(Plan{Runs: 4, Warmup: 2}.Steps()), 6)
}

func TestWords(t *testing.T) {
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
		words, byShell, err := Words(line)
		require.NoError(t, err, line)
		if want == nil {
			assert.True(t, byShell, line)
			want = []string{"sh", "-c", line}
		}
		assert.Equal(t, want, words, line)
	}
	for _, line := range []string{"", "  \t", "\n"} {
		_, _, err := Words(line)
		assert.ErrorIs(t, err, ErrNoCommand)
	}
}
