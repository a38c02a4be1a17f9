// SPDX-License-Identifier: Apache-2.0

package config

import (
	"maps"
	"path/filepath"
	"slices"

	"github.com/energyreceiver/energyreceiver/internal/invalid"
	"github.com/energyreceiver/energyreceiver/internal/workload"
)

// NamesConfig configures the sources of the names of containers and pods.
type NamesConfig struct {
	// Paths maps sources to their directories, below root_path. A source that is not listed is read
	// in its usual directories. An empty path disables a source. The sources are kubelet (the
	// directory that contains pods and containers), containerd (its state), cri-o (its run root),
	// podman (its graph root) and docker (its data root).
	Paths map[workload.NameSource]string `mapstructure:"paths" keys:"docker"`

	_ struct{}
}

func (c *NamesConfig) validate(wrong invalid.Reporter) {
	for _, source := range slices.Sorted(maps.Keys(c.Paths)) {
		switch path := c.Paths[source]; {
		case !slices.Contains(workload.NameSources, source):
			invalid.OneOf(wrong, "paths::"+string(source), source, workload.NameSources...)
		case path != "" && !filepath.IsAbs(path):
			wrong("paths::"+string(source), "must be an absolute path or empty, is %q", path)
		}
	}
}

// Disable disables all sources.
func (c *NamesConfig) Disable() {
	c.Paths = map[workload.NameSource]string{}
	for _, source := range workload.NameSources {
		c.Paths[source] = ""
	}
}

// NameOptions returns the sources of names.
func (c *Config) NameOptions() workload.NamesOptions {
	o := workload.NamesOptions{Root: c.RootPath, Directories: c.Names.Paths}
	for _, source := range workload.NameSources {
		if path, isSet := c.Names.Paths[source]; !isSet || path != "" {
			o.Sources = append(o.Sources, source)
		}
	}
	return o
}
