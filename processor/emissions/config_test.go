// SPDX-License-Identifier: Apache-2.0

package emissions

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/jsonschema-go/jsonschema"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/confmap"
	"go.opentelemetry.io/collector/confmap/confmaptest"
	"go.yaml.in/yaml/v3"

	"github.com/energyreceiver/energyreceiver/internal/test/durationtest"
)

// loadExample returns the processors of testdata/config.yaml.
func loadExample(t *testing.T) map[string]*confmap.Conf {
	t.Helper()
	all, err := confmaptest.LoadConf(filepath.Join("testdata", "config.yaml"))
	require.NoError(t, err)
	processors := map[string]*confmap.Conf{}
	for id := range all.ToStringMap() {
		processors[id], err = all.Sub(id)
		require.NoError(t, err)
	}
	return processors
}

func TestExampleConfigurationIsValid(t *testing.T) {
	for id, conf := range loadExample(t) {
		cfg := createDefaultConfig().(*Config)
		require.NoError(t, conf.Unmarshal(cfg), id)
		require.NoError(t, confmap.Validate(cfg), id)
	}
}

func TestWrongSettingsAreNamed(t *testing.T) {
	for text, want := range map[string]string{
		"{intensity: 1, pue: high}":                                      "pue: must be a number",
		"intensity: {grid: [5]}":                                         "intensity::grid: must be a string",
		"intensity: {max_age: soon}":                                     "intensity::max_age: must be a duration such as 10s",
		"pue: 1.2":                                                       "intensity or embodied must be set: there is no default",
		"{intensity: 1, pue: 0.9}":                                       "pue: must be from 1 to 10, is 0.9",
		"{intensity: 1, pue: 11}":                                        "pue: must be from 1 to 10, is 11",
		"{intensity: 1, pue: .nan}":                                      "pue: must be from 1 to 10, is NaN",
		"{intensity: 1, max_series: 0}":                                  "max_series: must be from 1 to 10000000, is 0",
		"{intensity: 1, max_staleness: 1s}":                              "max_staleness: must be at least 1m0s, is 1s",
		"embodied: {lifespan: 35040h}":                                   "total: must be above 0 g and at most 1e+12 g, is 0",
		"embodied: {total: 1}":                                           "lifespan: must be from 1h to 876000h, such as 35040h for four years, is 0s",
		"embodied: {total: 1, lifespan: 1h, share: 2}":                   "share: must be above 0 and at most 1, is 2",
		"embodied: {total: -1, lifespan: 1h}":                            "total: must be above 0 g and at most 1e+12 g, is -1",
		"{intensity: 1, metrics: {electricity.joules: {enabled: true}}}": "unknown settings: electricity.joules",
		"{intensity: 1, currency: EUR, p: 1}":                            "unknown settings: currency, p",
	} {
		_, err := load(t, text)
		assert.ErrorContains(t, err, want, text)
	}
	cfg, err := load(t, "embodied: {total: 1, lifespan: 1h}")
	require.NoError(t, err)
	assert.InDelta(t, 1, cfg.Embodied.Get().Share, 0, "the whole machine by default")
}

// A section with enabled: false counts as not set, whatever it contains.
func TestSectionsCanBeDisabled(t *testing.T) {
	schema, err := readSchema(t).Resolve(nil)
	require.NoError(t, err)
	for text, want := range map[string][]string{ // the source of the intensity, and embodied
		"intensity: {electricity_maps: {enabled: false}, grid: FRA}":                                  {"grid"},
		"intensity: {watttime: {enabled: false, region: A}, uk_carbon_intensity: {enabled: true}}":    {"uk_carbon_intensity"},
		"intensity: {uk_carbon_intensity: {enabled: false}, prometheus: {enabled: false}, value: 56}": {"value"},
		"{intensity: 56, embodied: {enabled: false}}":                                                 {"value"},
		"{intensity: {enabled: false, grid: FRA}, embodied: {total: 1, lifespan: 1h}}":                {"embodied"},
	} {
		cfg, err := load(t, text)
		require.NoError(t, err, text)
		var got []string
		if intensity := cfg.Intensity.Get(); intensity != nil {
			source, err := intensity.source()
			require.NoError(t, err, text)
			got = append(got, source.name)
		}
		if cfg.Embodied.HasValue() {
			got = append(got, "embodied")
		}
		assert.Equal(t, want, got, text)
		settings := map[string]any{}
		require.NoError(t, yaml.Unmarshal([]byte(text), &settings))
		assert.NoError(t, schema.Validate(settings), text)
	}
	_, err = load(t, "intensity: {file: {enabled: false, path: /etc/intensity.csv}}")
	assert.ErrorContains(t, err, "intensity: one of value, grid, electricity_maps,")
}

func TestSchemaAcceptsTheExamples(t *testing.T) {
	schema, err := readSchema(t).Resolve(&jsonschema.ResolveOptions{ValidateDefaults: true})
	require.NoError(t, err)
	for id, conf := range loadExample(t) {
		assert.NoError(t, schema.Validate(conf.ToStringMap()), id)
	}
	for name, settings := range map[string]map[string]any{
		"misspelled":            {"intensities": 1},
		"misspelled inside":     {"intensity": map[string]any{"values": 1}},
		"no such value":         {"intensity": map[string]any{"value": 1, "accounting": "both"}},
		"not a duration":        {"max_staleness": "soon"},
		"no such metric":        {"metrics": map[string]any{"electricity.joules": map[string]any{"enabled": true}}},
		"an address is missing": {"intensity": map[string]any{"prometheus": map[string]any{"query": "up"}}},
	} {
		assert.Error(t, schema.Validate(settings), name)
	}
}

func TestSchemaAndExampleHaveEverySetting(t *testing.T) {
	want := settings(reflect.TypeFor[Config](), "")
	schema := readSchema(t)
	got := map[string]*jsonschema.Schema{}
	schemaSettings(schema, schema, "", got)
	for path := range got {
		assert.Contains(t, want, path, "of the schema")
	}
	used := map[string]bool{}
	for _, conf := range loadExample(t) {
		usedSettings(conf.ToStringMap(), "", used)
	}
	for _, path := range want {
		assert.Contains(t, got, path, "of the code")
		assert.True(t, used[path], "%s is missing in testdata/config.yaml", path)
	}
}

func TestSchemaHasTheDefaults(t *testing.T) {
	schema := readSchema(t)
	cfg := createDefaultConfig().(*Config)
	for name, want := range map[string]any{
		"pue": cfg.PUE, "max_series": float64(cfg.MaxSeries), "max_staleness": cfg.MaxStaleness,
	} {
		var got any
		require.NoError(t, json.Unmarshal(schema.Properties[name].Default, &got))
		if text, ok := got.(string); ok {
			var err error
			got, err = time.ParseDuration(text)
			require.NoError(t, err)
		}
		assert.Equal(t, want, got, name)
	}
}

func readSchema(t *testing.T) *jsonschema.Schema {
	t.Helper()
	text, err := os.ReadFile("config.schema.json")
	require.NoError(t, err)
	schema := new(jsonschema.Schema)
	require.NoError(t, json.Unmarshal(text, schema))
	return schema
}

// settings returns the settings of a struct and of the structs in it, but not those of the collector.
func settings(of reflect.Type, path string) (all []string) {
	for field := range of.Fields() {
		name, flags, _ := strings.Cut(field.Tag.Get("mapstructure"), ",")
		from := field.Type.PkgPath()
		switch ours := !strings.HasPrefix(from, "go.opentelemetry.io/collector/config/") || strings.HasPrefix(field.Type.Name(), "Optional[") ||
			strings.HasSuffix(from, "/configopaque"); {
		case !field.IsExported() || name == "-" || !ours:
		case strings.Contains(flags, "squash"):
			all = append(all, settings(field.Type, path)...)
		default:
			all = append(all, path+name)
			if inner := structIn(field.Type); inner != nil && !strings.HasPrefix(name, "electricity.") && name != "host.embodied.emissions" {
				all = append(all, settings(inner, path+name+"::")...)
			}
		}
	}
	return all
}

// structIn returns the struct that a setting is or that it may be. It
// returns nil if there is none.
func structIn(t reflect.Type) reflect.Type {
	if get, ok := reflect.PointerTo(t).MethodByName("Get"); ok && strings.HasPrefix(t.Name(), "Optional[") {
		t = get.Type.Out(0)
	}
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t.Kind() == reflect.Struct {
		return t
	}
	return nil
}

// schemaSettings notes the settings of a schema, without the settings of HTTP clients.
func schemaSettings(root, s *jsonschema.Schema, path string, all map[string]*jsonschema.Schema) {
	if def, ok := strings.CutPrefix(s.Ref, "#/$defs/"); ok && def != "metric" && def != "duration" {
		s = root.Defs[def]
	}
	for _, or := range s.OneOf {
		schemaSettings(root, or, path, all)
	}
	if s.Items != nil {
		schemaSettings(root, s.Items, path, all)
	}
	for name, property := range s.Properties {
		if property.Ref == "#/$defs/enabled" { // of configoptional, in every section
			continue
		}
		all[path+name] = property
		schemaSettings(root, property, path+name+"::", all)
	}
}

var update = flag.Bool("update", false, "write the table of settings in README.md")

// TestReadmeHasTheSettings compares the table of settings in README.md with config.schema.json.
func TestReadmeHasTheSettings(t *testing.T) {
	schema := readSchema(t)
	all := map[string]*jsonschema.Schema{}
	schemaSettings(schema, schema, "", all)
	table := "| setting | description |\n|---|---|\n"
	for _, path := range settings(reflect.TypeFor[Config](), "") {
		if strings.HasPrefix(path, "metrics::") {
			continue
		}
		s, def := all[path], ""
		if len(s.Default) > 0 {
			def = " Default: " + strings.Trim(string(s.Default), `"`) + "."
		}
		require.NotEmpty(t, s.Description, path)
		table += fmt.Sprintf("| `%s` | %s%s |\n", path, s.Description, def)
	}
	const begin, end = "<!-- begin settings: go generate -->\n", "<!-- end settings -->\n"
	text, err := os.ReadFile("README.md")
	require.NoError(t, err)
	before, rest, ok := strings.Cut(string(text), begin)
	require.True(t, ok)
	got, after, ok := strings.Cut(rest, end)
	require.True(t, ok)
	if *update {
		require.NoError(t, os.WriteFile("README.md", []byte(before+begin+table+end+after), 0o600))
		return
	}
	assert.Equal(t, table, got, "go generate writes it")
}

// usedSettings notes the settings of a configuration.
func usedSettings(value any, path string, all map[string]bool) {
	switch value := value.(type) {
	case map[string]any:
		for name, v := range value {
			all[path+name] = true
			usedSettings(v, path+name+"::", all)
		}
	case []any:
		for _, v := range value {
			usedSettings(v, path, all)
		}
	}
}

func TestEveryDurationNeedsAUnit(t *testing.T) {
	keys := durationtest.NeedUnits(t, func() any { return createDefaultConfig() })
	for _, key := range []string{
		"max_staleness", "embodied::lifespan", "intensity::max_age", "intensity::prometheus::poll_interval", "intensity::watttime::timeout",
	} {
		assert.Contains(t, keys, key)
	}
}
