// SPDX-License-Identifier: Apache-2.0

package durations

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/config/configopaque"
	"go.opentelemetry.io/collector/config/configoptional"
	"go.opentelemetry.io/collector/confmap"
	"go.yaml.in/yaml/v3"
)

type settings struct {
	Number   float64                                 `mapstructure:"number"`
	Count    int                                     `mapstructure:"count"`
	On       bool                                    `mapstructure:"on"`
	Text     string                                  `mapstructure:"text"`
	Duration time.Duration                           `mapstructure:"duration"`
	Section  configoptional.Optional[section]        `mapstructure:"section"`
	Account  account                                 `mapstructure:"account"`
	Fraction configoptional.Optional[float64]        `mapstructure:"fraction"`
	List     []section                               `mapstructure:"list"`
	Kinds    []kind                                  `mapstructure:"kinds"`
	Token    configopaque.String                     `mapstructure:"token"`
	Sections configoptional.Optional[map[string]int] `mapstructure:"sections"`
}

type kind string

type section struct {
	Share float64 `mapstructure:"share"`
}

type account struct {
	Password configopaque.String `mapstructure:"password"`
}

func decode(t *testing.T, text string) error {
	t.Helper()
	values := map[string]any{}
	require.NoError(t, yaml.Unmarshal([]byte(text), &values))
	return Decode(confmap.NewFromStringMap(values), &settings{Section: configoptional.Default(section{})})
}

func TestErrorsContainTheValue(t *testing.T) {
	for text, want := range map[string]string{
		"number: high":                     `number: must be a number, is "high"`,
		"number: [1]":                      "number: must be a number, is [1]",
		"count: 1.5":                       "count: must be an integer, is 1.5",
		"count: many":                      `count: must be an integer, is "many"`,
		"on: perhaps":                      `on: must be true or false, is "perhaps"`,
		"text: 1.5":                        "text: must be a text, is 1.5",
		"text: 5":                          "text: must be a text, is 5",
		"text: {a: 1}":                     "text: must be a text, is map[a:1]",
		"duration: soon":                   `duration: must be a duration such as 10s, is "soon"`,
		"duration: true":                   "duration: must be a duration such as 10s, is true",
		"kinds: package":                   `kinds: must be a list, is "package"`,
		"kinds: 5":                         "kinds: must be a list, is 5",
		"duration: 10":                     "duration: 10 has no unit; write 10s",
		"section: 3":                       "section: must be a section, is 3",
		"section: {share: half}":           `section::share: must be a number, is "half"`,
		"fraction: half":                   `fraction: must be a number, is "half"`,
		"list: [{share: 1}, {share: all}]": `list::1::share: must be a number, is "all"`,
		"{number: a, count: b}":            "number: must be a number, is \"a\"\ncount: must be an integer, is \"b\"",
	} {
		assert.EqualError(t, decode(t, text), want, text)
	}
	assert.NoError(t, decode(t, "{number: 1, count: 2.0, text: a, duration: 1m, section: {share: 1}, fraction: 1}"))
}

func TestErrorsDoNotContainSecrets(t *testing.T) {
	for _, text := range []string{"account: TOPSECRET", "{token: [TOPSECRET], number: a}", "account: {password: [TOPSECRET]}"} {
		err := decode(t, text)
		require.Error(t, err, text)
		assert.NotContains(t, err.Error(), "TOPSECRET", text)
	}
}
