// SPDX-License-Identifier: Apache-2.0

// Package energyreceiver provides the factory of the energy receiver at the root of the module, so that a builder
// configuration needs only the module:
//
//	receivers:
//	  - gomod: github.com/energyreceiver/energyreceiver v0.1.0
//
// The builder names the import of a component after the last element of its import path. The last element of the
// package that implements the receiver is "receiver", which the generated code already uses.
package energyreceiver // import "github.com/energyreceiver/energyreceiver"

import (
	"go.opentelemetry.io/collector/receiver"

	energy "github.com/energyreceiver/energyreceiver/receiver"
)

// NewFactory returns the factory of the energy receiver.
func NewFactory() receiver.Factory {
	return energy.NewFactory()
}
