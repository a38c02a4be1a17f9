// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package perf

import "errors"

// linux replaces the kernel on other systems.
type linux struct{}

var errNotLinux = errors.New("perf events are available only on Linux")

func (linux) check(string) error { return errNotLinux }

func (linux) open(uint32, []uint64, int) (counters, error) { return nil, errNotLinux }
