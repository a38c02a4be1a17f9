// SPDX-License-Identifier: Apache-2.0

package energyreceiver

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/jsonschema-go/jsonschema"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/confmap"
)

func readSchema(t *testing.T) *jsonschema.Schema {
	t.Helper()
	text, err := os.ReadFile("config.schema.json")
	require.NoError(t, err)
	schema := new(jsonschema.Schema)
	require.NoError(t, json.Unmarshal(text, schema))
	return schema
}

func TestSchemaAcceptsTheExamples(t *testing.T) {
	schema, err := readSchema(t).Resolve(&jsonschema.ResolveOptions{ValidateDefaults: true})
	require.NoError(t, err)
	for id, conf := range loadExample(t) {
		assert.NoError(t, schema.Validate(conf.ToStringMap()), id)
	}
	for name, settings := range map[string]map[string]any{
		"misspelled":            {"zone": []any{"package"}},
		"misspelled inside":     {"attribution": map[string]any{"splitt": "base"}},
		"no such value":         {"meter": "rapl"},
		"no such zone":          {"attribution": map[string]any{"splits": map[string]any{"gpus": "base"}}},
		"not a duration":        {"sampling_interval": "fast"},
		"misspelled in a list":  {"http": []any{map[string]any{"name": "a", "endpoint": "http://a", "unit": "W", "zones": "gpu"}}},
		"an address is missing": {"http": []any{map[string]any{"name": "a", "unit": "W"}}},
		"not a number":          {"processes": map[string]any{"max": "all"}},
		"no such metric":        {"metrics": map[string]any{"process.joules": map[string]any{"enabled": true}}},
	} {
		assert.Error(t, schema.Validate(settings), name)
	}
}

func TestSchemaHasEverySettingWithItsTypeDefaultAndValues(t *testing.T) {
	schema := readSchema(t)
	s := &schemaCheck{t: t, defs: schema.Defs}
	s.object("", schema, reflect.ValueOf(createDefaultConfig().(*Config)).Elem())
	assert.Equal(t, []string{
		"attribution::cpu_weight", "attribution::idle", "attribution::idle_among", "attribution::interrupts", "attribution::key", "attribution::keys::package",
		"attribution::memory_size", "attribution::preset", "attribution::scope", "attribution::split", "attribution::splits::package", "cpu_time",
		"http::0::unit", "http::0::zone", "hwmon::sensors::0::zone", "meter", "model::idle", "model::shape", "model::zone", "names::from::0",
		"processes::group_by",
		"zones::0",
	}, slices.Sorted(slices.Values(s.enums)), "settings whose values were compared")
}

// schemaCheck compares the schema with the configuration.
type schemaCheck struct {
	t     *testing.T
	defs  map[string]*jsonschema.Schema
	enums []string
}

// object compares the settings of a struct.
func (s *schemaCheck) object(path string, schema *jsonschema.Schema, v reflect.Value) {
	settings := settingsOf(v)
	properties := maps.Clone(schema.Properties)
	for _, part := range schema.AllOf {
		maps.Copy(properties, s.resolve(path, part).Properties)
	}
	assert.ElementsMatch(s.t, slices.Collect(maps.Keys(settings)), slices.Collect(maps.Keys(properties)), "settings of %q", path)
	for name, v := range settings {
		if property := properties[name]; property != nil {
			s.setting(path+name, property, v)
		}
	}
}

// resolve returns the definition that a schema refers to, or the schema.
func (s *schemaCheck) resolve(path string, schema *jsonschema.Schema) *jsonschema.Schema {
	if def, ok := strings.CutPrefix(schema.Ref, "#/$defs/"); ok {
		schema = s.defs[def]
		require.NotNil(s.t, schema, path)
	}
	if n := len(schema.OneOf); n > 0 { // a short form, then the settings
		return s.resolve(path, schema.OneOf[n-1])
	}
	return schema
}

// isCollectors reports whether a type is one of the collector's own settings, whose parts the schema leaves out.
func isCollectors(t reflect.Type) bool {
	return strings.HasPrefix(t.PkgPath(), "go.opentelemetry.io/collector/config/") && !strings.HasPrefix(t.Name(), "Optional[")
}

// settingsOf returns the fields of a struct by their keys.
func settingsOf(v reflect.Value) map[string]reflect.Value {
	settings := map[string]reflect.Value{}
	for field := range fields(v.Type()) {
		name, flags, _ := strings.Cut(field.Tag.Get("mapstructure"), ",")
		switch {
		case !field.IsExported() || name == "-":
		case strings.Contains(flags, "squash"):
			maps.Copy(settings, settingsOf(v.FieldByIndex(field.Index)))
		default:
			settings[name] = v.FieldByIndex(field.Index)
		}
	}
	return settings
}

// setting compares one setting. v is its default.
func (s *schemaCheck) setting(path string, schema *jsonschema.Schema, v reflect.Value) {
	var fallback any
	if schema.Default != nil {
		require.NoError(s.t, json.Unmarshal(schema.Default, &fallback), path)
	}
	schema = s.resolve(path, schema)
	if get, ok := reflect.PointerTo(v.Type()).MethodByName("Get"); ok && strings.HasPrefix(v.Type().Name(), "Optional[") {
		v = reflect.Zero(get.Type.Out(0).Elem())
	}
	if isCollectors(v.Type()) {
		return
	}
	if len(schema.Enum) > 0 && schema.Type == "string" {
		s.values(path, schema.Enum)
	}
	switch d, isDuration := v.Interface().(time.Duration); {
	case isDuration:
		assert.Equal(s.t, "string", schema.Type, path)
		text, _ := fallback.(string)
		stated, err := time.ParseDuration(text)
		assert.NoError(s.t, err, "default of %s", path)
		assert.Equal(s.t, d, stated, "default of %s", path)
		return
	case v.Type() == reflect.TypeFor[*component.ID](), v.Type() == reflect.TypeFor[component.ID]():
		assert.Equal(s.t, "string", schema.Type, path)
		return
	}
	switch v.Kind() {
	case reflect.Struct:
		assert.Equal(s.t, "object", schema.Type, path)
		s.object(path+"::", schema, v)
	case reflect.Slice:
		assert.Equal(s.t, "array", schema.Type, path)
		s.setting(path+"::0", schema.Items, reflect.Zero(v.Type().Elem()))
		s.fallback(path, fallback, v)
	case reflect.Map:
		assert.Equal(s.t, "object", schema.Type, path)
		s.setting(path+"::package", schema.AdditionalProperties, reflect.Zero(v.Type().Elem()))
	default:
		want := map[reflect.Kind]string{
			reflect.String: "string", reflect.Bool: "boolean", reflect.Int: "integer", reflect.Float64: "number",
		}[v.Kind()]
		assert.Equal(s.t, want, schema.Type, path)
		s.fallback(path, fallback, v)
	}
}

// fallback compares a default. A default that is not stated is the zero value.
func (s *schemaCheck) fallback(path string, stated any, v reflect.Value) {
	if stated == nil {
		assert.True(s.t, v.IsZero(), "default of %s: %v", path, v)
		return
	}
	want, err := json.Marshal(v.Interface())
	require.NoError(s.t, err, path)
	got, err := json.Marshal(stated)
	require.NoError(s.t, err, path)
	assert.JSONEq(s.t, string(want), string(got), "default of %s", path)
}

var allowed = regexp.MustCompile(`must be one of (.*), is "no such value"`)

// values compares the allowed values of a setting with those that its error lists.
func (s *schemaCheck) values(path string, enum []any) {
	var value any = "no such value"
	keys := strings.Split(path, "::")
	for _, key := range slices.Backward(keys) {
		if key == "0" {
			value = []any{value}
		} else {
			value = map[string]any{key: value}
		}
	}
	cfg := createDefaultConfig().(*Config)
	require.NoError(s.t, confmap.NewFromStringMap(value.(map[string]any)).Unmarshal(cfg), path)
	err := confmap.Validate(cfg)
	named := allowed.FindStringSubmatch(fmt.Sprint(err))
	require.NotNil(s.t, named, "%s: %v", path, err)
	var want []any
	for name := range strings.SplitSeq(named[1], ", ") {
		want = append(want, name)
	}
	assert.ElementsMatch(s.t, want, enum, path)
	s.enums = append(s.enums, path)
}
