// SPDX-License-Identifier: Apache-2.0

// Command collector builds a collector with the OpenTelemetry collector builder.
//
//	go run ./deploy/collector -out DIRECTORY [-version VERSION] NAME [FLAGS of the builder]
//
// builder-config.yaml lists the default collector. The others also have the components of
// deploy/builder-config-kubernetes.yaml and deploy/builder-config-NAME.yaml. If
// deploy/builder-config-NAME.mod and .sum exist, the collector is built from these versions and sums.
package main

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

func main() {
	out := flag.String("out", "build", "directory of the generated code and of the program")
	version := flag.String("version", "", "version that the program prints")
	flag.Parse()
	if err := build(*out, *version, flag.Arg(0), flag.Args()[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func build(out, version, name string, flags []string) error {
	config, err := read("builder-config.yaml")
	if err != nil {
		return err
	}
	var additions []string
	if name != "default" {
		additions = slices.Compact([]string{"kubernetes", name})
	}
	for _, addition := range additions {
		more, err := read("deploy/builder-config-" + addition + ".yaml")
		if err != nil {
			return err
		}
		add(config, more)
	}
	dist := config["dist"].(map[string]any)
	dist["output_path"] = out
	dist["version"] = cmp.Or(version, dist["version"].(string))
	text, err := yaml.Marshal(config)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(out, 0o755); err != nil { //nolint:gosec // users who run the collector read it
		return err
	}
	path := filepath.Join(out, "builder-config.yaml")
	if err := os.WriteFile(path, text, 0o600); err != nil {
		return err
	}
	args := append([]string{"tool", "-modfile=internal/tools/go.mod", "builder", "--config", path}, flags...)
	named := "deploy/builder-config-" + name
	if mod, err := os.ReadFile(named + ".mod"); err == nil {
		args = append(args, "--skip-get-modules")
		if err := copyModule(out, string(mod), named+".sum"); err != nil {
			return err
		}
	}
	builder := exec.Command("go", args...)
	builder.Env = append(os.Environ(), "GOWORK=off", "CGO_ENABLED=0")
	builder.Stdout, builder.Stderr = os.Stdout, os.Stderr
	return builder.Run()
}

func read(path string) (map[string]any, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var config map[string]any
	return config, yaml.Unmarshal(text, &config)
}

// add adds the components and the settings of another configuration.
func add(config, more map[string]any) {
	for key, value := range more {
		switch v := value.(type) {
		case []any:
			list, _ := config[key].([]any)
			config[key] = append(list, v...)
		case map[string]any:
			add(config[key].(map[string]any), v)
		default:
			config[key] = v
		}
	}
}

// copyModule writes go.mod and go.sum. The replacements of mod are relative to build/NAME.
func copyModule(out, mod, sum string) error {
	absolute, err := filepath.Abs(out)
	if err != nil {
		return err
	}
	checkout, err := os.Getwd()
	if err != nil {
		return err
	}
	root, err := filepath.Rel(absolute, checkout)
	if err != nil {
		return err
	}
	sums, err := os.ReadFile(sum)
	if err != nil {
		return err
	}
	mod = strings.ReplaceAll(mod, "=> ../..", "=> "+root)
	return errors.Join(
		os.WriteFile(filepath.Join(out, "go.mod"), []byte(mod), 0o600),
		os.WriteFile(filepath.Join(out, "go.sum"), sums, 0o600),
	)
}
