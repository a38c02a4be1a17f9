// SPDX-License-Identifier: Apache-2.0

// Package emissions is an OpenTelemetry Collector processor that adds greenhouse gas emissions to energy metrics.
//
// The energy of each interval is multiplied by the carbon intensity of that interval. The package
// holds the collector's side; internal/signal has the providers of carbon intensities.
package emissions // import "github.com/energyreceiver/energyreceiver/processor/emissions"

// For processors, mdatagen generates the test of a MetricsBuilder without the MetricsBuilder. The
// test does not compile and is removed.
//
//go:generate mdatagen metadata.yaml
//go:generate sed -i "s/^package processor/package emissions/" generated_component_test.go generated_package_test.go
//go:generate rm internal/metadata/generated_metrics_test.go
//go:generate go test -run=^TestReadmeHasTheSettings$ -count=1 . -update
