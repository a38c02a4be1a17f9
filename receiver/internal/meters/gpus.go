// SPDX-License-Identifier: Apache-2.0

package meters

import (
	"errors"
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/energyreceiver/energyreceiver/internal/kernfs"
	"github.com/energyreceiver/energyreceiver/internal/oneline"
	"github.com/energyreceiver/energyreceiver/internal/power"
	"github.com/energyreceiver/energyreceiver/internal/usage/gpu"
	"github.com/energyreceiver/energyreceiver/internal/usage/gpu/drm"
	"github.com/energyreceiver/energyreceiver/internal/usage/proc"
	"github.com/energyreceiver/energyreceiver/receiver/internal/config"
)

// gpus reads the usage of the node's GPUs by process.
type gpus struct {
	sources []gpu.Source
	// drm is nil if it is not used. It is read only after a meter has returned a GPU that no other
	// source reports, because most machines have only a graphics chip in the CPU, which has no
	// meter.
	drm     gpu.Source
	queried bool // drm was read
	Usage   []gpu.Usage
	notes   gpuNotes
}

// gpuMeter is a meter of GPUs that also reads their usage.
type gpuMeter interface {
	// Usage returns the source of GPU usage. The meter closes it.
	Usage() gpu.Source
}

// open opens the sources. It does not access the machine.
func (g *gpus) open(cfg *config.Config, meters *power.Set, logger *zap.Logger, waits *kernfs.Waits) {
	g.notes = gpuNotes{cfg: cfg, logger: logger}
	g.notes.search.Waits = waits
	for _, meter := range meters.Status() {
		if m, ok := meter.Meter.(gpuMeter); ok {
			g.sources = append(g.sources, m.Usage())
		}
	}
	if slices.Contains(cfg.Zones, power.GPU) || cfg.Metrics.HwGpuUtilization.Enabled {
		g.drm = drm.New(drm.Options{Root: cfg.RootPath, Waits: waits})
	}
}

// read returns the usage of each GPU since the last read.
func (g *gpus) read(now time.Time, processes *proc.Table, readings []power.Reading) (_ []gpu.Usage, unknown error) {
	g.Usage = g.Usage[:0]
	read := func(source gpu.Source) {
		usage, err := source.Read(now, processes)
		g.Usage = append(g.Usage, usage...)
		if err != nil {
			unknown = oneline.Join(unknown, err)
		}
	}
	for _, source := range g.sources {
		read(source)
	}
	if g.drm == nil {
		return g.Usage, unknown
	}
	if g.queried = g.queried || slices.ContainsFunc(readings, g.isUnread); g.queried {
		read(g.drm)
	}
	return g.Usage, unknown
}

// isUnread reports whether a reading belongs to a GPU whose usage no source reports.
func (g *gpus) isUnread(r power.Reading) bool {
	return r.Zone.Kind == power.GPU && !slices.ContainsFunc(g.Usage, func(u gpu.Usage) bool { return u.Domain == r.Zone.Domain })
}

func (g *gpus) close() error {
	var errs []error
	for _, source := range g.sources {
		errs = append(errs, source.Close())
	}
	if g.drm != nil {
		errs = append(errs, g.drm.Close())
	}
	return errors.Join(errs...)
}
