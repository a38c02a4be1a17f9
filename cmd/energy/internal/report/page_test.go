// SPDX-License-Identifier: Apache-2.0

package report

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestThePageHasEveryFieldOfTheDocuments(t *testing.T) {
	page, err := os.ReadFile("../../../../docs/command-line.md")
	require.NoError(t, err)
	var check func(value any)
	check = func(value any) {
		switch v := value.(type) {
		case []any:
			for _, item := range v {
				check(item)
			}
		case map[string]any:
			for name, item := range v {
				assert.True(t, strings.Contains(string(page), "`"+name+"`") || strings.Contains(string(page), "`"+name+"[]`"), name)
				check(item)
			}
		}
	}
	for _, r := range reports() {
		var d any
		require.NoError(t, json.Unmarshal([]byte(written(t, r.WriteJSON)), &d))
		check(d)
	}
	assert.Contains(t, string(page), "`"+strings.Join(csvHead(), ",")+"`")
}
