// SPDX-License-Identifier: Apache-2.0

package durations

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/config/configopaque"
	"go.opentelemetry.io/collector/config/configoptional"
	"go.opentelemetry.io/collector/confmap"
	"go.yaml.in/yaml/v3"
)

type kind string

type Part struct {
	Max      int           `mapstructure:"max"`
	Share    float64       `mapstructure:"share"`
	Interval time.Duration `mapstructure:"interval"`
}

type settings struct {
	Part     `mapstructure:",squash"`
	Name     string                        `mapstructure:"name"`
	On       bool                          `mapstructure:"on"`
	Kinds    []kind                        `mapstructure:"kinds"`
	Parts    []Part                        `mapstructure:"parts"`
	ByName   map[string]Part               `mapstructure:"by_name"`
	Optional configoptional.Optional[Part] `mapstructure:"optional"`
	ID       *component.ID                 `mapstructure:"id"`
	Password configopaque.String           `mapstructure:"password"`
	Own      own                           `mapstructure:"own"`
}

// own is a section that may also be a word.
type own struct {
	Value float64 `mapstructure:"value"`
}

func (*own) UnmarshalScalar(confmap.ScalarValue) error { return nil }

func decode(t *testing.T, text string) error {
	t.Helper()
	var values map[string]any
	require.NoError(t, yaml.Unmarshal([]byte(text), &values))
	return Unmarshal(confmap.NewFromStringMap(values), &settings{Optional: configoptional.Default(Part{})})
}

func TestTypeErrorsHaveTheKeyAndTheValue(t *testing.T) {
	for text, want := range map[string]string{
		"max: abc":                          `max: must be a number, is "abc"`,
		"max: true":                         `max: must be a number, is true`,
		"share: [1]":                        `share: must be a number, is a list`,
		"interval: soon":                    `interval: must be a duration such as 500ms, 5s or 2m, is "soon"`,
		"interval: \"5\"":                   `interval: "5" has no unit; write 5s`,
		"interval: [5s]":                    `interval: must be a duration such as 500ms, 5s or 2m, is a list`,
		"interval: true":                    `interval: must be a duration such as 500ms, 5s or 2m, is true`,
		"name: 5":                           `name: must be a string, is 5`,
		"name: {a: b}":                      `name: must be a string, is a section with keys`,
		"on: maybe":                         `on: must be true or false, is "maybe"`,
		"kinds: package":                    `kinds: must be a list, is "package"`,
		"kinds: [a, [b]]":                   `kinds::1: must be a string, is a list`,
		"parts: [{max: 1}, {max: x}]":       `parts::1::max: must be a number, is "x"`,
		"by_name: {a.b: {max: x}}":          `by_name::a.b::max: must be a number, is "x"`,
		"by_name: 3":                        `by_name: must be a section with keys, is 3`,
		"optional: {max: x}":                `optional::max: must be a number, is "x"`,
		"max: a\nshare: b":                  "max: must be a number, is \"a\"\nshare: must be a number, is \"b\"",
		"max: a\nmex: 1":                    "max: must be a number, is \"a\"\n'durations.settings' has invalid keys: mex",
		"max: a\nown: word":                 `max: must be a number, is "a"`,
		"max: " + strings.Repeat("a", 2000): `max: must be a number, is "` + strings.Repeat("a", maxShown) + `..."`,
	} {
		assert.EqualError(t, decode(t, text), want, text)
	}
}

func TestTypeErrorsOfSecretsHaveNoValue(t *testing.T) {
	for _, text := range []string{"password: [hunter2]", "password: [hunter2]\nmax: a", "password: 4711\nmax: a"} {
		err := decode(t, text)
		require.ErrorContains(t, err, "password", text)
		assert.NotContains(t, err.Error(), "hunter2")
		assert.NotContains(t, err.Error(), "4711")
	}
}

func TestOtherErrorsStay(t *testing.T) {
	assert.ErrorContains(t, decode(t, "mex: 1"), "'durations.settings' has invalid keys: mex")
	assert.ErrorContains(t, decode(t, "id: /b"), "id")
	assert.NoError(t, decode(t, "{max: 1, share: 2, interval: 5s, name: a, on: true, kinds: [a], optional: {max: 3}, id: a/b, password: c}"))
}
