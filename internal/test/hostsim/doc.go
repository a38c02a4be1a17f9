// SPDX-License-Identifier: Apache-2.0

// Package hostsim simulates a host whose true CPU times and energies are known.
//
// A Host renders itself as the /proc, cgroup and powercap trees that a kernel would show. It rewrites files in place,
// so that open descriptors see later renders. The package is for tests, and imports nothing of the receiver.
package hostsim
