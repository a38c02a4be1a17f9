// SPDX-License-Identifier: Apache-2.0

package units

// Domain is hardware whose use is measured on its own: it has its own utilization and its own claimants. Each power
// zone names its domain.
//
// NodeCPUs is all CPUs of the node. The CPUs of one socket are "package-0", or "package-0-die-1" where a package has
// several dies: the names that the kernel's RAPL driver gives to their zones (drivers/powercap/intel_rapl_common.c,
// rapl_add_package).
type Domain string

// NodeCPUs is the domain of all CPUs of the node.
const NodeCPUs Domain = "node"

// GPU returns the domain of the GPU at a PCI address as sysfs writes it, such as 0000:03:00.0. One that is no PCI device is
// named by its platform device.
func GPU(address string) Domain { return Domain("gpu-" + address) }
