// SPDX-License-Identifier: Apache-2.0

// Package nvml is an extension of the OpenTelemetry Collector that reads NVIDIA GPUs by NVIDIA's
// management library (NVML), for the energy receiver. It is a module of its own: a collector with
// it loads libraries at run time, so it is no static program.
package nvml // import "github.com/energyreceiver/energyreceiver/extension/nvml"

//go:generate mdatagen metadata.yaml
