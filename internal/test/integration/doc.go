// SPDX-License-Identifier: Apache-2.0

// Package integration holds the built collector against real parts: a kernel's own RAPL driver in a virtual
// machine, Docker, libvirt. `make integration` runs its tests; without that they are skipped.
//
// guest/ is the first process of a virtual machine, load/ a program that uses CPU time as told, rapl/ a
// kernel module that emulates energy registers and knows their true energy. docs/integration.md says what
// each test proves. What must never be here: the receiver's own code. The tests see what its users see, the
// binary, its configuration and its output.
package integration
