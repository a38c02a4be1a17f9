// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package weigh

import (
	"errors"
	"time"

	"github.com/energyreceiver/energyreceiver/internal/usage/proc"
)

var errNotLinux = errors.New("perf events are available only on Linux")

func openRatios(string) (r rates, by string, err error) { return nil, "", errNotLinux }

// NodeCounter counts no event.
type NodeCounter struct{}

// OpenNodeCounter fails: only Linux counts events.
func OpenNodeCounter(string, proc.Event) (*NodeCounter, error) { return nil, errNotLinux }

// Read fails.
func (*NodeCounter) Read(time.Time) (uint64, error) { return 0, errNotLinux }

// Close has no effect.
func (*NodeCounter) Close() error { return nil }
