// SPDX-License-Identifier: Apache-2.0

package durations

import (
	"encoding"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.opentelemetry.io/collector/confmap"
)

// maxShown is the maximum length of a value in an error.
const maxShown = 80

// explain returns an error for each value that cannot be decoded into its field, with the key and the value, or err if it finds none.
// err is the error of decoding conf into config, which has no values.
func explain(conf *confmap.Conf, config any, err error) error {
	text := err.Error()
	e := explainer{strings: strings.Contains(text, "expected type 'string'") || strings.Contains(text, "configopaque.String'")}
	e.walk("", reflect.TypeOf(config).Elem(), conf.ToStringMap())
	if len(e.errs) == 0 {
		return err
	}
	for line := range strings.Lines(text) {
		if strings.Contains(line, "has invalid keys: ") {
			e.errs = append(e.errs, errors.New(strings.TrimSpace(line)))
		}
	}
	return errors.Join(e.errs...)
}

type explainer struct {
	errs []error
	// strings is set if a value is no string. Without it a number for a string may be the text of a variable: ${env:NAME}.
	strings bool
}

func (e *explainer) wrong(path, want string, value any) {
	e.errs = append(e.errs, fmt.Errorf("%s: must be %s, is %s", path, want, show(value)))
}

func (e *explainer) walk(path string, t reflect.Type, value any) {
	switch {
	case value == nil:
		return
	case isOpaque(t):
		if !e.isString(value) {
			e.errs = append(e.errs, fmt.Errorf("%s: must be a string", path))
		}
		return
	}
	if get, ok := reflect.PointerTo(t).MethodByName("Get"); ok && strings.HasPrefix(t.Name(), "Optional[") {
		t = get.Type.Out(0)
	}
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch {
	case t == reflect.TypeFor[time.Duration]():
		e.duration(path, value)
	case reflect.PointerTo(t).Implements(reflect.TypeFor[encoding.TextUnmarshaler]()):
	default:
		e.kind(path, t, value)
	}
}

// isString reports whether a value may be that of a string.
func (e *explainer) isString(value any) bool {
	switch value.(type) {
	case string:
		return true
	case []any, map[string]any:
		return false
	}
	return !e.strings
}

func (e *explainer) kind(path string, t reflect.Type, value any) {
	v := reflect.ValueOf(value)
	switch t.Kind() {
	case reflect.Bool:
		if v.Kind() != reflect.Bool {
			e.wrong(path, "true or false", value)
		}
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64,
		reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64, reflect.Float32, reflect.Float64:
		if !v.CanInt() && !v.CanUint() && !v.CanFloat() {
			e.wrong(path, "a number", value)
		}
	case reflect.String:
		if !e.isString(value) {
			e.wrong(path, "a string", value)
		}
	case reflect.Slice:
		list, ok := value.([]any)
		if !ok {
			e.wrong(path, "a list", value)
		}
		for i, element := range list {
			e.walk(join(path, strconv.Itoa(i)), t.Elem(), element)
		}
	case reflect.Map, reflect.Struct:
		section, ok := value.(map[string]any)
		if !ok && decodesItself(t) {
			return
		}
		if !ok {
			e.wrong(path, "a section with keys", value)
			return
		}
		e.section(path, t, section)
	}
}

// section explains the values of a struct's fields, or of a map.
func (e *explainer) section(path string, t reflect.Type, values map[string]any) {
	if t.Kind() == reflect.Map {
		for _, key := range slices.Sorted(maps.Keys(values)) {
			e.walk(join(path, key), t.Elem(), values[key])
		}
		return
	}
	for field := range t.Fields() {
		name, flags, _ := strings.Cut(field.Tag.Get(confmap.MapstructureTag), ",")
		switch {
		case !field.IsExported():
		case strings.Contains(flags, "squash"):
			e.section(path, field.Type, values)
		default:
			e.walk(join(path, name), field.Type, values[name])
		}
	}
}

func (e *explainer) duration(path string, value any) {
	const want = "a duration such as 500ms, 5s or 2m"
	switch v := value.(type) {
	case string:
		_, err := time.ParseDuration(v)
		_, notNumber := strconv.ParseFloat(v, 64)
		switch {
		case err == nil:
		case notNumber == nil:
			e.errs = append(e.errs, fmt.Errorf("%s: %q has no unit; write %ss", path, v, v))
		default:
			e.wrong(path, want, value)
		}
	case bool, []any, map[string]any:
		e.wrong(path, want, value)
	}
}

// isOpaque reports whether values of a type are secrets.
func isOpaque(t reflect.Type) bool { return strings.HasSuffix(t.PkgPath(), "/configopaque") }

// decodesItself reports whether a type has its own decoding, which may accept other values than sections.
func decodesItself(t reflect.Type) bool {
	_, ok := reflect.PointerTo(t).MethodByName("Unmarshal")
	_, scalar := reflect.PointerTo(t).MethodByName("UnmarshalScalar")
	return ok || scalar
}

// show returns a value for an error.
func show(value any) string {
	switch v := value.(type) {
	case []any:
		return "a list"
	case map[string]any:
		return "a section with keys"
	case string:
		if len(v) > maxShown {
			v = strings.ToValidUTF8(v[:maxShown], "") + "..."
		}
		return strconv.Quote(v)
	}
	return fmt.Sprint(value)
}
