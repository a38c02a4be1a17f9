// SPDX-License-Identifier: Apache-2.0

// Package energyreceiver is the collector's side of the energy receiver: its factory, its configuration and
// the scraper, which measures, attributes and emits once per collection.
//
// What must never be here: how energy is read, how CPU time is read, or how one is split by the other.
package energyreceiver // import "github.com/energyreceiver/energyreceiver/receiver"

//go:generate go tool -modfile=../internal/tools/go.mod mdatagen metadata.yaml
//go:generate sed -i "s/^package receiver/package energyreceiver/" generated_component_test.go generated_package_test.go
