// SPDX-License-Identifier: Apache-2.0

// Package integration tests the built collector and the command line tool with real systems: the
// kernel's drivers of RAPL and of other sensors in virtual machines, Docker, libvirt, Prometheus
// and Kubernetes. `make integration` runs the tests; without it they are skipped.
//
// Command guest is the first process of a virtual machine, command load a program with a given CPU
// load. rapl/ is a kernel module that emulates energy registers and reports their true energy, and
// sensors/ an ACPI table with power meters. dev/integration.md lists the requirements. The tests
// use the binaries, their configuration and their output, and no code of the receiver.
package integration
