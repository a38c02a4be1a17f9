// SPDX-License-Identifier: Apache-2.0

package measure

import (
	"time"

	"go.uber.org/zap"

	energyreceiver "github.com/energyreceiver/energyreceiver/receiver"
)

// Options say what is run, and how it is measured.
type Options struct {
	Command []string
	// Config is how the node is measured and attributed.
	Config *energyreceiver.Config
	// Interval is the longest time between two measurements.
	Interval time.Duration
	// Baseline is how long the node is measured before the command starts, to learn its static power. 0 means not at all.
	Baseline time.Duration
	// Logger takes what the receiver has to say.
	Logger *zap.Logger
}
