// SPDX-License-Identifier: Apache-2.0

package state

import (
	"os"

	"golang.org/x/sys/unix"
)

// lockFile locks a file until it is closed. It fails if another open file description has the lock.
func lockFile(file *os.File) error { return unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB) }
