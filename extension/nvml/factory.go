// SPDX-License-Identifier: Apache-2.0

package nvml

import (
	"context"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/extension"

	"github.com/energyreceiver/energyreceiver/extension/gpulibrary"
	"github.com/energyreceiver/energyreceiver/extension/nvml/internal/gpus"
	"github.com/energyreceiver/energyreceiver/extension/nvml/internal/metadata"
	"github.com/energyreceiver/energyreceiver/extension/nvml/internal/nvml"
)

// NewFactory returns the factory of the extension.
func NewFactory() extension.Factory {
	return extension.NewFactory(metadata.Type, createDefaultConfig, create, metadata.ExtensionStability)
}

func create(_ context.Context, _ extension.Settings, config component.Config) (extension.Extension, error) {
	return &library{name: config.(*Config).Library}, nil
}

// library implements the extension. It loads NVML when a receiver first polls a reader. The
// extension therefore starts on a machine without an NVIDIA GPU, and the receiver reports the
// missing GPU.
type library struct {
	component.StartFunc
	component.ShutdownFunc

	name string
}

var _ gpulibrary.Extension = (*library)(nil)

// Open implements gpulibrary.Extension.
func (l *library) Open() gpulibrary.Reader {
	return gpus.New(func() (nvml.Library, error) { return nvml.Open(l.name) })
}
