// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/confmap"
	"go.opentelemetry.io/collector/filter"

	"github.com/energyreceiver/energyreceiver/internal/drivers"
	"github.com/energyreceiver/energyreceiver/receiver/internal/config"
)

// A setting is a key of the configuration.
type setting struct {
	key, doc string
	path     string   // with all parents, separated by ::
	kind     string   // of JSON schema, or of $defs
	fallback any      // the default, nil for a zero value
	values   []string // allowed values; nil for any
	short    []string // strings that may replace an object
	research bool
	theirs   bool   // is documented by the collector
	declared string // the struct and the field

	fields  []*setting // of an object with fixed keys
	element *setting   // of an array, or of an object with any keys
	keys    []string   // allowed keys of an object with any keys; nil for any
	example string     // a key of an object with any keys
	more    []*setting // further keys of an object with fixed keys, by example
}

// describer describes settings.
type describer struct {
	comments map[string]map[string]*ast.CommentGroup // by package and struct, by field
	parsed   map[string]bool
}

// describe returns the configuration, whose settings are its fields.
func describe(cfg *config.Config) (*setting, error) {
	d := &describer{comments: map[string]map[string]*ast.CommentGroup{}, parsed: map[string]bool{}}
	root := &setting{kind: "object"}
	return root, d.object(root, reflect.ValueOf(cfg).Elem())
}

var ownPackages = []string{reflect.TypeFor[config.Config]().PkgPath(), reflect.TypeFor[drivers.Config]().PkgPath()}

// object adds the fields of a struct to its setting.
func (d *describer) object(to *setting, v reflect.Value) error {
	t := v.Type()
	for field := range t.Fields() {
		key, flags, _ := strings.Cut(field.Tag.Get(confmap.MapstructureTag), ",")
		value := v.FieldByIndex(field.Index)
		var err error
		switch {
		case !field.IsExported() || key == "-":
		case strings.Contains(flags, "squash"):
			err = d.object(to, value)
		case strings.Contains(flags, "remain"):
			var f *setting
			if f, err = d.field(to, t, field, field.Tag.Get("keys"), reflect.New(field.Type.Elem()).Elem()); err == nil {
				f.example = f.key
				to.more = append(to.more, f)
			}
		case key != "":
			var f *setting
			if f, err = d.field(to, t, field, key, value); err == nil {
				to.fields = append(to.fields, f)
			}
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// field describes a field of a struct.
func (d *describer) field(parent *setting, of reflect.Type, field reflect.StructField, key string, v reflect.Value) (*setting, error) {
	s := &setting{key: key, path: strings.TrimPrefix(parent.path+"::"+key, "::"), theirs: !slices.Contains(ownPackages, of.PkgPath()), research: parent.research, declared: fmt.Sprint(of, ".", field.Name)}
	if short := field.Tag.Get("short"); short != "" {
		s.short = strings.Split(short, ",")
	}
	comment, err := d.comment(of, field.Name)
	if err != nil {
		return nil, err
	}
	for _, line := range comment.List {
		s.research = s.research || line.Text == "//reference:research"
	}
	s.doc = phrase(strings.Join(strings.Fields(comment.Text()), " "), field.Name)
	s.example = field.Tag.Get("keys")
	err = d.value(s, v)
	if stated := field.Tag.Get("default"); stated != "" {
		s.fallback = stated
	}
	return s, err
}

// phrase returns a doc comment without the name of the field.
func phrase(doc, name string) string {
	rest, ok := strings.CutPrefix(doc, name+" ")
	if !ok {
		return doc
	}
	for _, verb := range []string{"is ", "are "} {
		rest = strings.TrimPrefix(rest, verb)
	}
	return string(unicode.ToUpper(rune(rest[0]))) + rest[1:]
}

// value describes the value of a setting, whose default is v.
func (d *describer) value(s *setting, v reflect.Value) error {
	t := v.Type()
	if strings.HasPrefix(t.Name(), "Optional[") {
		own := reflect.New(t)
		own.Elem().Set(v)
		v = own.MethodByName("GetOrInsertDefault").Call(nil)[0]
		return d.value(s, v.Elem())
	}
	if !v.IsZero() {
		s.fallback = v.Interface()
	}
	switch {
	case t == reflect.TypeFor[time.Duration]():
		s.kind, s.fallback = "duration", v.Interface()
	case t == reflect.TypeFor[component.ID](), t == reflect.TypeFor[*component.ID]():
		s.kind = "string"
	case t == reflect.TypeFor[filter.Config]():
		s.kind = "filter"
	case strings.HasSuffix(t.Name(), "MetricConfig"):
		s.kind, s.fallback = "metric", object{"enabled": v.FieldByName("Enabled").Bool()}
	case strings.HasSuffix(t.Name(), "ResourceAttributeConfig"):
		s.kind, s.fallback = "resource_attribute", object{"enabled": v.FieldByName("Enabled").Bool()}
	default:
		return d.byKind(s, v)
	}
	return nil
}

// byKind describes a value of a type without a format of its own.
func (d *describer) byKind(s *setting, v reflect.Value) (err error) {
	switch t := v.Type(); t.Kind() {
	case reflect.Pointer:
		return d.value(s, reflect.Zero(t.Elem()))
	case reflect.String:
		s.kind = "string"
		if !s.theirs {
			s.values, err = allowed(s.path, noSuchValue)
		}
	case reflect.Bool:
		s.kind = "boolean"
	case reflect.Int, reflect.Int64, reflect.Uint32:
		s.kind = "integer"
	case reflect.Float64:
		s.kind = "number"
	case reflect.Slice:
		s.kind = "array"
		s.element = &setting{path: s.path + "::0", theirs: s.theirs, research: s.research}
		return d.value(s.element, reflect.New(t.Elem()).Elem())
	case reflect.Map:
		s.kind, s.fallback = "object", nil
		s.element = &setting{path: s.path + "::" + s.example, theirs: s.theirs, research: s.research}
		if !s.theirs {
			if s.keys, err = allowed(s.path+"::"+noSuchValue, emptyOf(t.Elem())); err != nil {
				return err
			}
		}
		return d.value(s.element, reflect.New(t.Elem()).Elem())
	case reflect.Struct:
		s.kind, s.fallback = "object", nil
		if init := v.Addr(); s.key == s.example && s.key != "" { // a value of a map has its defaults once it is decoded
			if err := confmap.NewFromStringMap(nil).Unmarshal(init.Interface(), confmap.WithForceUnmarshaler()); err != nil {
				return err
			}
		}
		if s.theirs && !strings.Contains(t.PkgPath(), "energyreceiver/") {
			return nil
		}
		return d.object(s, v)
	default:
		return fmt.Errorf("%s: no description of the type %v", s.path, t)
	}
	return err
}

// comment returns the doc comment of a field, empty for an undocumented field of the collector.
func (d *describer) comment(of reflect.Type, field string) (*ast.CommentGroup, error) {
	pkg := of.PkgPath()
	if !d.parsed[pkg] {
		if err := d.parse(pkg); err != nil {
			return nil, err
		}
	}
	if comment := d.comments[of.String()][field]; comment != nil {
		return comment, nil
	}
	if slices.Contains(ownPackages, pkg) {
		return nil, fmt.Errorf("%v.%s has no doc comment", of, field)
	}
	return &ast.CommentGroup{}, nil
}

// parse reads the doc comments of a package.
func (d *describer) parse(pkg string) error {
	d.parsed[pkg] = true
	out, err := exec.Command("go", "list", "-f", "{{.Dir}} {{.Name}}", pkg).Output()
	if err != nil {
		return fmt.Errorf("go list %s: %w", pkg, err)
	}
	dir, name, _ := strings.Cut(strings.TrimSpace(string(out)), " ")
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		return err
	}
	for _, path := range files {
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ParseComments)
		if err != nil {
			return err
		}
		ast.Inspect(file, func(n ast.Node) bool {
			spec, ok := n.(*ast.TypeSpec)
			if !ok {
				return true
			}
			if fields, ok := spec.Type.(*ast.StructType); ok {
				comments := map[string]*ast.CommentGroup{}
				for _, field := range fields.Fields.List {
					for _, id := range field.Names {
						comments[id.Name] = field.Doc
					}
				}
				d.comments[name+"."+spec.Name.Name] = comments
			}
			return false
		})
	}
	return nil
}

const noSuchValue = "no such value"

var oneOf = regexp.MustCompile(`must be one of ([^"]*), is "` + noSuchValue + `"`)

// emptyOf returns an empty value of a type.
func emptyOf(t reflect.Type) any {
	if t.Kind() == reflect.Struct {
		return map[string]any{}
	}
	return ""
}

// allowed returns the values that the error about a setting with the value noSuchValue lists, nil
// if any value is valid. If the path ends in the key noSuchValue, allowed returns the valid keys.
func allowed(path string, value any) ([]string, error) {
	errs, err := validate(path, value)
	if err != nil {
		return nil, err
	}
	listed := oneOf.FindStringSubmatch(errs)
	if listed == nil {
		return nil, nil
	}
	return strings.Split(listed[1], ", "), nil
}

// missing returns the paths of the settings that a section must have: the errors of an empty one.
func missing(section string) (paths []string, err error) {
	errs, err := validate(section, map[string]any{})
	for _, found := range regexp.MustCompile(`(?m)^(`+regexp.QuoteMeta(section)+`::\w+): `).FindAllStringSubmatch(errs, -1) {
		paths = append(paths, found[1])
	}
	return paths, err
}

// validate returns the errors of the default configuration with one setting changed.
func validate(path string, value any) (string, error) {
	keys := strings.Split(path, "::")
	for i := len(keys) - 1; i >= 0; i-- {
		if keys[i] == "0" {
			value = []any{value}
		} else {
			value = map[string]any{keys[i]: value}
		}
	}
	cfg := config.Default()
	if err := confmap.NewFromStringMap(value.(map[string]any)).Unmarshal(cfg); err != nil {
		return "", fmt.Errorf("%s: %w", path, err)
	}
	return fmt.Sprint(confmap.Validate(cfg)), nil
}
