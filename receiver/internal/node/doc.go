// SPDX-License-Identifier: Apache-2.0

// Package node provides the CPU times of the node and of its processes, the cgroups, and the
// attribution weights that are measured.
package node
