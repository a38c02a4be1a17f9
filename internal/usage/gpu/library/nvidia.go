// SPDX-License-Identifier: Apache-2.0

package library

import (
	"os"
	"path/filepath"
	"strings"

	"github.com/energyreceiver/energyreceiver/internal/units"
)

// FindNVIDIA returns the domains of the GPUs of NVIDIA's driver, which only NVIDIA's library can
// read. It searches sysfs below root for devices of the driver with PCI class 03 (display
// controller). Other devices of the driver, such as NVSwitches, are not GPUs.
func FindNVIDIA(root string) (found []units.Domain) {
	pci := filepath.Join(root, "sys/bus/pci")
	entries, err := os.ReadDir(filepath.Join(pci, "drivers/nvidia"))
	if err != nil {
		return nil
	}
	for _, entry := range entries { // links to devices, and the driver's own files
		device := filepath.Join(pci, "devices", entry.Name())
		if strings.Contains(entry.Name(), ":") && hasPrefix(device, "vendor", "0x10de") && hasPrefix(device, "class", "0x03") {
			found = append(found, units.GPU(entry.Name()))
		}
	}
	return found
}

func hasPrefix(device, attribute, prefix string) bool {
	text, err := os.ReadFile(filepath.Join(device, attribute))
	return err == nil && strings.HasPrefix(string(text), prefix)
}
