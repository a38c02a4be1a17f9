// SPDX-License-Identifier: Apache-2.0

// Package durations decodes configurations in which every duration must have a unit.
package durations

import (
	"errors"
	"fmt"
	"maps"
	"reflect"
	"strconv"
	"strings"
	"time"

	"go.opentelemetry.io/collector/confmap"
)

// Unmarshal decodes conf into config, a pointer to a struct, like conf.Unmarshal. It fails if conf has a number other than 0
// for a time.Duration, because conf.Unmarshal would decode 10 as 10 ns.
//
// It is called by the Unmarshal methods of component configurations.
func Unmarshal(conf *confmap.Conf, config any) error {
	if err := check("", reflect.TypeOf(config), conf.ToStringMap()); err != nil {
		return err
	}
	return conf.Unmarshal(config)
}

// check returns an error for each duration without a unit in value, which will be decoded into a t. path is the key of value.
func check(path string, t reflect.Type, value any) error {
	switch {
	case t == reflect.TypeFor[time.Duration]():
		return checkDuration(path, reflect.ValueOf(value))
	case t.Kind() == reflect.Pointer:
		return check(path, t.Elem(), value)
	}
	if of := optional(t); of != nil {
		return check(path, of, value)
	}
	var errs []error
	switch value := value.(type) {
	case map[string]any:
		switch t.Kind() {
		case reflect.Struct:
			errs = append(errs, checkFields(path, t, value))
		case reflect.Map:
			for key, element := range value {
				errs = append(errs, check(join(path, key), t.Elem(), element))
			}
		}
	case []any:
		for i, element := range value {
			if t.Kind() == reflect.Slice {
				errs = append(errs, check(join(path, strconv.Itoa(i)), t.Elem(), element))
			}
		}
	}
	return errors.Join(errs...)
}

// checkFields checks the values of a struct's fields.
func checkFields(path string, t reflect.Type, values map[string]any) error {
	var errs []error
	remaining := maps.Clone(values)
	for field := range t.Fields() {
		name, flags, _ := strings.Cut(field.Tag.Get(confmap.MapstructureTag), ",")
		value, isSet := values[name]
		delete(remaining, name)
		switch {
		case !field.IsExported():
		case strings.Contains(flags, "squash"):
			errs = append(errs, check(path, field.Type, values))
		case strings.Contains(flags, "remain"): // the last field
			errs = append(errs, check(path, field.Type, remaining))
		case isSet:
			errs = append(errs, check(join(path, name), field.Type, value))
		}
	}
	return errors.Join(errs...)
}

// checkDuration returns an error if value is a number other than 0. It accepts a time.Duration, which a program may set.
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
