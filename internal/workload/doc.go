// SPDX-License-Identifier: Apache-2.0

// Package workload finds what a process belongs to, by what name, and who is excluded: containers, pods, virtual machines,
// Slurm jobs, units of systemd.
//
// It reads a process's cgroup, executable and command line, and interprets the paths and arguments that the makers of
// runtimes document. Identities come from there alone, not from an API server or a socket. Every ID is found, never
// invented.
package workload
