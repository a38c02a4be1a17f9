// SPDX-License-Identifier: Apache-2.0

package measure

import (
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const page = "../../../../docs/command-line.md"

func TestThePageHasEveryFieldOfTheDocument(t *testing.T) {
	text, err := os.ReadFile(page)
	require.NoError(t, err)
	var check func(of reflect.Type)
	check = func(of reflect.Type) {
		for f := range of.Fields() {
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			inner := f.Type
			if inner.Kind() == reflect.Slice {
				inner = inner.Elem()
			}
			if inner.Kind() == reflect.Struct && f.Type.Kind() == reflect.Slice {
				check(inner)
			}
			assert.Regexp(t, "`"+name+`(\[\])?`+"`", string(text), name)
		}
	}
	check(reflect.TypeFor[document]())
	assert.Contains(t, string(text), strings.Join(csvHead, ","))
}
