// SPDX-License-Identifier: Apache-2.0

// Package hostsim is a host that is made up, so that what is true of it is known.
//
// A Host renders itself as the /proc, cgroup and powercap trees that a kernel would show, in place, so
// that descriptors which a reader keeps open go on working. Only tests use it. What must never be here:
// anything of the receiver's, or a figure that the receiver computed.
package hostsim
