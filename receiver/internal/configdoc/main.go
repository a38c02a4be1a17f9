// SPDX-License-Identifier: Apache-2.0

// Command configdoc writes the JSON schema and the reference of the receiver's configuration from
// the Go structs, their doc comments and their defaults. The allowed values of a setting are the
// values that the error of its validation lists.
//
// A field may have these tags. keys is an example of the keys of a map. short lists the strings that
// may replace a map, an upper-case word for any string. The directive reference:research in a
// doc comment moves a setting to the table of rules. notes has links, examples and effective defaults.
package main

import (
	"bytes"
	"fmt"
	"os"

	"github.com/energyreceiver/energyreceiver/receiver/internal/config"
)

const (
	schemaFile    = "config.schema.json"
	referenceFile = "../docs/configuration.md"
)

// The generated part of referenceFile is between these lines.
const (
	before = "<!-- go generate writes what follows -->"
	after  = "<!-- go generate wrote what is above -->"
)

func main() {
	for file, generate := range map[string]func() ([]byte, error){schemaFile: schemaText, referenceFile: pageText} {
		text, err := generate()
		if err == nil {
			err = os.WriteFile(file, text, 0o644) //nolint:gosec // files of the repository
		}
		if err != nil {
			fmt.Fprintf(os.Stderr, "configdoc: %s: %v\n", file, err)
			os.Exit(1)
		}
	}
}

func schemaText() ([]byte, error) {
	root, err := describe(config.Default())
	if err != nil {
		return nil, err
	}
	return schema(root)
}

// pageText returns referenceFile with the generated part replaced.
func pageText() ([]byte, error) {
	root, err := describe(config.Default())
	if err != nil {
		return nil, err
	}
	page, err := os.ReadFile(referenceFile)
	if err != nil {
		return nil, err
	}
	head, rest, ok := bytes.Cut(page, []byte(before+"\n"))
	_, tail, closed := bytes.Cut(rest, []byte(after))
	if !ok || !closed {
		return nil, fmt.Errorf("must have the lines %q and %q", before, after)
	}
	generated, err := reference(root)
	return fmt.Appendf(nil, "%s%s\n\n%s%s%s", head, before, generated, after, tail), err
}
