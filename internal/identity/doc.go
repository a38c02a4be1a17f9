// SPDX-License-Identifier: Apache-2.0

// Package identity holds the identities of processes, and of the containers, pods, virtual
// machines, Slurm steps and systemd units that contain them.
//
// A Workload lists the container, pod and other units that contain a process. An Owner is a process
// and its Workload. An Entity is a process, a program or one part of a Workload. One table
// describes the attributes of all entities. The package does no I/O.
package identity
