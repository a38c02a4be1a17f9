// SPDX-License-Identifier: Apache-2.0

// Package energyspans is a connector of the OpenTelemetry Collector that sums the energy of energy
// profiles by service, route and span name. It takes the names from traces.
package energyspans // import "github.com/energyreceiver/energyreceiver/connector/energyspans"

//go:generate mdatagen metadata.yaml
//go:generate sed -i /connector.connectortest/a"go.opentelemetry.io/collector/connector/xconnector" generated_component_test.go
//go:generate gofmt -w generated_component_test.go
