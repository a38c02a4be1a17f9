// SPDX-License-Identifier: Apache-2.0

package divide

// CPU is what /proc/cpuinfo says of a logical CPU. What it does not say is empty.
type CPU struct {
	Number                       int
	Vendor, Model, Package, Core string
}
