// SPDX-License-Identifier: Apache-2.0

package decode

import (
	"errors"
	"reflect"
	"regexp"
	"strings"

	"github.com/go-viper/mapstructure/v2"
)

// invalid is the error of one setting.
type invalid struct {
	path string // empty for the whole configuration
	err  error
}

func (i *invalid) Unwrap() error { return i.err }

func (i *invalid) Error() string {
	if i.path == "" {
		return i.err.Error()
	}
	return i.path + ": " + i.err.Error()
}

// Under returns err, an error of confmap.Conf.Unmarshal, with a line for each invalid setting. It
// begins with the path of the setting below section.
func Under(section string, err error) error { return errors.Join(plainAt(section, err)...) }

// plainAt returns an error for each invalid setting below path.
func plainAt(path string, err error) []error {
	if all, ok := err.(interface{ Unwrap() []error }); ok {
		var errs []error
		for _, err := range all.Unwrap() {
			errs = append(errs, plainAt(path, err)...)
		}
		return errs
	}
	switch err := err.(type) { //nolint:errorlint // wrapped errors follow in the recursion
	case nil:
		return nil
	case *invalid:
		return []error{&invalid{join(path, err.path), err.err}}
	case *mapstructure.DecodeError:
		return plainAt(join(path, settingOf(err.Name())), err.Unwrap())
	}
	if inner := errors.Unwrap(err); inner != nil && strings.HasPrefix(err.Error(), "decoding failed") {
		return plainAt(path, inner)
	}
	if text := requirement(err); text != "" {
		err = errors.New(text)
	}
	return []error{&invalid{path, err}}
}

var (
	typeName = regexp.MustCompile(`^\w+\.[A-Z]\w*$`)
	index    = regexp.MustCompile(`\[(\w+)\]`)
)

// settingOf returns the path of a setting for a name of the decoder. The decoder's name for the
// whole configuration is its Go type, and elements of lists have names like exclude.cgroup[0].
func settingOf(name string) string {
	if typeName.MatchString(name) {
		return ""
	}
	sections := strings.Count(name, ".")
	if strings.HasPrefix(name, "metrics.") || strings.HasPrefix(name, "resource_attributes.") {
		sections = 1 // the names of metrics and attributes have dots
	}
	return strings.Replace(index.ReplaceAllString(name, "::$1"), ".", "::", sections)
}

// prefixes maps prefixes of the decoder's errors to plain text.
var prefixes = []struct{ decoder, plain string }{
	{"has invalid keys: ", "unknown settings: "},
	{"expected a map or struct, got ", "must be a map of settings, is "},
	{"source data must be an array or slice, got ", "must be a list, is "},
	{"time: invalid duration", "must be a duration such as 10s"},
}

// kinds maps kinds of Go values to plain text.
var kinds = strings.NewReplacer(`"`, "", "slice", "a list", "map", "a map", "string", "a string", "bool", "true or false", "int", "a number", "float64", "a number")

// requirement returns the requirement that a value violates, or "" if err is not an error of the
// decoder.
func requirement(err error) string {
	// The text must not contain values, which may be passwords.
	switch err := err.(type) { //nolint:errorlint // the error is not wrapped
	case *mapstructure.UnconvertibleTypeError:
		return "must be " + nounOf(err.Expected.Kind())
	case *mapstructure.ParseError:
		return "must be " + nounOf(err.Expected.Kind())
	}
	for _, p := range prefixes {
		if rest, ok := strings.CutPrefix(err.Error(), p.decoder); ok {
			if strings.HasSuffix(p.plain, "is ") {
				rest = kinds.Replace(rest)
			}
			return p.plain + rest
		}
	}
	return ""
}

func nounOf(k reflect.Kind) string {
	switch {
	case k == reflect.Bool:
		return "true or false"
	case k >= reflect.Int && k <= reflect.Uint64:
		return "an integer"
	case k == reflect.Float32 || k == reflect.Float64:
		return "a number"
	case k == reflect.Slice:
		return "a list"
	case k == reflect.Map || k == reflect.Struct:
		return "a map of settings"
	}
	return "a " + k.String()
}
