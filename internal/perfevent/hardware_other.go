// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package perfevent

import "errors"

// FindHardware fails: only Linux counts events.
func FindHardware(string) (*Hardware, error) {
	return nil, errors.New("only Linux counts hardware events")
}
