// SPDX-License-Identifier: Apache-2.0

// Package durationtest tests that configurations refuse durations without a unit.
package durationtest

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/confmap"
)

// NeedUnits checks that each duration of a configuration is decoded from a text with a unit, and
// refused as a number. It returns the keys of the durations.
func NeedUnits(t *testing.T, newConfig func() any) []string {
	t.Helper()
	keys := Keys(reflect.TypeOf(newConfig()), "")
	require.NotEmpty(t, keys)
	for _, key := range keys {
		for value, want := range map[any]string{
			10: "10 has no unit; write 10s", -5: "-5 has no unit; write -5s", 1e6: "1000000 has no unit; write 1000000s",
			1.5: "1.5 has no unit; write 1.5s", uint64(7): "7 has no unit; write 7s", "10": "missing unit in duration",
		} {
			err := decode(newConfig(), key, value)
			if _, isText := value.(string); !isText {
				want = key + ": " + want
			}
			assert.ErrorContains(t, err, want, "%s: %v", key, value)
		}
		for _, value := range []any{"10s", "0", 0, 10 * time.Second, nil} {
			assert.NoError(t, decode(newConfig(), key, value), "%s: %v", key, value)
		}
	}
	return keys
}

// decode decodes a value for a key into a configuration.
func decode(config any, key string, value any) error {
	parts := strings.Split(key, "::")
	for i := len(parts) - 1; i >= 0; i-- {
		if parts[i] == "0" {
			value = []any{value}
		} else {
			value = map[string]any{parts[i]: value}
		}
	}
	return confmap.NewFromStringMap(value.(map[string]any)).Unmarshal(&config) // as the collector does
}

// Keys returns the keys of the durations in a type. Of a list it has the first element, of a map
// the one with the key "any".
func Keys(t reflect.Type, path string) (keys []string) {
	if get, ok := reflect.PointerTo(t).MethodByName("Get"); ok && strings.HasPrefix(t.Name(), "Optional[") {
		t = get.Type.Out(0)
	}
	switch {
	case t == reflect.TypeFor[time.Duration]():
		return []string{strings.TrimSuffix(path, "::")}
	case t.Kind() == reflect.Pointer:
		return Keys(t.Elem(), path)
	case t.Kind() == reflect.Slice:
		return Keys(t.Elem(), path+"0::")
	case t.Kind() == reflect.Map:
		return Keys(t.Elem(), path+"any::")
	case t.Kind() != reflect.Struct:
		return nil
	}
	for field := range t.Fields() {
		name, flags, _ := strings.Cut(field.Tag.Get("mapstructure"), ",")
		switch {
		case !field.IsExported() || name == "-":
		case strings.Contains(flags, "squash"):
			keys = append(keys, Keys(field.Type, path)...)
		case strings.Contains(flags, "remain"): // the tag keys has an example
			keys = append(keys, Keys(field.Type.Elem(), fmt.Sprintf("%s%s::", path, field.Tag.Get("keys")))...)
		case name != "":
			keys = append(keys, Keys(field.Type, fmt.Sprintf("%s%s::", path, name))...)
		}
	}
	return keys
}
