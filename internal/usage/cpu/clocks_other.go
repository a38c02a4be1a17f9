// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package cpu

import (
	"errors"

	"github.com/energyreceiver/energyreceiver/internal/units"
)

func isOwnThread(int32) bool { return false }

func ReadCPUClock(int32) (units.CPUTime, error) { return 0, errors.ErrUnsupported }
