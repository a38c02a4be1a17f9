// SPDX-License-Identifier: Apache-2.0

// Package simulated describes a receiver that measures a simulated machine.
package simulated

import (
	"context"
	"time"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/pdata/pmetric"

	"github.com/energyreceiver/energyreceiver/receiver/internal/ledger"
	"github.com/energyreceiver/energyreceiver/receiver/internal/meters"
	"github.com/energyreceiver/energyreceiver/receiver/internal/node"
	"github.com/energyreceiver/energyreceiver/receiver/internal/training"
	"github.com/energyreceiver/energyreceiver/receiver/internal/windows"
)

// Receiver is a receiver whose simulator replaces the machine before Start, and ends the windows.
type Receiver struct {
	Now      *func() time.Time // the clock
	Node     *node.Node        // its Probes open the CPU time source
	Meters   *meters.Meters    // its OpenSet opens the meters
	Windows  *windows.Windows  // the sampler does not run if its Window is the configured one
	Training *training.Training
	Ledger   *ledger.Ledger

	Start    func(context.Context, component.Host) error
	Sample   func() // ends a window that does not end a collection
	Collect  func(context.Context) (pmetric.Metrics, error)
	Shutdown func(context.Context) error
}
