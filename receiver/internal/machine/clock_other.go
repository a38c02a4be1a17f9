// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package machine

import "time"

// kernelClocks returns 0: only Linux has these clocks.
func kernelClocks() (boot, suspended time.Duration) { return 0, 0 }
