// SPDX-License-Identifier: Apache-2.0

package nvml

import (
	"errors"
	"path/filepath"
	"strings"

	"go.opentelemetry.io/collector/component"
)

// Config is the configuration of the extension.
type Config struct {
	// Library is the NVML library: a name that the dynamic loader searches for, or an absolute path.
	Library string `mapstructure:"library"`

	_ struct{}
}

// defaultLibrary is the name under which the NVIDIA driver installs NVML.
const defaultLibrary = "libnvidia-ml.so.1"

func createDefaultConfig() component.Config { return &Config{Library: defaultLibrary} }

// Validate implements xconfmap.Validator. The error names the field.
func (c *Config) Validate() error {
	switch {
	case c.Library == "":
		return errors.New("library: must be a name or an absolute path, is empty")
	case strings.ContainsRune(c.Library, 0):
		return errors.New("library: has a NUL character")
	case strings.Contains(c.Library, "/") && !filepath.IsAbs(c.Library):
		return errors.New("library: must be a name or an absolute path, is the relative path " + c.Library)
	}
	return nil
}
