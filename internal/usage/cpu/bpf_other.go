// SPDX-License-Identifier: Apache-2.0

//go:build !linux || !(amd64 || arm64)

package cpu

import "errors"

// BPF is not available on this platform.
type BPF struct{ Procfs }

// AwaitExits has no effect.
func (*BPF) AwaitExits() {}

// OpenBPF fails: the programs are compiled for Linux on amd64 and arm64.
func OpenBPF(Options) (*BPF, error) {
	return nil, errors.New("there are no BPF programs for this platform")
}
