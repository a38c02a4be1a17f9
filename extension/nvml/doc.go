// SPDX-License-Identifier: Apache-2.0

// Package nvml is an extension of the OpenTelemetry Collector that reads NVIDIA GPUs through
// NVIDIA's management library (NVML), for the energy receiver. It is a separate module, because a
// collector with this extension loads libraries at run time and is not a static executable.
package nvml // import "github.com/energyreceiver/energyreceiver/extension/nvml"

//go:generate mdatagen metadata.yaml
