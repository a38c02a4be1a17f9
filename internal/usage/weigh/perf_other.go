// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package weigh

import (
	"errors"

	"github.com/energyreceiver/energyreceiver/internal/cgroup"
)

var errNotLinux = errors.New("perf events are Linux's")

func openRatios(string) (r rates, by string, err error) { return nil, "", errNotLinux }

func openPerf(*cgroup.Tree, Event) (counts, error) { return nil, errNotLinux }
