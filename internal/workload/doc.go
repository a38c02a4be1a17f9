// SPDX-License-Identifier: Apache-2.0

// Package workload finds the workload that a process belongs to, its names, and whether it is
// excluded: containers, pods, virtual machines, Slurm jobs, units of systemd.
//
// It reads a process's cgroup, executable and command line, and interprets the paths and arguments
// that the makers of runtimes document. Identities come from these files alone, not from an API
// server or a socket. Every ID is found, never invented.
//
// Names of cgroups can be trusted only if root chose them. Users, units and containers may create
// cgroups as well: an ID that such a cgroup owner chose starts with the owner's name. A directory
// below a user's manager or another unit is never a pod or a job.
package workload
