// SPDX-License-Identifier: Apache-2.0

// Package energyprofile is a processor of the OpenTelemetry Collector that turns CPU profiles into
// energy profiles. The samples of a process add up, to the microjoule, to the energy that the
// energy receiver in the same collector attributed to the process.
package energyprofile // import "github.com/energyreceiver/energyreceiver/processor/energyprofile"

//go:generate mdatagen metadata.yaml
