// SPDX-License-Identifier: Apache-2.0

package web

import (
	"encoding/json"
	"io/fs"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// hostile are names that end elements, begin comments or scripts, or change the direction of text.
var hostile = []string{"</script><script>alert(1)</script>", "<!--<script>", "</style>", "\u2028\u202e]]>", "__proto__"}

func reportOf(t *testing.T, document any) string {
	t.Helper()
	var b strings.Builder
	if err := WriteReport(&b, "run", document); err != nil {
		t.Fatal(err)
	}
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
	page := reportOf(t, map[string]any{"command": hostile})
	if scripts := between(page, "<script", ">"); len(scripts) != 2 {
		t.Errorf("scripts: %q", scripts)
	}
	if n := strings.Count(page, "<style") + strings.Count(page, "<!--"); n != 1 {
		t.Errorf("%d styles and comments, want 1", n)
	}
	var back struct {
		Kind string
		Data struct{ Command []string }
	}
	data := between(page, `id="data">`, "</script>")[0]
	if err := json.Unmarshal([]byte(data), &back); err != nil {
		t.Fatal(err)
	}
	if back.Kind != "run" || !slices.Equal(back.Data.Command, hostile) {
		t.Errorf("%+v", back)
	}
}

func TestThePolicyOfAReportAllowsItsOwnScriptAndStyleOnly(t *testing.T) {
	page := reportOf(t, map[string]any{"command": hostile})
	policy := between(page, `http-equiv="Content-Security-Policy" content="`, `"`)[0]
	script, style := between(page, "<script>", "</script>")[0], between(page, "<style>", "</style>")[0]
	want := "default-src 'none'; img-src data:; script-src " + hashOf(script) + "; style-src " + hashOf(style) +
		"; base-uri 'none'; form-action 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
	if policy != want {
		t.Errorf("%s\nwant %s", policy, want)
	}
	if strings.Contains(page, " style=") || strings.Contains(page, " onclick=") {
		t.Error("the policy blocks attributes of the page")
	}
}

func TestPagesAreSmallAndNameNoOtherAddress(t *testing.T) {
	live := read("index.html") + read("style.css") + script(liveFiles)
	for _, tt := range []struct {
		name, page string
		most       int
	}{{"live page", live, 60_000}, {"report", reportOf(t, nil), 150_000}} {
		if n := len(tt.page); n > tt.most {
			t.Errorf("the %s has %d bytes, more than %d", tt.name, n, tt.most)
		}
		page := strings.ReplaceAll(tt.page, "http://www.w3.org/2000/svg", "")
		for _, address := range regexp.MustCompile(`(?i)\w*:?//[a-z0-9][-a-z0-9.]+\.[a-z]|url\([^#)]|@import`).FindAllString(page, -1) {
			t.Errorf("the %s names %s", tt.name, address)
		}
		if made := regexp.MustCompile(`(?i)\.(inner|outer)HTML|insertAdjacentHTML|document\.write|\beval\(|new Function`).FindString(page); made != "" {
			t.Errorf("the %s has %s", tt.name, made)
		}
	}
}

func TestEachFileOfThePageIsServed(t *testing.T) {
	all := slices.Concat(liveFiles, reportFiles, []string{"index.html", "style.css"})
	entries, err := fs.ReadDir(files, "page")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if !slices.Contains(all, e.Name()) {
			t.Errorf("%s is in no page", e.Name())
		}
	}
}
