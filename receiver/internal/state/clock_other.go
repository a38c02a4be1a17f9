// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package state

import "time"

// kernelClocks returns 0: the times are not known.
func kernelClocks() (boot, suspended time.Duration) { return 0, 0 }
