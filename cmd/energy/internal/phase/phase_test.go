// SPDX-License-Identifier: Apache-2.0

package phase

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestLinesThatBeginPhases(t *testing.T) {
	long := strings.Repeat("x", MaxName)
	for line, want := range map[string]string{
		"begin build": "build", "begin [RUNTIME] warm up\r\n": "[RUNTIME] warm up", "  begin   ä/b:c ": "ä/b:c",
		"begin begin": "begin", "begin end": "end", "end": None, "end\n": None, "begin " + long: long,
	} {
		name, err := Parse(line)
		require.NoError(t, err, line)
		assert.Equal(t, want, name, line)
	}
}

func TestLinesThatBeginNoPhase(t *testing.T) {
	for line, why := range map[string]string{
		"": "expected", "begin": "no name", "begin ": "no name", "begin none": "outside of all phases", "end build": "expected", "Begin build": "expected",
		"begin\tbuild": "expected", "begin a\tb": "cannot be printed", "begin a\x00": "cannot be printed", "begin \xff": "not UTF-8",
		"begin a\u202eb": "cannot be printed", "begin " + strings.Repeat("x", MaxName+1): "longer than 100 bytes", "beginbuild": "expected",
	} {
		_, err := Parse(line)
		assert.ErrorContains(t, err, why, "%q", line)
	}
}
