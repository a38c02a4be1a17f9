// SPDX-License-Identifier: Apache-2.0

package trained

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"unicode"

	"github.com/energyreceiver/energyreceiver/internal/power"
)

// maxDepth is how deep a file's JSON may nest. Those of both formats have five levels.
const maxDepth = 8

var errNotObject = errors.New("it is not a JSON object")

// wellFormed returns an error unless data is one JSON object that nests to maxDepth, whose objects
// have no name twice, and whose names and texts can be printed.
func wellFormed(data []byte) error {
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	first, err := d.Token()
	if err == nil && first != json.Delim('{') {
		err = errNotObject
	}
	if err != nil {
		return err
	}
	if err := members(d, 1); err != nil {
		return err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errors.New("there is more after the JSON object")
	}
	return nil
}

// members reads the rest of an object, up to its end.
func members(d *json.Decoder, depth int) error {
	seen := map[string]bool{}
	for d.More() {
		t, err := d.Token()
		if err != nil {
			return err
		}
		name, _ := t.(string) // the decoder has no other names
		if err := printable(name); err != nil {
			return err
		}
		folded := strings.ToLower(name) // package json matches names case-insensitively
		if seen[folded] {
			return fmt.Errorf("%q is there twice", name)
		}
		seen[folded] = true
		if err := value(d, depth, folded == "xgboost_weights"); err != nil {
			return err
		}
	}
	_, err := d.Token()
	return err
}

// value reads a value. The text of an opaque one, in base64, is never printed.
func value(d *json.Decoder, depth int, opaque bool) error {
	t, err := d.Token()
	if err != nil {
		return err
	}
	switch t := t.(type) {
	case string:
		if opaque {
			return nil
		}
		return printable(t)
	case json.Delim:
		if depth == maxDepth {
			return fmt.Errorf("nested deeper than %d", maxDepth)
		}
		if t == '{' {
			return members(d, depth+1)
		}
		for d.More() {
			if err := value(d, depth+1, false); err != nil {
				return err
			}
		}
		_, err = d.Token()
	}
	return err
}

// printable returns an error where a text has what would confuse a log.
func printable(s string) error {
	if len(s) > maxText || strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return fmt.Errorf("%.40q is too long, or cannot be printed", s)
	}
	return nil
}

// parse reads a model of either format.
func parse(data []byte, path string) (*trainedModel, error) {
	name := filepath.Base(path)
	if err := printable(name); err != nil {
		return nil, fmt.Errorf("name of the file: %w", err)
	}
	if err := wellFormed(data); err != nil {
		return nil, err
	}
	var head struct {
		Version *json.RawMessage `json:"version"`
	}
	if err := json.Unmarshal(data, &head); err != nil {
		return nil, err
	}
	if head.Version == nil {
		return parseKepler(data, path)
	}
	m, err := parseModel(data)
	if err != nil {
		return nil, err
	}
	t := &trainedModel{name: name, by: "energy model", machine: m.Machine, zones: map[power.Kind]zone{}}
	for k, z := range m.Zones {
		t.zones[k] = &z
	}
	return t, nil
}
