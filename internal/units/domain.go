// SPDX-License-Identifier: Apache-2.0

package units

import "strings"

// Domain is hardware whose use is measured on its own: it has its own utilization and its own
// claimants. Each power zone names its domain.
//
// NodeCPUs is all CPUs of the node. The CPUs of one socket are "package-0", or "package-0-die-1" if
// a package has several dies. The kernel's RAPL driver uses the same names for their zones
// (drivers/powercap/intel_rapl_common.c, rapl_add_package).
type Domain string

// NodeCPUs is the domain of all CPUs of the node.
const NodeCPUs Domain = "node"

// GPU returns the domain of the GPU at a PCI address as sysfs writes it, such as 0000:03:00.0. A
// GPU that is not a PCI device has the name of its platform device instead.
func GPU(address string) Domain { return Domain(gpuPrefix + address) }

const gpuPrefix = "gpu-"

// IsGPU reports whether the domain is a GPU.
func (d Domain) IsGPU() bool { return strings.HasPrefix(string(d), gpuPrefix) }

// PCIAddress returns the PCI address of a GPU. ok is false for the CPUs, for a GPU that is not a
// PCI device, and for a GPU without a known address, which is named after its meter.
func (d Domain) PCIAddress() (address string, ok bool) {
	const form = "hhhh:hh:hh.d" // include/linux/pci.h, drivers/pci/probe.c, pci_setup_device: "%04x:%02x:%02x.%d"
	address, ok = strings.CutPrefix(string(d), gpuPrefix)
	head := len(address) - len(form) // a large first number has more digits
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

// fits reports whether c is a hexadecimal digit if want is 'h', a function number (0 to 7) if want
// is 'd', and otherwise equal to want.
func fits(c, want byte) bool {
	switch want {
	case 'h':
		return '0' <= c && c <= '9' || 'a' <= c && c <= 'f'
	case 'd':
		return '0' <= c && c <= '7'
	}
	return c == want
}
