// SPDX-License-Identifier: Apache-2.0

//go:build nvml

package main

import (
	"context"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/extension"

	"github.com/energyreceiver/energyreceiver/extension/nvml"
)

func init() { //nolint:gochecknoinits // what a build tag adds
	f := nvml.NewFactory()
	id := component.NewID(f.Type())
	library, err := f.Create(context.Background(), extension.Settings{ID: id}, f.CreateDefaultConfig())
	if err != nil {
		panic(err) // it does not access the machine
	}
	gpuLibraries = map[component.ID]component.Component{id: library}
}
