// SPDX-License-Identifier: Apache-2.0

// Package receiverconfig reads the configuration of an energy receiver that runs in no collector.
package receiverconfig

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/config/configoptional"
	"go.opentelemetry.io/collector/confmap"
	"go.opentelemetry.io/collector/confmap/provider/envprovider"
	"go.opentelemetry.io/collector/confmap/provider/fileprovider"
	"go.opentelemetry.io/collector/confmap/provider/yamlprovider"

	energyreceiver "github.com/energyreceiver/energyreceiver/receiver"
)

// Load reads the configuration of an energy receiver from a file of a whole collector, or of the
// receiver's section alone, with or without its name. ${env:NAME} and ${file:NAME} are replaced as
// a collector does. id selects one of several energy receivers: "energy" or "energy/name". It may
// be empty if there is only one.
//
// Extensions that the configuration names do not run, so Load removes the settings that need
// them, and returns their names. If storage is a directory, Load replaces it by the path of the
// receiver's state file.
func Load(ctx context.Context, file, id string) (cfg *energyreceiver.Config, without []string, err error) {
	cfg = energyreceiver.DefaultConfig()
	if id, err = read(ctx, file, id, cfg); err != nil {
		return nil, nil, fmt.Errorf("%s: %s", file, plain(err))
	}
	if len(cfg.Meters.GPU.Extensions) > 0 {
		cfg.Meters.GPU.Extensions = nil
		without = append(without, "meters::gpu::extensions")
	}
	switch {
	case filepath.IsAbs(cfg.Storage):
		cfg.Storage = energyreceiver.StateFile(cfg.Storage, id)
	case cfg.Storage != "":
		cfg.Storage = ""
		without = append(without, "storage")
	}
	return cfg, without, nil
}

// noise matches the parts of errors of confmap that name neither a setting nor a cause.
var noise = regexp.MustCompile(`decoding failed due to the following error\(s\):\s*|''\s*|retrieved value .*: yaml: `)

// plain returns the text of an error in one line, without noise.
func plain(err error) string {
	return strings.ReplaceAll(noise.ReplaceAllString(err.Error(), ""), "\n", "; ")
}

// read reads the receiver's section into cfg, and returns the receiver's ID.
func read(ctx context.Context, file, id string, cfg *energyreceiver.Config) (receiver string, err error) {
	conf, err := resolve(ctx, file)
	if err != nil {
		return "", err
	}
	if conf, receiver, err = sectionOf(conf, id); err != nil {
		return "", err
	}
	if err := conf.Unmarshal(cfg); err != nil {
		return "", err
	}
	if cfg.RootPath != "" {
		if _, err := os.Stat(cfg.RootPath); err != nil {
			return "", fmt.Errorf("root_path: %w", err)
		}
	}
	return receiver, confmap.Validate(cfg)
}

func resolve(ctx context.Context, file string) (*confmap.Conf, error) {
	if _, err := os.Stat(file); err != nil {
		return nil, errors.Unwrap(err)
	}
	resolver, err := confmap.NewResolver(confmap.ResolverSettings{
		URIs:              []string{"file:" + file},
		ProviderFactories: []confmap.ProviderFactory{fileprovider.NewFactory(), envprovider.NewFactory(), yamlprovider.NewFactory()},
		DefaultScheme:     "env",
	})
	if err != nil {
		return nil, err
	}
	conf, err := resolver.Resolve(ctx)
	return conf, errors.Join(err, resolver.Shutdown(ctx))
}

// sectionOf returns the receiver's section and ID.
func sectionOf(conf *confmap.Conf, id string) (section *confmap.Conf, receiver string, err error) {
	receivers := conf
	if conf.IsSet("receivers") {
		if receivers, err = conf.Sub("receivers"); err != nil {
			return nil, "", err
		}
	}
	var names []string
	for _, name := range slices.Sorted(maps.Keys(receivers.ToStringMap())) {
		var parsed component.ID
		if parsed.UnmarshalText([]byte(name)) == nil && parsed.Type() == energyreceiver.NewFactory().Type() {
			names = append(names, name)
		}
	}
	if id == "" && len(names) == 1 {
		id = names[0]
	}
	switch {
	case slices.Contains(names, id):
		section, err = receivers.Sub(id)
		return section, id, err
	case id != "":
		return nil, "", fmt.Errorf("there is no receiver %q", id)
	case len(names) > 1:
		return nil, "", fmt.Errorf("there are several energy receivers: name one of %s", strings.Join(names, ", "))
	case conf.IsSet("receivers"):
		return nil, "", errors.New("there is no energy receiver")
	}
	return conf, energyreceiver.NewFactory().Type().String(), nil
}

// Model returns the power model of a short form. The form is auto, or the path of a trained model or of
// a directory of trained models. It may also be the power at idle and at full load in watts: 35-120.
func Model(value string) (of configoptional.Optional[energyreceiver.ModelConfig], err error) {
	var model any
	idle, full, isPair := strings.Cut(value, "-")
	low, lowErr := strconv.ParseFloat(idle, 64)
	high, highErr := strconv.ParseFloat(full, 64)
	switch {
	case value == "auto":
		model = value
	case isPair && lowErr == nil && highErr == nil:
		model = map[string]any{"idle_power": low, "max_power": high}
	default:
		if _, err := os.Stat(value); err != nil {
			return of, fmt.Errorf("%q is neither auto, nor two powers in watts such as 35-120, nor a file of a trained model", value)
		}
		model = map[string]any{"file": value}
	}
	cfg := energyreceiver.DefaultConfig()
	if err := confmap.NewFromStringMap(map[string]any{"model": model}).Unmarshal(cfg); err != nil {
		return of, err
	}
	return cfg.Model, cfg.Validate()
}
