// SPDX-License-Identifier: Apache-2.0

package energyprofile

import (
	"errors"
	"time"

	"go.opentelemetry.io/collector/component"
)

// Config is the configuration of the processor.
type Config struct {
	// Receiver is the ID of the energy receiver, which must be in the same collector.
	Receiver component.ID `mapstructure:"receiver"`
	// Zones lists the zone kinds whose energy is divided among CPU samples. If it is empty, these are
	// all zone kinds that do not overlap, without gpu.
	Zones []string `mapstructure:"zones"`
	// Wait is the time after which energy of a process without CPU samples becomes a frame [not sampled].
	Wait time.Duration `mapstructure:"wait"`
	// GPU adds a frame [gpu] to each process that used a GPU, with the energy of the zone kind gpu.
	GPU bool `mapstructure:"gpu"`
	// Idle adds a frame [idle] with the idle energy of the node.
	Idle bool `mapstructure:"idle"`
	// Unattributed adds a frame [unattributed] with the active energy that no process has.
	Unattributed bool `mapstructure:"unattributed"`
	// ServiceName sets service.name of resources without one to the name of their executable.
	ServiceName bool `mapstructure:"service_name"`
	// ForeignSamples accepts CPU samples of profilers in other processes. Their senders can then choose
	// the stacks of all processes, but not the energy.
	ForeignSamples bool `mapstructure:"foreign_samples"`

	_ struct{}
}

func createDefaultConfig() component.Config {
	return &Config{Receiver: component.NewID(component.MustNewType("energy")), Wait: 30 * time.Second, GPU: true, ServiceName: true}
}

// Validate implements xconfmap.Validator.
func (c *Config) Validate() error {
	if c.Wait < 0 {
		return errors.New("wait: must not be negative")
	}
	return nil
}
