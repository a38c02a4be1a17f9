// SPDX-License-Identifier: Apache-2.0

// Package workload finds what a process belongs to, by what name, and what is excluded: containers,
// pods, virtual machines, Slurm jobs, units of systemd.
//
// It reads a process's cgroup, executable and command line, and interprets the paths and arguments
// that the makers of runtimes document. Identities come from there alone, not from an API server or
// a socket. Every ID is found, never invented.
//
// Names of cgroups can be trusted as far as root chose them. Users, units and containers may create
// cgroups, too: what such a delegate named has an ID that starts with the delegate's name. Nothing
// below a user's manager or another unit is a pod or a job.
package workload
