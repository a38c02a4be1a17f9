// SPDX-License-Identifier: Apache-2.0

package energyreceiver

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"go.opentelemetry.io/collector/component"
	"go.uber.org/zap"

	"github.com/energyreceiver/energyreceiver/internal/power"
	"github.com/energyreceiver/energyreceiver/internal/usage/cpu"
	"github.com/energyreceiver/energyreceiver/internal/usage/gpu"
	"github.com/energyreceiver/energyreceiver/internal/usage/gpu/drm"
)

// GPUConfig says how GPUs are read.
type GPUConfig struct {
	// Extensions are the component IDs of extensions that read GPUs by the library of a vendor, such as nvml.
	Extensions []component.ID `mapstructure:"extensions"`
	// Interval is how often a library is asked.
	Interval time.Duration `mapstructure:"interval"`

	_ struct{}
}

// minGPUInterval is how often a library may be asked: the counters that it reads are refreshed every 20 to 100 ms.
const minGPUInterval = 100 * time.Millisecond

func (c *GPUConfig) validate(wrong func(field, format string, args ...any)) {
	if c.Interval < minGPUInterval {
		wrong("gpu::interval", "must be at least %v, is %v", minGPUInterval, c.Interval)
	}
	seen := map[component.ID]bool{}
	for i, id := range c.Extensions {
		if seen[id] {
			wrong(fmt.Sprintf("gpu::extensions::%d", i), "%q is named twice", id)
		}
		seen[id] = true
	}
}

// gpus reads who used the node's GPUs.
type gpus struct {
	sources []gpu.Source
	usage   []gpu.Usage
	notes   gpuNotes
}

// gpuMeter is a meter of GPUs that knows who used them, too.
type gpuMeter interface {
	// Usage returns the source of who used the GPUs. The meter closes it.
	Usage() gpu.Source
}

// open opens the sources. It touches nothing of the machine.
func (g *gpus) open(cfg *Config, meters *power.Set, logger *zap.Logger) {
	g.notes = gpuNotes{cfg: cfg, logger: logger}
	for _, meter := range meters.Status() {
		if m, ok := meter.Meter.(gpuMeter); ok {
			g.sources = append(g.sources, m.Usage())
		}
	}
	if slices.Contains(cfg.Zones, power.GPU) || cfg.Metrics.HwGpuUtilization.Enabled {
		g.sources = append(g.sources, drm.New(drm.Options{Root: cfg.RootPath}))
	}
}

// read returns who used each GPU since the last read.
func (g *gpus) read(now time.Time, processes *cpu.Table) (_ []gpu.Usage, unknown error) {
	g.usage = g.usage[:0]
	for _, source := range g.sources {
		usage, err := source.Read(now, processes)
		g.usage = append(g.usage, usage...)
		if err != nil {
			unknown = joined(unknown, err)
		}
	}
	return g.usage, unknown
}

func (g *gpus) close() error {
	var errs []error
	for _, source := range g.sources {
		errs = append(errs, source.Close())
	}
	return errors.Join(errs...)
}
