// SPDX-License-Identifier: Apache-2.0

package web

import (
	"encoding/json"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func reportOf(t *testing.T, document any) string {
	t.Helper()
	var b strings.Builder
	require.NoError(t, WriteReport(&b, "run", document))
	return b.String()
}

// between returns the texts between two marks.
func between(text, begin, end string) (texts []string) {
	for _, part := range strings.Split(text, begin)[1:] {
		inside, _, _ := strings.Cut(part, end)
		texts = append(texts, inside)
	}
	return texts
}

func TestHostileNamesStayDataOfAReport(t *testing.T) {
	hostile := []string{"</script><script>alert(1)</script>", "<!--<script>", "</style>", "\u2028\u202e]]>", "__proto__"}
	page := reportOf(t, hostile)
	assert.Len(t, between(page, "<script", ">"), 2)
	assert.Equal(t, 1, strings.Count(page, "<style")+strings.Count(page, "<!--"))
	data, err := ReadReport([]byte(page))
	require.NoError(t, err)
	want, err := json.Marshal(hostile)
	require.NoError(t, err)
	assert.Equal(t, string(want), string(data))

	policy := between(page, `http-equiv="Content-Security-Policy" content="`, `"`)[0]
	script, style := between(page, "<script>", "</script>")[0], between(page, "<style>", "</style>")[0]
	assert.Equal(t, "default-src 'none'; img-src data:; script-src "+hashOf(script)+"; style-src "+hashOf(style)+
		"; base-uri 'none'; form-action 'none'; require-trusted-types-for 'script'; trusted-types 'none'", policy)
	assert.NotRegexp(t, " (style|onclick)=", page, "the policy blocks attributes of the page")
}

func TestPagesAreSmallAndNameNoOtherAddress(t *testing.T) {
	live := read("index.html") + read("style.css") + script(liveFiles)
	assert.LessOrEqual(t, len(live), 60_000)
	report := reportOf(t, nil)
	assert.LessOrEqual(t, len(report), 150_000)
	for _, page := range []string{live, report} {
		page = strings.ReplaceAll(page, "http://www.w3.org/2000/svg", "")
		assert.Empty(t, regexp.MustCompile(`(?i)\w*:?//[a-z0-9][-a-z0-9.]+\.[a-z]|url\([^#)]|@import`).FindString(page))
		assert.Empty(t, regexp.MustCompile(`(?i)\.(inner|outer)HTML|insertAdjacentHTML|document\.write|\beval\(|new Function`).FindString(page))
	}
}
