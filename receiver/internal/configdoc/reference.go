// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"
)

// reference returns the reference of the configuration in Markdown: a table of the settings without
// a section, one for each section, and one of the settings for research.
func reference(root *setting) string {
	var b strings.Builder
	var scalars, research []*setting
	for _, f := range root.fields {
		if !f.isSection() {
			scalars = append(scalars, f)
		}
	}
	table(&b, scalars)
	for _, f := range root.fields {
		if !f.isSection() || f.theirs {
			continue
		}
		fmt.Fprintf(&b, "### `%s`\n\n%s\n\n", f.key, f.doc)
		var rows []*setting
		for _, row := range f.below() {
			if row.research {
				research = append(research, row)
			} else {
				rows = append(rows, row)
			}
		}
		table(&b, rows)
	}
	b.WriteString("### Settings for research\n\nThe preset selects these rules. Change them to compare rules.\n\n")
	table(&b, research)
	return b.String()
}

// below returns the settings of a section and of its sections, without those that the collector documents.
func (s *setting) below() (all []*setting) {
	fields := slices.Concat(s.fields, s.more)
	if s.element != nil {
		fields = append(fields, s.element.fields...)
	}
	for _, f := range fields {
		if !f.theirs {
			all = append(append(all, f), f.below()...)
		}
	}
	return all
}

// isSection reports whether a setting has settings of its own.
func (s *setting) isSection() bool { return len(s.fields) > 0 }

// table writes the settings of a section. A setting that is described like one above refers to it.
func table(b *strings.Builder, rows []*setting) {
	b.WriteString("| setting | value | default | description |\n|---|---|---|---|\n")
	described := map[string]string{}
	for _, f := range rows {
		doc := strings.ReplaceAll(f.doc, "|", "\\|")
		if first, ok := described[f.key+doc]; ok {
			doc = "As `" + first + "`."
		} else {
			described[f.key+doc] = f.path
		}
		fmt.Fprintf(b, "| `%s` | %s | %s | %s |\n", f.path, f.valueText(), f.defaultText(), doc)
	}
	b.WriteString("\n")
}

// valueText returns the type of a setting, or its values.
func (s *setting) valueText() string {
	switch {
	case len(s.values) > 0:
		return "`" + strings.Join(s.values, "`, `") + "`"
	case len(s.short) > 0 && !isAny(s.short):
		return "`" + strings.Join(s.short, "`, `") + "`, map"
	case s.kind == "array" && s.element.kind == "filter":
		return "list of filters"
	case s.kind == "array" && len(s.element.values) > 0:
		return "list of `" + strings.Join(s.element.values, "`, `") + "`"
	case s.kind == "array":
		return "list"
	case s.kind == "object" && s.element != nil && len(s.element.values) > 0:
		return "map to `" + strings.Join(s.element.values, "`, `") + "`"
	case s.isSection():
		return "section"
	case s.kind == "object":
		return "map"
	}
	return s.kind
}

// defaultText returns the default of a setting.
func (s *setting) defaultText() string {
	switch fallback := s.fallback.(type) {
	case nil:
		switch {
		case s.kind == "integer", s.kind == "number":
			return "`0`"
		case s.kind == "boolean":
			return "`false`"
		case len(s.short) > 0 && !isAny(s.short):
			return "`" + s.short[0] + "`"
		}
		return ""
	case time.Duration:
		return "`" + shortDuration(fallback) + "`"
	case string, fmt.Stringer:
		return fmt.Sprintf("`%v`", fallback)
	default:
		text, err := json.Marshal(fallback)
		if err != nil {
			panic(err) // a default is of a type that YAML has
		}
		return "`" + strings.ReplaceAll(strings.ReplaceAll(string(text), `"`, ""), ",", ", ") + "`"
	}
}
