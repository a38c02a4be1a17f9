// SPDX-License-Identifier: Apache-2.0

package config

import (
	"fmt"
	"time"

	"go.opentelemetry.io/collector/component"

	"github.com/energyreceiver/energyreceiver/internal/power/guest"
)

// IPMIConfig configures the meter ipmi.
type IPMIConfig struct {
	PollConfig       `mapstructure:",squash"`
	CorrectionConfig `mapstructure:",squash"`

	_ struct{}
}

func (c *IPMIConfig) validate(wrong reporter) {
	c.PollConfig.validate(wrong, minIPMIInterval)
	c.CorrectionConfig.validate(wrong, c.PollInterval)
}

// minIPMIInterval is the shortest time between two requests. Each keeps the BMC busy for some
// milliseconds to seconds, and its other users waiting.
const minIPMIInterval = 5 * time.Second

// VsockConfig is a vsock port between a host and its virtual machines.
type VsockConfig struct {
	// Port is the vsock port at which the host's receiver listens, from 1 to 4294967294.
	Port int64 `mapstructure:"port"`

	_ struct{}
}

func (c *VsockConfig) validate(wrong reporter) {
	if err := guest.CheckPort(c.Port); err != nil {
		wrong("port", "%w", err)
	}
}

// GPUConfig configures the extensions that read GPUs.
type GPUConfig struct {
	PollConfig `mapstructure:",squash"`

	// Extensions are the component IDs of extensions that read GPUs through a vendor's library,
	// such as nvml. Each must be among service::extensions.
	Extensions []component.ID `mapstructure:"extensions"`

	_ struct{}
}

const (
	defaultGPUInterval = time.Second
	// The bounds of PollInterval: the counters that a library reads are refreshed every 20 to 100
	// ms, and NVIDIA's driver keeps samples of GPU usage for about eight seconds.
	minGPUInterval = 100 * time.Millisecond
	maxGPUInterval = 5 * time.Second
)

func (c *GPUConfig) validate(wrong reporter) {
	if i := c.PollInterval; i < minGPUInterval || i > maxGPUInterval {
		wrong("poll_interval", "must be from %v to %v, is %v", minGPUInterval, maxGPUInterval, i)
	}
	seen := map[component.ID]bool{}
	for i, id := range c.Extensions {
		if seen[id] {
			wrong(fmt.Sprintf("extensions::%d", i), "%q is named twice", id)
		}
		seen[id] = true
	}
}

// GPUInterval returns the time between two polls of a library: there are two or more in a
// collection, so that none is without one.
func (c *Config) GPUInterval() time.Duration {
	return min(c.Meters.GPU.PollInterval, max(c.CollectionInterval/2, minGPUInterval))
}

// PollConfig configures a meter that is polled.
type PollConfig struct {
	// PollInterval is the time between the starts of two polls.
	PollInterval time.Duration `mapstructure:"poll_interval"`

	_ struct{}
}

func (c *PollConfig) validate(wrong reporter, least time.Duration) {
	if c.PollInterval < least {
		wrong("poll_interval", "must be at least %v, is %v", least, c.PollInterval)
	}
}

// PowercapConfig configures the meter powercap.
type PowercapConfig struct {
	// Path is the absolute path of a powercap tree that the hypervisor writes for this virtual
	// machine. The meter reads this tree instead of the machine's own. root_path is not prepended.
	Path string `mapstructure:"path"`

	_ struct{}
}
