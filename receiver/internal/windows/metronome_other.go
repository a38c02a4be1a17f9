// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package windows

import (
	"errors"
	"time"
)

func newKernelTimer(time.Duration) (Metronome, error) { return nil, errors.ErrUnsupported }
