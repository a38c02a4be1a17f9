// SPDX-License-Identifier: Apache-2.0

// Package invalid reports invalid settings of a configuration. Each error begins with the path of
// its setting, whose parts are separated by two colons.
package invalid

import (
	"slices"
	"strings"
)

// Reporter reports an invalid setting. The format begins with the requirement, such as "must be".
type Reporter func(setting, format string, args ...any)

// Under returns a reporter for the settings of a section.
func (r Reporter) Under(section string) Reporter {
	return func(setting, format string, args ...any) { r(section+"::"+setting, format, args...) }
}

// OneOf reports a value that is not among the allowed values.
func OneOf[T ~string](wrong Reporter, setting string, value T, allowed ...T) {
	if !slices.Contains(allowed, value) {
		wrong(setting, "must be one of %s, is %q", Join(allowed), value)
	}
}

// Join lists values, separated by commas.
func Join[T ~string](values []T) string {
	s := make([]string, len(values))
	for i, v := range values {
		s[i] = string(v)
	}
	return strings.Join(s, ", ")
}
