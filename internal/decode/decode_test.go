// SPDX-License-Identifier: Apache-2.0

package decode

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/config/configoptional"
	"go.opentelemetry.io/collector/confmap"
	"go.yaml.in/yaml/v3"
)

type example struct {
	Poll    `mapstructure:",squash"`
	Section configoptional.Optional[Poll] `mapstructure:"section"`
	List    []*Poll                       `mapstructure:"list"`
	Map     map[string]Poll               `mapstructure:",remain" keys:"more/NAME"`
	Other   map[string]struct {
		Wait time.Duration `mapstructure:"wait"`
	} `mapstructure:",remain" keys:"other/NAME"`
}

type Poll struct {
	Every time.Duration `mapstructure:"every"`
	Max   uint16        `mapstructure:"max"`
}

func decode(t *testing.T, text string) error {
	t.Helper()
	values := map[string]any{}
	require.NoError(t, yaml.Unmarshal([]byte(text), &values))
	return Into(confmap.NewFromStringMap(values), &example{})
}

func TestADurationWithoutAUnitAndAFractionOfAnIntegerAreErrorsWhereverTheyAre(t *testing.T) {
	for text, want := range map[string]string{
		"every: 10":                           "every: 10 has no unit; write 10s",
		"every: 0.5":                          "every: 0.5 has no unit; write 0.5s",
		"section: {every: 10}":                "section::every: 10 has no unit; write 10s",
		"list: [{every: 1s}, {every: 2}]":     "list::1::every: 2 has no unit; write 2s",
		"more: {every: 3}":                    "more::every: 3 has no unit; write 3s",
		"other/a: {every: 1, wait: 3}":        "other/a::wait: 3 has no unit; write 3s",
		"{every: 1, list: [{every: 2}]}":      "every: 1 has no unit; write 1s\nlist::0::every: 2 has no unit; write 2s",
		"max: 2.7":                            "max: must be an integer, is 2.7",
		"more: {max: 72.9}":                   "more::max: must be an integer, is 72.9",
		"{max: 2.0, section: {max: 1e3}}":     "",
		"{every: 10s, section: , list: }":     "",
		"{every: 0, section: {every: 1h30m}}": "",
	} {
		if err := decode(t, text); want == "" {
			assert.NoError(t, err, text)
		} else {
			assert.EqualError(t, err, want, text)
		}
	}
}
