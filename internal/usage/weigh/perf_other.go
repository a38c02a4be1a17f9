// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package weigh

import (
	"errors"

	"github.com/energyreceiver/energyreceiver/internal/usage/proc"
)

var errNotLinux = errors.New("perf events are Linux's")

func openRatios(string) (r rates, by string, err error) { return nil, "", errNotLinux }

func openPerf(string, proc.Event) (kernelCounters, error) { return nil, errNotLinux }
