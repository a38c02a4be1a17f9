// SPDX-License-Identifier: Apache-2.0

package training

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func FuzzProcessors(f *testing.F) {
	f.Add([]byte("processor\t: 0\nvendor_id\t: V\nmodel name\t: A CPU\nmicrocode\t: 0x1\n\nprocessor\t: 1\nmicrocode\t: x\n"))
	f.Add([]byte("processor\t: 0\nCPU implementer\t: 0x41\nCPU part\t: 0xd0c\nflags: a:b:c\n"))
	f.Add([]byte("model name: before any processor\nprocessor\nprocessor:\n:\n\xff: \xfe\n"))
	f.Add(bytes.Repeat([]byte("x"), 100_000))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, info []byte) {
		lines := parseProcessors(info)
		var number int
		_, err := fmt.Sscanf(lines[len(lines)-1], "processors %d", &number)
		require.NoError(t, err)
		require.LessOrEqual(t, number, bytes.Count(info, []byte("processor")))
		for _, line := range lines[:len(lines)-1] {
			require.Positive(t, number)
			require.NotContains(t, line, "\n")
			require.True(t, slices.ContainsFunc(identifying, func(key string) bool {
				value, ok := strings.CutPrefix(line, key+" ")
				return ok && bytes.Contains(info, []byte(key)) && bytes.Contains(info, []byte(value))
			}), line)
		}
		again := parseProcessors(append(slices.Clone(info), "\nprocessor: 9\nmodel name: another\n"...))
		if number > 0 { // the rest of a long line is not read
			require.Equal(t, lines[:len(lines)-1], again[:len(again)-1], "only the first one counts")
		}
	})
}
