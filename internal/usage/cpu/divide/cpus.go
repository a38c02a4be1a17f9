// SPDX-License-Identifier: Apache-2.0

package divide

// CPU is the description of a logical CPU in /proc/cpuinfo. Fields that are not in it are empty.
type CPU struct {
	Number                       int
	Vendor, Model, Package, Core string
}
