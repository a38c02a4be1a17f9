// SPDX-License-Identifier: Apache-2.0

// Command schemas writes JSON schemas for kubeconform, so that it needs no network: schemas of
// Kubernetes from the swagger.json of the module k8s.io/kubernetes, and schemas of custom resources
// from their definitions.
//
//	schemas DIRECTORY SWAGGER.json CRD.yaml...
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"sigs.k8s.io/yaml"
)

type object = map[string]any

func main() {
	if err := run(os.Args[1], os.Args[2], os.Args[3:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(out, swagger string, definitions []string) error {
	if err := os.MkdirAll(out, 0o755); err != nil {
		return err
	}
	errs := []error{kubernetes(out, swagger)}
	for _, file := range definitions {
		errs = append(errs, custom(out, file))
	}
	return errors.Join(errs...)
}

// kubernetes writes the schema of each kind, with references to one file of all definitions.
func kubernetes(out, file string) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	var api struct {
		Definitions map[string]object `json:"definitions"`
	}
	if err := json.Unmarshal(text, &api); err != nil {
		return err
	}
	for name, d := range api.Definitions {
		if strings.HasSuffix(name, ".IntOrString") || strings.HasSuffix(name, ".Quantity") {
			api.Definitions[name] = object{"type": []string{"string", "integer", "number"}}
			continue
		}
		strict(d)
	}
	if err := write(out, "definitions", object{"definitions": api.Definitions}); err != nil {
		return err
	}
	for name, d := range api.Definitions {
		kinds, _ := d["x-kubernetes-group-version-kind"].([]any)
		if len(kinds) != 1 {
			continue
		}
		kind := kinds[0].(object)
		group, _, _ := strings.Cut(kind["group"].(string), ".")
		reference := object{"$ref": "definitions.json#/definitions/" + name}
		if err := write(out, fileName(kind["kind"].(string), group, kind["version"].(string)), reference); err != nil {
			return err
		}
	}
	return nil
}

// custom writes the schema of each version of a custom resource.
func custom(out, file string) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	var crd struct {
		Spec struct {
			Group string `json:"group"`
			Names struct {
				Kind string `json:"kind"`
			} `json:"names"`
			Versions []struct {
				Name   string `json:"name"`
				Schema struct {
					Root object `json:"openAPIV3Schema"`
				} `json:"schema"`
			} `json:"versions"`
		} `json:"spec"`
	}
	if err := yaml.Unmarshal(text, &crd); err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	for _, version := range crd.Spec.Versions {
		strict(version.Schema.Root)
		group, _, _ := strings.Cut(crd.Spec.Group, ".")
		if err := write(out, fileName(crd.Spec.Names.Kind, group, version.Name), version.Schema.Root); err != nil {
			return err
		}
	}
	return nil
}

// strict rejects properties that a schema does not have, which the API server warns about, and
// converts constructs that JSON schema does not have.
func strict(schema object) {
	if schema["x-kubernetes-int-or-string"] == true || schema["format"] == "int-or-string" {
		for _, key := range []string{"anyOf", "format", "pattern"} {
			delete(schema, key)
		}
		schema["type"] = []string{"string", "integer"}
		return
	}
	if schema["nullable"] == true {
		delete(schema, "type")
	}
	properties, ok := schema["properties"].(object)
	if ok && schema["additionalProperties"] == nil && schema["x-kubernetes-preserve-unknown-fields"] != true {
		schema["additionalProperties"] = false
	}
	for _, p := range properties {
		strict(p.(object))
	}
	for _, key := range []string{"items", "additionalProperties"} {
		if s, ok := schema[key].(object); ok {
			strict(s)
		}
	}
}

// fileName is the name that kubeconform looks for: {{.ResourceKind}}{{.KindSuffix}}.
func fileName(kind, group, version string) string {
	parts := []string{strings.ToLower(kind), group, version}
	if group == "" {
		parts = []string{parts[0], version}
	}
	return strings.Join(parts, "-")
}

func write(out, name string, schema object) error {
	text, err := json.Marshal(schema)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(out, name+".json"), text, 0o644)
}
