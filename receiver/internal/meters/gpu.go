// SPDX-License-Identifier: Apache-2.0

package meters

import (
	"context"
	"fmt"

	"github.com/energyreceiver/energyreceiver/extension/gpulibrary"
	"github.com/energyreceiver/energyreceiver/internal/power"
	"github.com/energyreceiver/energyreceiver/internal/usage/gpu/library"
)

// openGPULibraries opens the extensions that read GPUs. One that does not exist is an error.
func openGPULibraries(_ context.Context, o *meterOptions) (power.Meter, error) {
	if len(o.Meters.GPU.Extensions) == 0 {
		return nil, nil
	}
	extensions := o.host.GetExtensions()
	libraries := make([]library.Library, len(o.Meters.GPU.Extensions))
	for i, id := range o.Meters.GPU.Extensions {
		found, ok := extensions[id]
		if !ok {
			return nil, fmt.Errorf("meters::gpu::extensions: extension %q is not among service::extensions of this collector", id)
		}
		extension, ok := found.(gpulibrary.Extension)
		if !ok {
			return nil, fmt.Errorf("meters::gpu::extensions: %q is not an extension that reads GPUs", id)
		}
		libraries[i] = library.Library{Name: id.String(), Open: extension.Open}
	}
	return library.New(libraries, library.Options{Root: o.RootPath, Every: o.GPUInterval()}), nil
}
