// SPDX-License-Identifier: Apache-2.0

package drivers

import (
	"context"
	"fmt"
	"regexp"
	"time"

	"go.opentelemetry.io/collector/component"

	"github.com/energyreceiver/energyreceiver/extension/gpulibrary"
	"github.com/energyreceiver/energyreceiver/internal/invalid"
	"github.com/energyreceiver/energyreceiver/internal/power"
	"github.com/energyreceiver/energyreceiver/internal/usage/gpu/library"
)

// gpuDriver matches the IDs of PCI devices. hwmon may read the same devices, but lag, factor and
// offset of hwmon do not apply to them.
var gpuDriver = Driver{
	Name: "gpu", Energy: "measured by the extensions of meters::gpu", Only: power.GPU,
	IDs:      regexp.MustCompile(`^[0-9a-f]+:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]:`),
	Sections: func(c *Config) []Section { return single("gpu", &c.GPU) },
	Defaults: func(c *Config) { c.GPU.PollInterval = defaultGPUInterval },
	Open:     openGPULibraries,
}

// GPUConfig configures the extensions that read GPUs.
type GPUConfig struct {
	PollConfig `mapstructure:",squash"`

	// Extensions are the component IDs of extensions that read GPUs through a vendor's library,
	// such as nvml. Each of them must also be listed in service::extensions.
	Extensions []component.ID `mapstructure:"extensions"`

	_ struct{}
}

const (
	defaultGPUInterval = time.Second
	// minGPUInterval and maxGPUInterval are the bounds of PollInterval. Drivers refresh the counters
	// every 20 to 100 ms, and NVIDIA's driver keeps samples of GPU usage for about 8 s.
	minGPUInterval = 100 * time.Millisecond
	maxGPUInterval = 5 * time.Second
)

func (c *GPUConfig) validate(wrong invalid.Reporter) {
	if i := c.PollInterval; i < minGPUInterval || i > maxGPUInterval {
		wrong("poll_interval", "must be from %v to %v, is %v", minGPUInterval, maxGPUInterval, i)
	}
	seen := map[component.ID]bool{}
	for i, id := range c.Extensions {
		if seen[id] {
			wrong(fmt.Sprintf("extensions::%d", i), "%q is listed twice", id)
		}
		seen[id] = true
	}
}

// interval returns the time between two polls of a library. Each collection contains at least
// two polls.
func (c *GPUConfig) interval(collection time.Duration) time.Duration {
	return min(c.PollInterval, max(collection/2, minGPUInterval))
}

// openGPULibraries opens the extensions that read GPUs. A missing extension is an error.
func openGPULibraries(_ context.Context, c *Config, env *Env) (power.Meter, error) {
	extensions := env.Host.GetExtensions()
	libraries := make([]library.Library, len(c.GPU.Extensions))
	for i, id := range c.GPU.Extensions {
		found, ok := extensions[id]
		if !ok {
			return nil, fmt.Errorf("meters::gpu::extensions: extension %q is not enabled: add it to extensions and to service::extensions", id)
		}
		extension, ok := found.(gpulibrary.Extension)
		if !ok {
			return nil, fmt.Errorf("meters::gpu::extensions: %q is not an extension that reads GPUs", id)
		}
		libraries[i] = library.Library{Name: id.String(), Open: extension.Open}
	}
	return library.New(libraries, library.Options{Root: env.Root, Every: c.GPU.interval(env.Interval)}), nil
}
