// SPDX-License-Identifier: Apache-2.0

package energyreceiver

import (
	"maps"
	"path/filepath"
	"slices"

	"go.uber.org/zap"

	"github.com/energyreceiver/energyreceiver/internal/workload"
)

// NamesConfig configures the sources of the names of containers and pods.
type NamesConfig struct {
	// Paths maps sources to their directories, below root_path. A source that is not listed is read in its usual directories. An
	// empty path disables a source. The sources are kubelet (the directory that contains pods and containers), containerd (its
	// state), cri-o (its run root), podman (its graph root) and docker (its data root).
	Paths map[workload.NameSource]string `mapstructure:"paths" keys:"docker"`

	_ struct{}
}

func (c *NamesConfig) validate(wrong reporter) {
	for _, source := range slices.Sorted(maps.Keys(c.Paths)) {
		switch path := c.Paths[source]; {
		case !slices.Contains(workload.NameSources, source):
			oneOf(wrong, "paths", source, workload.NameSources...)
		case path != "" && !filepath.IsAbs(path):
			wrong("paths::"+string(source), "must be an absolute path or empty, is %q", path)
		}
	}
}

// disable disables all sources.
func (c *NamesConfig) disable() {
	c.Paths = map[workload.NameSource]string{}
	for _, source := range workload.NameSources {
		c.Paths[source] = ""
	}
}

// nameOptions returns the sources of names.
func (c *Config) nameOptions() workload.NamesOptions {
	o := workload.NamesOptions{Root: c.RootPath, Directories: c.Names.Paths}
	for _, source := range workload.NameSources {
		if path, isSet := c.Names.Paths[source]; !isSet || path != "" {
			o.Sources = append(o.Sources, source)
		}
	}
	return o
}

// openNames returns what reads names, nil if nothing does, and what reads those of pods.
func (c *Config) openNames() (*workload.Names, *workload.PodLogs) {
	o := c.nameOptions()
	o.Pods = workload.NewPodLogs(filepath.Join(o.Dirs(workload.NamesKubelet)[0], "pods"))
	if len(o.Sources) == 0 {
		return nil, o.Pods
	}
	return workload.NewNames(o), o.Pods
}

// logNames logs where names can be read.
func (s *energyScraper) logNames() {
	if s.container != "" {
		return // nothing has names
	}
	o := s.cfg.nameOptions()
	readable, denied := o.Readable()
	if len(readable)+len(denied) == 0 {
		return
	}
	fields := []zap.Field{zap.Any("from", readable)}
	if len(denied) > 0 {
		fields = append(fields, zap.Any("unreadable", denied))
	}
	s.set.Logger.Info("Names of containers selected", fields...)
}
