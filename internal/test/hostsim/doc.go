// SPDX-License-Identifier: Apache-2.0

// Package hostsim simulates a host with exact CPU times and energies, for tests.
//
// A Host renders itself as the /proc, cgroup and powercap trees of a kernel. It rewrites files in
// place, so that open descriptors see later renders. With the receiver it shares the power curves,
// the records of BPF programs and the interface of GPU libraries, but no code that measures.
package hostsim
