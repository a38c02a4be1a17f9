// SPDX-License-Identifier: Apache-2.0

// Package energyreceiver is an OpenTelemetry Collector receiver that measures the energy of a Linux
// node and attributes it to processes, containers, pods and virtual machines.
//
// The package holds the collector's side: the factory, the scraper, status and internal telemetry.
// The packages below internal hold the parts of the scraper.
package energyreceiver // import "github.com/energyreceiver/energyreceiver/receiver"

//go:generate mdatagen metadata.yaml
//go:generate sed -i "s/^package receiver/package energyreceiver/" generated_component_test.go generated_package_test.go
//go:generate go run ./internal/configdoc
