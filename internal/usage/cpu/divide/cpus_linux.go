// SPDX-License-Identifier: Apache-2.0

package divide

import (
	"fmt"
	"path/filepath"

	"github.com/prometheus/procfs"
)

// ReadCPUs returns the logical CPUs of the machine whose root directory is at root.
func ReadCPUs(root string) ([]CPU, error) {
	proc, err := procfs.NewFS(filepath.Join(root, "proc"))
	if err != nil {
		return nil, fmt.Errorf("CPU information: %w", err)
	}
	list, err := proc.CPUInfo()
	if err != nil {
		return nil, fmt.Errorf("CPU information: %w", err)
	}
	cpus := make([]CPU, 0, len(list))
	for i := range list {
		c := &list[i]
		cpus = append(cpus, CPU{int(c.Processor), c.VendorID, c.ModelName, c.PhysicalID, c.CoreID})
	}
	return cpus, nil
}
