// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"time"
	"unicode"
)

// object is a JSON object.
type object map[string]any

// schema returns the JSON schema of the configuration.
func schema(root *setting) ([]byte, error) {
	s := schemaOf(root)
	s["$schema"] = "https://json-schema.org/draft/2020-12/schema"
	s["$id"] = "https://github.com/energyreceiver/energyreceiver/receiver/config.schema.json"
	s["title"] = "receiver/energy"
	s["description"] = "Configuration of the energy receiver."
	s["$defs"] = object{
		"duration": object{"type": "string", "pattern": `^-?(0|([0-9]+(\.[0-9]+)?(ns|us|µs|ms|s|m|h))+)$`},
		"filter": object{
			"description": "Matches a string exactly or by a regular expression.", "type": "object", "additionalProperties": false,
			"properties":    object{"strict": object{"type": "string"}, "regexp": object{"type": "string"}},
			"minProperties": 1, "maxProperties": 1,
		},
		"metric": object{
			"type": "object", "additionalProperties": false, "properties": object{"enabled": object{"type": "boolean"}},
		},
		"resource_attribute": object{
			"type": "object", "additionalProperties": false,
			"properties": object{
				"enabled":         object{"type": "boolean"},
				"metrics_include": object{"type": "array", "items": object{"$ref": "#/$defs/filter"}},
				"metrics_exclude": object{"type": "array", "items": object{"$ref": "#/$defs/filter"}},
			},
		},
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	err := e.Encode(s)
	return b.Bytes(), err
}

// schemaOf returns the schema of a setting.
func schemaOf(s *setting) object {
	out := object{"type": s.kind}
	switch s.kind {
	case "duration", "filter", "metric", "resource_attribute":
		out = object{"$ref": "#/$defs/" + s.kind}
	case "array":
		if out["items"] = schemaOf(s.element); s.theirs { // some of them may be maps
			out = object{"type": []string{"array", "object"}}
		}
	case "object":
		objectSchema(out, s)
	}
	if len(s.values) > 0 {
		out["enum"] = s.values
	}
	if len(s.short) > 0 {
		short := object{"type": "string"}
		if !isAny(s.short) {
			short["enum"] = s.short
		}
		out = object{"anyOf": []any{short, out}}
	} else if s.element == nil && s.model() != nil {
		out = object{"anyOf": []any{object{"type": "string", "enum": s.model().values}, out}}
	}
	if s.doc != "" {
		out["description"] = s.doc
	}
	switch fallback := s.fallback.(type) {
	case nil:
	case time.Duration:
		out["default"] = shortDuration(fallback)
	default:
		out["default"] = fallback
	}
	return out
}

// model returns the setting that a string in place of an object sets.
func (s *setting) model() *setting {
	if len(s.fields) > 0 && s.key == "" && s.fields[0].key == "model" {
		return s.fields[0]
	}
	return nil
}

// isAny reports whether a short form is any string.
func isAny(short []string) bool { return strings.IndexFunc(short[0], unicode.IsUpper) == 0 }

func objectSchema(out object, s *setting) {
	if s.element != nil {
		out["additionalProperties"] = schemaOf(s.element)
		if s.keys != nil {
			out["propertyNames"] = object{"enum": s.keys}
		}
		return
	}
	if s.fields == nil && s.theirs {
		return
	}
	properties := object{}
	for _, f := range s.fields {
		properties[f.key] = schemaOf(f)
	}
	out["properties"], out["additionalProperties"] = properties, false
	patterns := object{}
	for _, more := range s.more {
		kind, _, _ := strings.Cut(more.example, "/")
		patterns[fmt.Sprintf("^%s(/.+)?$", regexp.QuoteMeta(kind))] = schemaOf(more)
	}
	if len(patterns) > 0 {
		out["patternProperties"] = patterns
	}
}

// shortDuration returns a duration as one writes it, 5m rather than 5m0s.
func shortDuration(d time.Duration) string {
	s := d.String()
	for _, zero := range []string{"m0s", "h0m"} {
		if strings.HasSuffix(s, zero) {
			s = s[:len(s)-2]
		}
	}
	return s
}
