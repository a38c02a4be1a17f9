// SPDX-License-Identifier: Apache-2.0

package main

import (
	"maps"
	"slices"

	"go.opentelemetry.io/collector/component"

	energyreceiver "github.com/energyreceiver/energyreceiver/receiver"
)

// gpuLibraries are the extensions that read GPUs by a vendor's library. They need a dynamic linker,
// so only a build with the tag nvml has any.
var gpuLibraries map[component.ID]component.Component

// readGPUs adds the extensions of this build to a configuration. without has the settings that were
// left out of it.
func readGPUs(cfg *energyreceiver.Config, without []string) []string {
	if len(gpuLibraries) == 0 {
		return without
	}
	cfg.Meters.GPU.Extensions = slices.Collect(maps.Keys(gpuLibraries))
	return slices.DeleteFunc(without, func(setting string) bool { return setting == "meters::gpu::extensions" })
}
