// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"
)

// reference returns the reference of the configuration in Markdown: a table of the settings without
// a section, and one for each section, each meter and the rules of attribution.
func reference(root *setting) (string, error) {
	p := page{described: map[string]string{}}
	var scalars []*setting
	for _, f := range root.fields {
		if !f.isSection() {
			scalars = append(scalars, f)
		}
	}
	p.table("", scalars, nil)
	for _, f := range root.fields {
		if f.isSection() && !f.theirs {
			if err := p.section(f); err != nil {
				return "", err
			}
		}
	}
	return p.String(), p.check(root)
}

// A page is the generated part of the reference.
type page struct {
	strings.Builder
	described map[string]string // the paths of the first settings, by key and description
}

// section writes a section: its own settings and, in sections of their own, meters and rules.
func (p *page) section(s *setting) error {
	p.heading("###", s)
	if example := examples[s.path]; example != "" {
		fmt.Fprintf(p, "~~~yaml\n%s\n~~~\n\n", example) // backquotes would end the block that vale ignores
	}
	var rows, rules, meters []*setting
	if len(s.short) > 0 {
		rows = append(rows, s)
	}
	for _, f := range slices.Concat(s.fields, s.more) {
		if s.key == "meters" && f.isSection() {
			meters = append(meters, f)
			continue
		}
		for _, row := range f.rows() {
			if row.research {
				rules = append(rules, row)
			} else {
				rows = append(rows, row)
			}
		}
	}
	p.table(s.path, rows, nil)
	for _, m := range meters {
		required, err := missing(m.path)
		if err != nil {
			return err
		}
		p.heading("####", m)
		p.table(m.path, m.rowsBelow(required), required)
	}
	if len(rules) > 0 {
		p.WriteString("#### Rules\n\nThe defaults are those without a `preset`, which selects other rules.\n\n")
		p.table(s.path, rules, nil)
	}
	return nil
}

// heading writes the heading of a section and its description.
func (p *page) heading(level string, s *setting) {
	fmt.Fprintf(p, "%s `%s`\n\n%s", level, s.key, s.description())
	if link := notes[s.path].link; link != "" {
		fmt.Fprintf(p, " [Details](%s).", link)
	}
	p.WriteString("\n\n")
}

// check returns an error if a note or an example belongs to no setting.
func (p *page) check(root *setting) error {
	known := map[string]bool{}
	var visit func(s *setting)
	visit = func(s *setting) {
		known[s.path] = true
		for _, f := range slices.Concat(s.fields, s.more) {
			visit(f)
		}
		if s.element != nil {
			visit(s.element)
		}
	}
	visit(root)
	for path := range notes {
		if !known[path] {
			return fmt.Errorf("a note belongs to %s, which is no setting", path)
		}
	}
	return nil
}

// below returns the settings of a section and of its sections, without those that the collector documents.
func (s *setting) below() (all []*setting) {
	for _, f := range s.children() {
		if !f.theirs {
			all = append(append(all, f), f.below()...)
		}
	}
	return all
}

// children returns the settings of a section, and of the elements of a list or a map.
func (s *setting) children() []*setting {
	fields := slices.Concat(s.fields, s.more)
	if s.element != nil {
		fields = append(fields, s.element.fields...)
	}
	return fields
}

// rows returns the rows of a setting and of those below it. A section has no row of its own.
func (s *setting) rows() (all []*setting) {
	if !s.isSection() {
		all = append(all, s)
	}
	return append(all, s.rowsBelow(nil)...)
}

// rowsBelow returns the rows of the settings below s. Of the settings that the collector documents,
// these are the required ones and the times with a default.
func (s *setting) rowsBelow(required []string) (all []*setting) {
	for _, f := range s.children() {
		fallback, isTime := f.fallback.(time.Duration)
		switch {
		case !f.theirs:
			all = append(all, f.rows()...)
		case slices.Contains(required, f.path), isTime && fallback != 0:
			all = append(all, f)
		}
	}
	return all
}

// isSection reports whether a setting has settings of its own.
func (s *setting) isSection() bool { return len(s.fields) > 0 }

// table writes the settings of a section. A setting that is described like one above refers to it.
func (p *page) table(section string, rows []*setting, required []string) {
	if len(rows) == 0 {
		return
	}
	p.WriteString("| setting | value | default | required | description |\n|---|---|---|---|---|\n")
	for _, f := range rows {
		doc := f.description()
		if f.path == section {
			doc = "One of these values, or a map of the following settings."
		} else if first, ok := p.described[f.key+doc]; ok {
			doc = "As `" + first + "`."
		} else {
			p.described[f.key+doc] = f.name("")
		}
		yes, fallback := "", f.defaultText()
		if slices.Contains(required, f.path) {
			yes, fallback = "yes", ""
		}
		name := "`" + f.name(section) + "`"
		if link := notes[f.path].link; link != "" {
			name = "[" + name + "](" + link + ")"
		}
		fmt.Fprintf(p, "| %s | %s | %s | %s | %s |\n", name, f.valueText(), fallback, yes, strings.ReplaceAll(doc, "|", "\\|"))
	}
	p.WriteString("\n")
}

// name returns the path below a section, as the reference shows it.
func (s *setting) name(section string) string {
	path := strings.TrimPrefix(s.path, section+"::")
	return strings.NewReplacer("::0::", "[]::", "::package::", "::ZONE::").Replace(path)
}

// description returns the description of a setting.
func (s *setting) description() string {
	doc := cmp.Or(notes[s.path].doc, s.doc)
	return strings.Replace(doc, "confighttp clients", "[confighttp clients]("+confighttpURL+")", 1)
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
	case s.kind == "object":
		return "map"
	}
	return s.kind
}

// defaultText returns the default of a setting.
func (s *setting) defaultText() string {
	if n := notes[s.path]; n.fallback != "" {
		return n.fallback
	}
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
			panic(err) // every default can be written as YAML
		}
		return "`" + strings.ReplaceAll(strings.ReplaceAll(string(text), `"`, ""), ",", ", ") + "`"
	}
}
