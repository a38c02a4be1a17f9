// SPDX-License-Identifier: Apache-2.0

package nvml

import (
	"encoding/json"
	"os"
	"regexp"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/confmap"
)

func TestConfig(t *testing.T) {
	config := NewFactory().CreateDefaultConfig().(*Config)
	assert.Equal(t, "libnvidia-ml.so.1", config.Library)
	require.NoError(t, confmap.NewFromStringMap(map[string]any{"library": "/opt/libnvidia-ml.so.1"}).Unmarshal(config))
	assert.Equal(t, "/opt/libnvidia-ml.so.1", config.Library)
	assert.Error(t, confmap.NewFromStringMap(map[string]any{"path": "x"}).Unmarshal(config), "no such setting")
}

func TestLibraryIsANameOrAnAbsolutePath(t *testing.T) {
	pattern := regexp.MustCompile(schema(t).Properties["library"].Pattern)
	for library, want := range map[string]string{
		"libnvidia-ml.so.1":      "",
		"/opt/libnvidia-ml.so.1": "",
		"":                       "library: must be a name or an absolute path, is empty",
		"lib/libnvidia-ml.so.1":  "library: must be a name or an absolute path, is the relative path lib/libnvidia-ml.so.1",
		"./libnvidia-ml.so.1":    "library: must be a name or an absolute path, is the relative path ./libnvidia-ml.so.1",
		"lib\x00":                "library: has a NUL character",
	} {
		err := (&Config{Library: library}).Validate()
		if want == "" {
			assert.NoError(t, err, library)
		} else {
			assert.EqualError(t, err, want)
		}
		if library != "lib\x00" {
			assert.Equal(t, want == "", pattern.MatchString(library), library)
		}
	}
}

func TestSchemaHasTheSettings(t *testing.T) {
	settings := confmap.New()
	require.NoError(t, settings.Marshal(NewFactory().CreateDefaultConfig()))
	defaults := map[string]any{}
	for name, property := range schema(t).Properties {
		defaults[name] = property.Default
	}
	assert.Equal(t, settings.ToStringMap(), defaults)
}

type jsonSchema struct {
	Properties map[string]struct {
		Default any
		Pattern string
	}
}

func schema(t *testing.T) (s jsonSchema) {
	t.Helper()
	text, err := os.ReadFile("config.schema.json")
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(text, &s))
	return s
}
