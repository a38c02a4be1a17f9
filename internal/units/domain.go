// SPDX-License-Identifier: Apache-2.0

package units

import "strings"

// Domain is hardware whose use is measured on its own: it has its own utilization and its own
// claimants. Each power zone names its domain.
//
// NodeCPUs is all CPUs of the node. The CPUs of one socket are "package-0", or "package-0-die-1"
// where a package has several dies: the names that the kernel's RAPL driver gives to their zones
// (drivers/powercap/intel_rapl_common.c, rapl_add_package).
type Domain string

// NodeCPUs is the domain of all CPUs of the node.
const NodeCPUs Domain = "node"

// GPU returns the domain of the GPU at a PCI address as sysfs writes it, such as 0000:03:00.0. One
// that is no PCI device is named by its platform device.
func GPU(address string) Domain { return Domain(gpuPrefix + address) }

const gpuPrefix = "gpu-"

// IsGPU reports whether the domain is a GPU.
func (d Domain) IsGPU() bool { return strings.HasPrefix(string(d), gpuPrefix) }

// PCIAddress returns the address of the PCI device that the domain is. ok is false for a domain
// that is none: the CPUs, a GPU that is part of a chip, or one that is named after what measures it
// because its address is unknown.
func (d Domain) PCIAddress() (address string, ok bool) {
	const form = "hhhh:hh:hh.d" // include/linux/pci.h, drivers/pci/probe.c, pci_setup_device: "%04x:%02x:%02x.%d"
	address, ok = strings.CutPrefix(string(d), gpuPrefix)
	head := len(address) - len(form) // the first number has more digits where it is large
	if !ok || head < 0 {
		return "", false
	}
	for i := range len(address) {
		want := byte('h')
		if i >= head {
			want = form[i-head]
		}
		if !fits(address[i], want) {
			return "", false
		}
	}
	return address, true
}

// fits reports whether c is a hexadecimal digit where h is wanted, the number of a function (0 to
// 7) where d is, or else what is wanted.
func fits(c, want byte) bool {
	switch want {
	case 'h':
		return '0' <= c && c <= '9' || 'a' <= c && c <= 'f'
	case 'd':
		return '0' <= c && c <= '7'
	}
	return c == want
}
