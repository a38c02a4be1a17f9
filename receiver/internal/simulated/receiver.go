// SPDX-License-Identifier: Apache-2.0

// Package simulated describes a receiver that measures a simulated machine.
package simulated

import (
	"context"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/pdata/pmetric"

	"github.com/energyreceiver/energyreceiver/receiver/internal/attributor"
	"github.com/energyreceiver/energyreceiver/receiver/internal/training"
	"github.com/energyreceiver/energyreceiver/receiver/internal/windows"
)

// Receiver is a receiver whose simulator ends the windows.
type Receiver struct {
	Windows    *windows.Windows // with windows.Still as metronome, so that only Sample ends windows
	Training   *training.Training
	Attributor func() *attributor.Attributor // after Start

	Start    func(context.Context, component.Host) error
	Sample   func() // ends a window that does not end a collection
	Collect  func(context.Context) (pmetric.Metrics, error)
	Shutdown func(context.Context) error
}
