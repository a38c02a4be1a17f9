// SPDX-License-Identifier: Apache-2.0

// Package decode decodes configurations. Every duration must have a unit, no integer may have a
// fraction, and errors contain the paths of settings in the configuration.
package decode

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

// Into decodes conf into config, a pointer to a struct, like conf.Unmarshal. The lines of its error
// begin with the path of a setting, such as meters::ipmi::poll_interval. In addition, it returns an
// error for each time.Duration that is a number other than 0, because conf.Unmarshal interprets a
// number as nanoseconds, and for each integer with a fraction, because conf.Unmarshal discards the
// fraction. The Unmarshal methods of component configurations call Into.
func Into(conf *confmap.Conf, config any) error {
	if err := check("", reflect.TypeOf(config), conf.ToStringMap()); err != nil {
		return err
	}
	return Under("", conf.Unmarshal(config))
}

// check returns an error for each number in value that decoding into a t would change.
func check(path string, t reflect.Type, value any) error {
	if of := elementOf(t); of != nil {
		return check(path, of, value)
	}
	switch {
	case value == nil:
		return nil
	case t == reflect.TypeFor[time.Duration]():
		return checkDuration(path, reflect.ValueOf(value))
	case t.Kind() >= reflect.Int && t.Kind() <= reflect.Uint64:
		if number, ok := value.(float64); ok && number != math.Trunc(number) {
			return fmt.Errorf("%s: must be an integer, is %v", path, number)
		}
	}
	values, _ := value.(map[string]any)
	elements, _ := value.([]any)
	var errs []error
	switch t.Kind() {
	case reflect.Struct:
		errs = append(errs, checkFields(path, t, values))
	case reflect.Map:
		for key, value := range values {
			errs = append(errs, check(join(path, key), t.Elem(), value))
		}
	case reflect.Slice:
		for i, value := range elements {
			errs = append(errs, check(join(path, strconv.Itoa(i)), t.Elem(), value))
		}
	}
	return errors.Join(errs...)
}

// checkFields checks the values of a struct's fields. The tag keys of a map of remaining settings
// has an example of the keys of the map, such as http/NAME.
func checkFields(path string, t reflect.Type, values map[string]any) error {
	var errs []error
	remaining := maps.Clone(values)
	for field := range t.Fields() {
		name, flags, _ := strings.Cut(field.Tag.Get(confmap.MapstructureTag), ",")
		delete(remaining, name)
		switch {
		case !field.IsExported():
		case strings.Contains(flags, "squash"):
			errs = append(errs, check(path, field.Type, values))
		case strings.Contains(flags, "remain"): // after all other fields
			kind, _, _ := strings.Cut(field.Tag.Get("keys"), "/")
			own := maps.Clone(remaining)
			maps.DeleteFunc(own, func(key string, _ any) bool { return !strings.HasPrefix(key, kind) })
			errs = append(errs, check(path, field.Type, own))
		default:
			errs = append(errs, check(join(path, name), field.Type, values[name]))
		}
	}
	return errors.Join(errs...)
}

// checkDuration returns an error if value is a number other than 0. It accepts a time.Duration,
// which a program may set.
func checkDuration(path string, value reflect.Value) error {
	switch {
	case value.IsZero() || value.Type() == reflect.TypeFor[time.Duration]():
		return nil
	case value.CanFloat():
		return fmt.Errorf("%s: %s has no unit; write %[2]ss", path, strconv.FormatFloat(value.Float(), 'f', -1, 64))
	case value.CanInt(), value.CanUint():
		return fmt.Errorf("%s: %v has no unit; write %[2]vs", path, value)
	}
	return nil // conf.Unmarshal checks it
}

// join returns the path of a setting in a section. Either may be empty.
func join(section, setting string) string { return strings.Trim(section+"::"+setting, ":") }

// elementOf returns the type of the value of a pointer or a configoptional.Optional, or nil for another
// type.
func elementOf(t reflect.Type) reflect.Type {
	if t.Kind() == reflect.Pointer {
		return t.Elem()
	}
	if get, ok := reflect.PointerTo(t).MethodByName("Get"); ok && strings.HasPrefix(t.Name(), "Optional[") {
		return get.Type.Out(0).Elem()
	}
	return nil
}
