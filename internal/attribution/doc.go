// SPDX-License-Identifier: Apache-2.0

// Package attribution is the engine: it divides the energy of each zone into active and idle, and
// divides the active energy among the users of the zone's hardware, exact to the microjoule in
// every interval.
//
// Three words describe the hardware. A zone is one energy counter. A domain is hardware as
// something that is used, with a utilization and users of its own: the node's CPUs, or those of one
// socket. A kind is a set of zones that are reported together, such as all measured packages. Each
// reading of a zone names its domain and its kind.
//
// Engine.Observe takes an Interval. The energy of zones of one domain and kind is a Portion, which
// a StaticPowerModel or the utilization divides into active and idle. Active energy is shared among
// the domain's claims in proportion to an AllocationKey, idle energy by the IdleAllocation. A zone
// that could not be read, or whose domain's utilization could not, has its energy deferred, together
// with the claims of its own domain, until it can. The result is the Ledger: totals of zones, kinds
// and accounts, one account for each process, container, pod and VM that has a series.
//
// The reading of a slow or late meter has an age: its energy is of a time that ended earlier. The
// usage of the domain waits in slices of time until a reading covers it, and a slice that a reading
// covers in part is split in proportion to time. So energy, usage and static power of a portion are
// of the same time. What a portion lacks to its static energy is subtracted from later portions.
//
// The package does no I/O, has no clock, and imports only units and the standard library. It
// computes in integers; only Kind.Doubt is floating-point. The static power models that learn are
// in package static, which the engine uses through an interface.
package attribution
