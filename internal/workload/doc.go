// SPDX-License-Identifier: Apache-2.0

// Package workload identifies the workload of a process (container, pod, virtual machine, Slurm
// job, systemd unit), its names, and whether it is excluded.
//
// It reads a process's cgroup, executable and command line, and interprets paths and arguments as
// their runtimes document. It uses only these files, no API server and no socket. IDs are always
// read, never generated.
//
// Names of cgroups can be trusted only if root chose them. Users, units and containers may create
// cgroups as well. IDs from cgroups of such an owner start with the owner's name. A directory below
// a user's manager or another unit is never a pod or a job.
package workload
