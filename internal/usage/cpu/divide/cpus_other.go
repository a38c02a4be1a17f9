// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package divide

import "errors"

// ReadCPUs fails: only Linux has /proc/cpuinfo.
func ReadCPUs(string) ([]CPU, error) {
	return nil, errors.New("CPU information: this platform has no /proc/cpuinfo")
}
