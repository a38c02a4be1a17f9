// SPDX-License-Identifier: Apache-2.0

// Package integration tests the built collector, and the command line tool beside it, with real
// parts: a kernel's own drivers of RAPL and of other sensors in virtual machines, Docker, libvirt,
// Prometheus and Kubernetes. `make integration` runs its tests; without it they are skipped.
//
// guest/ is the first process of a virtual machine, load/ a program with a given CPU load, rapl/ a
// kernel module that emulates energy registers and knows their true energy, sensors/ an ACPI table
// with power meters. dev/integration.md lists what the tests need. The tests use the binaries, their
// configuration and their output, and no code of the receiver.
package integration
