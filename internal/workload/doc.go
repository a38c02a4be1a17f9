// SPDX-License-Identifier: Apache-2.0

// Package workload says what a process belongs to: a container, a pod, a virtual machine.
//
// It reads a process's cgroup, executable and command line and knows the paths and arguments that the
// makers of runtimes document. Identities come from there alone, never from an API server or a socket.
// What must never be here: CPU time, energy, the collector's types; and no id is ever made up.
package workload
