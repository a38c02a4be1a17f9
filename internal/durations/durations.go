// SPDX-License-Identifier: Apache-2.0

// Package durations decodes configurations in which every duration must have a unit.
package durations

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"reflect"
	"strconv"
	"strings"
	"time"

	"go.opentelemetry.io/collector/confmap"
)

// Decode decodes conf into config, a pointer to a struct, like conf.Unmarshal. In addition, type
// errors contain the value, and it returns an error for values that conf.Unmarshal would change: a
// number other than 0 for a time.Duration, which would be nanoseconds, and a fraction in place of
// an integer. The Unmarshal methods of component configurations call it.
func Decode(conf *confmap.Conf, config any) error {
	t, values := reflect.TypeOf(config), conf.ToStringMap()
	if err := check("", t, values, ""); err != nil {
		return err
	}
	err := conf.Unmarshal(config)
	if err == nil {
		return nil
	}
	if wrong := check("", t, values, err.Error()); wrong != nil {
		return wrong
	}
	return err
}

// check returns an error for each value that cannot be decoded into a t. Except for fractions and
// durations without a unit, it reports only keys that the decoder's error contains, because the
// decoder accepts some strings from environment variables in place of numbers.
func check(path string, t reflect.Type, value any, decoder string) error {
	if t.Kind() == reflect.Pointer {
		return check(path, t.Elem(), value, decoder)
	}
	if of := optional(t); of != nil {
		return check(path, of, value, decoder)
	}
	if t == reflect.TypeFor[time.Duration]() {
		if err := checkDuration(path, reflect.ValueOf(value)); err != nil {
			return err
		}
	}
	values, isMap := value.(map[string]any)
	if !isMap && reflect.PointerTo(t).Implements(reflect.TypeFor[confmap.ScalarUnmarshaler]()) {
		return nil // its own error
	}
	if want := expected(t, value); want != "" {
		name := path[strings.LastIndex(path, ":")+1:] + "'"
		if isFraction(t, value) || strings.Contains(decoder, "'"+name) || strings.Contains(decoder, "."+name) {
			return fmt.Errorf("%s: must be %s, is %s", path, want, shown(value))
		}
		return nil
	}
	var errs []error
	element := func(name string, of reflect.Type, value any) {
		if value != nil {
			errs = append(errs, check(join(path, name), of, value, decoder))
		}
	}
	elements, _ := value.([]any)
	switch {
	case isMap && t.Kind() == reflect.Struct:
		errs = append(errs, checkFields(path, t, values, decoder))
	case isMap && t.Kind() == reflect.Map:
		for key, value := range values {
			element(key, t.Elem(), value)
		}
	case t.Kind() == reflect.Slice:
		for i, value := range elements {
			element(strconv.Itoa(i), t.Elem(), value)
		}
	}
	return errors.Join(errs...)
}

// checkFields checks the values of a struct's fields.
func checkFields(path string, t reflect.Type, values map[string]any, decoder string) error {
	var errs []error
	remaining := maps.Clone(values)
	for field := range t.Fields() {
		name, flags, _ := strings.Cut(field.Tag.Get(confmap.MapstructureTag), ",")
		value := values[name]
		delete(remaining, name)
		switch {
		case !field.IsExported():
		case strings.Contains(flags, "squash"):
			errs = append(errs, check(path, field.Type, values, decoder))
		case strings.Contains(flags, "remain"): // the last field
			errs = append(errs, check(path, field.Type, remaining, decoder))
		case value != nil:
			errs = append(errs, check(join(path, name), field.Type, value, decoder))
		}
	}
	return errors.Join(errs...)
}

// checkDuration returns an error if value is a number other than 0. It accepts a time.Duration,
// which a program may set.
func checkDuration(path string, value reflect.Value) error {
	switch {
	case !value.IsValid() || value.IsZero() || value.Type() == reflect.TypeFor[time.Duration]():
		return nil
	case !value.CanInt() && !value.CanUint() && !value.CanFloat():
		return nil // conf.Unmarshal checks it
	}
	number := fmt.Sprint(value)
	if value.CanFloat() {
		number = strconv.FormatFloat(value.Float(), 'f', -1, 64)
	}
	return fmt.Errorf("%s: %s has no unit; write %[2]ss", path, number)
}

// join returns the key of an element.
func join(path, name string) string { return strings.TrimPrefix(path+"::"+name, "::") }

// isInteger reports whether t is an integer type without a custom decoder.
func isInteger(t reflect.Type) bool {
	return reflect.Int <= t.Kind() && t.Kind() <= reflect.Uint64 && t.PkgPath() == ""
}

// isFraction reports whether t is an integer type and value is a fraction.
func isFraction(t reflect.Type, value any) bool {
	number, ok := value.(float64)
	return ok && isInteger(t) && number != math.Trunc(number)
}

// optional returns the element type of a configoptional.Optional, or nil if t is another type.
func optional(t reflect.Type) reflect.Type {
	if get, ok := reflect.PointerTo(t).MethodByName("Get"); ok && strings.HasPrefix(t.Name(), "Optional[") {
		return get.Type.Out(0).Elem()
	}
	return nil
}

// expected describes the values that t accepts. It returns an empty string if the value is of that
// kind or if t has a custom decoder. A section with a secret counts as having one, because the
// value may be the secret.
func expected(t reflect.Type, value any) string {
	_, isMap := value.(map[string]any)
	_, isList := value.([]any)
	switch kind := reflect.ValueOf(value).Kind(); {
	case t == reflect.TypeFor[time.Duration]():
		text, isText := value.(string)
		_, err := time.ParseDuration(text)
		switch {
		case isText && err != nil && strings.Contains(err.Error(), "missing unit"):
			return "a duration such as 10s (missing unit in duration)"
		case isText && err != nil, isMap, isList, kind == reflect.Bool:
			return "a duration such as 10s"
		}
	case t.Kind() == reflect.Struct:
		if !isMap && !hasSecret(t) {
			return "a section"
		}
	case t.Kind() == reflect.Slice && t.Elem().Kind() != reflect.Struct && !isMap && !isList:
		return "a list"
	case t.PkgPath() != "":
	case t.Kind() == reflect.Bool && kind != reflect.Bool:
		return "true or false"
	case isInteger(t) && (isFraction(t, value) || kind == reflect.String || kind == reflect.Bool || isMap || isList):
		return "an integer"
	case (t.Kind() == reflect.Float64 || t.Kind() == reflect.Float32) && (kind == reflect.String || kind == reflect.Bool || isMap || isList):
		return "a number"
	case t.Kind() == reflect.String && kind != reflect.String:
		return "a text"
	}
	return ""
}

// hasSecret reports whether a struct has a field whose value must not appear in errors.
func hasSecret(t reflect.Type) bool {
	for field := range t.Fields() {
		of := field.Type
		if inner := optional(of); inner != nil {
			of = inner
		}
		if strings.HasSuffix(of.PkgPath(), "/configopaque") || of.Kind() == reflect.Struct && of != t && field.IsExported() && hasSecret(of) {
			return true
		}
	}
	return false
}

// shown formats a value for an error, with quotes if it is a string.
func shown(value any) string {
	text := fmt.Sprint(value)
	if _, ok := value.(string); ok {
		text = strconv.Quote(text)
	}
	if len(text) > 60 {
		text = text[:60] + "..."
	}
	return text
}
