// SPDX-License-Identifier: Apache-2.0

package library

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"

	"github.com/energyreceiver/energyreceiver/internal/kernfs"
	"github.com/energyreceiver/energyreceiver/internal/units"
)

// socketOf returns the CPU socket of the module that contains the GPU at a PCI address. It is the
// package of the CPUs on the GPU's NUMA node, or all CPUs if sysfs below root does not list them.
func socketOf(root, address string) units.Domain {
	number := func(path ...string) (int, bool) {
		text, err := os.ReadFile(filepath.Join(append([]string{root, "sys"}, path...)...))
		first := -1
		if err == nil {
			err = kernfs.ParseList(bytes.TrimSpace(text), func(n int) {
				if first < 0 {
					first = n
				}
			})
		}
		return first, err == nil && first >= 0
	}
	node, ok := number("bus/pci/devices", address, "numa_node")
	if !ok {
		return units.NodeCPUs
	}
	cpu, ok := number("devices/system/node", "node"+strconv.Itoa(node), "cpulist")
	if !ok {
		return units.NodeCPUs
	}
	socket, ok := number("devices/system/cpu", "cpu"+strconv.Itoa(cpu), "topology/physical_package_id")
	if !ok {
		return units.NodeCPUs
	}
	return units.Domain("package-" + strconv.Itoa(socket))
}
