//go:build !linux

package receiver

import (
	"errors"
	"time"
)

func newKernelTimer(time.Duration) (metronome, error) { return nil, errors.ErrUnsupported }
