// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package energyreceiver

import (
	"errors"
	"time"
)

func newKernelTimer(time.Duration) (metronome, error) { return nil, errors.ErrUnsupported }
