// SPDX-License-Identifier: Apache-2.0

package report

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The example and the text of the page have all fields, and the example has no others.
func TestThePageHasTheFieldsOfTheDocuments(t *testing.T) {
	page, err := os.ReadFile("../../../../docs/command-line.md")
	require.NoError(t, err)
	_, section, _ := strings.Cut(string(page), "## energy measure")
	section, _, _ = strings.Cut(section, "\n## ")
	var documents strings.Builder
	for _, r := range reports() {
		documents.WriteString(written(t, r.WriteJSON))
	}
	field := regexp.MustCompile(`"(\w+)":`)
	for _, f := range field.FindAllStringSubmatch(documents.String(), -1) {
		assert.Regexp(t, "[`\"]"+f[1]+"(\\[\\])?[`\"]", section)
	}
	for _, f := range field.FindAllString(section, -1) {
		found := strings.Contains(documents.String(), f) // assert.Contains would print all documents
		assert.True(t, found, "no document has %s", f)
	}
}
