// SPDX-License-Identifier: Apache-2.0

package cpu

import (
	"fmt"
)

// CountsInterrupts reports whether the kernel of the machine whose root directory is at root
// measures how long interrupts take. Otherwise Node.Interrupt is the time of ksoftirqd alone.
func CountsInterrupts(root string) (bool, error) {
	n := newProcFiles(root)
	defer func() { _ = n.proc.Close() }() // it was only read from
	b, err := n.read("stat")
	if err != nil {
		return false, err
	}
	now, err := parseNode(b)
	if err != nil {
		return false, fmt.Errorf("%s: %w", n.path("stat"), err)
	}
	return now.measuresInterrupts(), nil
}
