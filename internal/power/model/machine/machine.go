// SPDX-License-Identifier: Apache-2.0

// Package machine finds out what a machine is, without a network: its CPU, its memory, whether it is virtual, and its type in a
// cloud.
package machine

// Machine is what is known of a machine. Fields that are not known are zero.
type Machine struct {
	// CPU is the name as the system shows it: "Intel(R) Xeon(R) Platinum 8259CL CPU @ 2.50GHz". On Arm it is the implementer's
	// name and the part's: "Arm Neoverse-N1".
	CPU string
	// Vendor, Family, Model and Stepping are those of /proc/cpuinfo on x86 ("GenuineIntel", 6, 85, 7). On Arm Vendor is the
	// implementer and Model the part of MIDR_EL1.
	Vendor                  string
	Family, Model, Stepping int
	// Threads are the CPUs that are online, Cores the cores and Sockets the packages that they are in. A virtual machine shows
	// what its hypervisor made up.
	Threads, Cores, Sockets int
	// Memory is MemTotal in bytes.
	Memory uint64
	// Virtual reports whether the machine is virtual.
	Virtual bool
	// Cloud and Instance are the public cloud, as the catalog calls it (aws, azure, gcp), and its type of the machine ("m5.large").
	Cloud, Instance string
}
