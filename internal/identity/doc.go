// SPDX-License-Identifier: Apache-2.0

// Package identity holds the identities of processes, and of the containers, pods, virtual
// machines, Slurm steps and systemd units that contain them.
//
// A Workload lists what contains a process; an Owner adds the process. An Entity is a process, a
// program or one part of a Workload. One table describes the attributes of all entities. The
// package does no I/O.
package identity
