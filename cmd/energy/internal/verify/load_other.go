// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package verify

import "errors"

// LoadCommand is the hidden command of this program that is a load.
const LoadCommand = "verify-load"

var errNotLinux = errors.New("loads run on Linux only")

// RunLoad returns an error.
func RunLoad([]string) error { return errNotLinux }

type noLoader struct{}

// NewLoader returns a Loader that starts nothing.
func NewLoader() Loader { return noLoader{} }

// CPUs implements Loader.
func (noLoader) CPUs() []int { return nil }

// Start implements Loader.
func (noLoader) Start(Load, []int) (Programs, error) { return nil, errNotLinux }
