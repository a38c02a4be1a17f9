// SPDX-License-Identifier: Apache-2.0

// Package energyguests is an extension of the OpenTelemetry Collector that gives each virtual
// machine of a host the energy that the energy receiver attributed to it: in a directory that is
// shared with the machine, or over vsock.
package energyguests // import "github.com/energyreceiver/energyreceiver/extension/energyguests"

//go:generate mdatagen metadata.yaml
