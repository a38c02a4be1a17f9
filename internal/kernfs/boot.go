// SPDX-License-Identifier: Apache-2.0

package kernfs

import (
	"bytes"
	"os"
	"path/filepath"
)

// BootID returns the random identifier of the boot of the kernel whose /proc is below root
// (random(4)). Two trees with the same identifier are the same kernel's.
func BootID(root string) (string, error) {
	name := filepath.Join(root, "proc/sys/kernel/random/boot_id")
	id, err := os.ReadFile(name)
	if id, err = Result(name, id, err); err != nil {
		return "", err
	}
	return string(bytes.TrimSpace(id)), nil
}
