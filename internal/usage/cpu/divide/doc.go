// SPDX-License-Identifier: Apache-2.0

// Package divide divides CPU time by CPU and by domain.
//
// A Topology has the domains of a node's CPUs, such as packages, and Siblings the threads of each
// core. A Division divides amounts of CPU time in proportion to what a scan showed.
package divide
