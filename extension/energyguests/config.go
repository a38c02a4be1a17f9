// SPDX-License-Identifier: Apache-2.0

package energyguests

import (
	"errors"
	"fmt"
	"path/filepath"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/config/configoptional"

	"github.com/energyreceiver/energyreceiver/internal/power/guest"
)

// Config is the configuration of the extension. It must have a path, vsock, or both.
type Config struct {
	// Receiver is the ID of the energy receiver whose figures the virtual machines get.
	Receiver component.ID `mapstructure:"receiver"`
	// Path is the absolute path of a directory that has a subdirectory with the energy of each
	// virtual machine. Share this subdirectory with the machine, read-only.
	Path string `mapstructure:"path"`
	// Vsock serves the virtual machines over vsock.
	Vsock configoptional.Optional[VsockConfig] `mapstructure:"vsock"`

	_ struct{}
}

// VsockConfig is a vsock port of the host.
type VsockConfig struct {
	// Port is the vsock port at which the extension listens, from 1 to 4294967294.
	Port int64 `mapstructure:"port"`

	_ struct{}
}

func createDefaultConfig() component.Config {
	return &Config{Receiver: component.NewID(component.MustNewType("energy"))}
}

// Validate implements xconfmap.Validator. The error names the field.
func (c *Config) Validate() error {
	switch {
	case c.Path == "" && !c.Vsock.HasValue():
		return errors.New("path: must be set if vsock is not")
	case c.Path != "" && !filepath.IsAbs(c.Path):
		return fmt.Errorf("path: must be an absolute path, is %q", c.Path)
	}
	if v := c.Vsock.Get(); v != nil {
		if err := guest.CheckPort(v.Port); err != nil {
			return fmt.Errorf("vsock::port: %w", err)
		}
	}
	return nil
}
