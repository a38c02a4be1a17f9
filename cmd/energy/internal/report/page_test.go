// SPDX-License-Identifier: Apache-2.0

package report

import (
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestThePageHasEveryFieldOfTheDocuments(t *testing.T) {
	page, err := os.ReadFile("../../../../docs/command-line.md")
	require.NoError(t, err)
	var check func(of reflect.Type)
	check = func(of reflect.Type) {
		for of.Kind() == reflect.Slice || of.Kind() == reflect.Pointer {
			of = of.Elem()
		}
		if of.Kind() != reflect.Struct || of.PkgPath() == "time" {
			return
		}
		for f := range of.Fields() {
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			assert.True(t, strings.Contains(string(page), "`"+name+"`") || strings.Contains(string(page), "`"+name+"[]`"), name)
			check(f.Type)
		}
	}
	check(reflect.TypeFor[document]())
	check(reflect.TypeFor[several]())
	assert.True(t, strings.Contains(string(page), "`"+strings.Join(csvHead, ",")+"`"), csvHead)
}
