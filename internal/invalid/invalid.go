// SPDX-License-Identifier: Apache-2.0

// Package invalid reports invalid settings of a configuration. Each error begins with the path of
// its setting, such as meters::ipmi::poll_interval.
package invalid

import (
	"slices"
	"strings"
)

// Reporter reports an invalid setting. setting is the path of the setting. format describes the
// requirement, and begins with a verb such as "must be".
type Reporter func(setting, format string, args ...any)

// Under returns a Reporter for the settings of a section. It prefixes their paths with the section.
func (r Reporter) Under(section string) Reporter {
	return func(setting, format string, args ...any) { r(section+"::"+setting, format, args...) }
}

// OneOf reports a setting whose value is not one of the allowed values.
func OneOf[T ~string](wrong Reporter, setting string, value T, allowed ...T) {
	switch {
	case slices.Contains(allowed, value):
	case value == "":
		wrong(setting, "must be set to one of %s", Join(allowed))
	default:
		wrong(setting, "must be one of %s, is %q", Join(allowed), value)
	}
}

// Join returns a list of the values, separated by commas.
func Join[T ~string](values []T) string {
	s := make([]string, len(values))
	for i, v := range values {
		s[i] = string(v)
	}
	return strings.Join(s, ", ")
}
