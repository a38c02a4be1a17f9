// SPDX-License-Identifier: Apache-2.0

package config

import (
	"encoding/json"
	"os"
	"testing"

	"github.com/google/jsonschema-go/jsonschema"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Package configdoc generates the schema.
func TestSchemaAcceptsTheExamples(t *testing.T) {
	text, err := os.ReadFile("../../config.schema.json")
	require.NoError(t, err)
	written := new(jsonschema.Schema)
	require.NoError(t, json.Unmarshal(text, written))
	schema, err := written.Resolve(&jsonschema.ResolveOptions{ValidateDefaults: true})
	require.NoError(t, err)
	for id, conf := range loadExample(t) {
		assert.NoError(t, schema.Validate(conf.ToStringMap()), id)
	}
	meters := func(name string, settings map[string]any) map[string]any {
		return map[string]any{"meters": map[string]any{name: settings}}
	}
	for name, settings := range map[string]map[string]any{
		"misspelled":           {"zone": []any{"package"}},
		"misspelled inside":    {"attribution": map[string]any{"static": "base"}},
		"no such meter":        meters("rapl", map[string]any{}),
		"no such zone":         {"attribution": map[string]any{"static_power": map[string]any{"gpus": "base"}}},
		"no such model":        {"attribution": map[string]any{"static_power": map[string]any{"gpu": "bass"}}},
		"not a duration":       {"window": "fast"},
		"misspelled in a map":  meters("http/a", map[string]any{"endpoint": "http://a", "unit": "W", "zones": "gpu"}),
		"not a number":         {"series": map[string]any{"processes": map[string]any{"max": "all"}}},
		"no such metric":       {"metrics": map[string]any{"process.joules": map[string]any{"enabled": true}}},
		"a model by a word":    {"model": "automatic"},
		"a model of two words": {"model": map[string]any{"idle": "some"}},
	} {
		assert.Error(t, schema.Validate(settings), name)
	}
}
