// SPDX-License-Identifier: Apache-2.0

package energyreceiver

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"

	"go.uber.org/zap"

	"github.com/energyreceiver/energyreceiver/internal/workload"
)

// NamesConfig says where names of containers and pods are read.
type NamesConfig struct {
	// From are the sources that are read where they are there: kubelet, containerd, cri-o, podman, docker. None turns names off.
	From []workload.NameSource `mapstructure:"from"`
	// Directories are the directories of sources that are not in their usual places, below RootPath.
	Directories map[workload.NameSource]string `mapstructure:"directories"`

	_ struct{}
}

func (c *NamesConfig) validate(wrong func(field, format string, args ...any)) {
	for i, source := range c.From {
		field := fmt.Sprintf("names::from::%d", i)
		oneOf(wrong, field, source, workload.NameSources...)
		if slices.Contains(c.From[:i], source) {
			wrong(field, "%q is named twice", source)
		}
	}
	for _, source := range slices.Sorted(maps.Keys(c.Directories)) {
		field := fmt.Sprintf("names::directories::%s", source)
		switch dir := c.Directories[source]; {
		case !slices.Contains(workload.NameSources, source):
			wrong(field, "must be one of %s", join(workload.NameSources))
		case !filepath.IsAbs(dir):
			wrong(field, "must be an absolute path, is %q", dir)
		}
	}
}

// nameOptions returns where names are read.
func (c *Config) nameOptions() workload.NamesOptions {
	return workload.NamesOptions{Root: c.RootPath, Sources: c.Names.From, Directories: c.Names.Directories}
}

// openNames returns what reads names, nil if nothing does, and what reads those of pods.
func (c *Config) openNames() (*workload.Names, *workload.PodLogs) {
	o := c.nameOptions()
	o.Pods = workload.NewPodLogs(filepath.Join(o.Dirs(workload.NamesKubelet)[0], "pods"))
	if len(c.Names.From) == 0 {
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
