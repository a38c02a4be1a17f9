// SPDX-License-Identifier: Apache-2.0

package httpmeter

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func mustPoint(t testing.TB, text string) Pointer {
	t.Helper()
	p, err := ParsePointer(text)
	require.NoError(t, err)
	return p
}

// The document and the pointers of RFC 6901, section 5, and a name that is unescaped once.
func TestPointersOfTheRFCFindWhatItSays(t *testing.T) {
	document := json.RawMessage(`{"foo": ["bar", "baz"], "": 0, "a/b": 1, "c%d": 2, "e^f": 3, "g|h": 4, "i\\j": 5, "k\"l": 6, " ": 7, "m~n": 8, "~1": 9}`)
	for _, c := range [][2]string{
		{"", string(document)}, {"/foo", `["bar", "baz"]`}, {"/foo/0", `"bar"`},
		{"/", "0"}, {"/a~1b", "1"}, {"/c%d", "2"}, {"/e^f", "3"}, {"/g|h", "4"}, {`/i\j`, "5"}, {`/k"l`, "6"}, {"/ ", "7"}, {"/m~0n", "8"}, {"/~01", "9"},
	} {
		got, err := mustPoint(t, c[0]).Find(document)
		require.NoError(t, err, c[0])
		assert.Equal(t, c[1], string(got), c[0])
	}
}

func TestAnythingButAPointerIsRefused(t *testing.T) {
	for _, text := range []string{"total", "$.total", "#/total", "/a~", "/~2", "/a~~0"} {
		_, err := ParsePointer(text)
		assert.Error(t, err, text)
	}
}

func TestAPointerThatFindsNothingSaysWhy(t *testing.T) {
	document := json.RawMessage(`{"meters": [{"total": 1}], "none": null}`)
	for pointer, want := range map[string]string{
		"/meter":                       `the answer has no member "meter"`,
		"/meters/1":                    "the array has no element 1",
		"/meters/-":                    `"-" is not an array index`,
		"/meters/00":                   `"00" is not an array index`,
		"/meters/+0":                   `"+0" is not an array index`,
		"/meters/total":                `"total" is not an array index`,
		"/meters/99999999999999999999": `"99999999999999999999" is not an array index`,
		"/meters/0/total/x":            `the answer has no value that could contain "x"`,
		"/none/x":                      `the answer has no value that could contain "x"`,
	} {
		_, err := mustPoint(t, pointer).Find(document)
		assert.EqualError(t, err, want, pointer)
	}
}

// A pointer finds the value that it was built for, whatever the names are.
func FuzzPointer(f *testing.F) {
	f.Add("/a~1b/0", `{"a/b": [1]}`)
	f.Add("/", `{"": 0}`)
	f.Add("/x", `[[[[]]]]`)
	f.Fuzz(func(t *testing.T, text, body string) {
		p, err := ParsePointer(text)
		if err != nil {
			return
		}
		_, _ = p.Find(json.RawMessage(body)) // no panic
		nested := json.RawMessage("1")
		for _, token := range slices.Backward(p.tokens) {
			name, err := json.Marshal(token)
			if err != nil || !utf8.ValidString(token) {
				return
			}
			nested = fmt.Appendf(nil, "{%s: %s}", name, nested)
		}
		found, err := p.Find(nested)
		if err != nil || string(found) != "1" {
			t.Errorf("%q found %s, %v in %s", text, found, err, nested)
		}
		escaper := strings.NewReplacer("~", "~0", "/", "~1")
		var again strings.Builder
		for _, token := range p.tokens {
			again.WriteString("/" + escaper.Replace(token))
		}
		assert.Equal(t, text, again.String())
	})
}
