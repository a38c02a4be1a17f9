// SPDX-License-Identifier: Apache-2.0

// Package attribution divides the energy of each zone into active and idle, and divides the active
// energy among the users of the zone's hardware. Sums are exact to the microjoule in every interval.
//
// Three words describe the hardware. A zone is one energy counter. A domain is hardware with its
// own utilization and its own users: the node's CPUs, the CPUs of one socket, or a GPU. A kind is a
// set of zones that are reported together, such as all measured packages. Each reading of a zone
// names its domain and its kind.
//
// Sharer.Share takes an Interval and returns its Shares. The energy of zones of one domain and kind
// is a Portion, which a StaticPowerModel or the utilization divides into active and idle. Active
// energy is shared among the domain's claims in proportion to a Weight, idle energy by the
// IdleAllocation. If a zone or the utilization of its domain cannot be read, the energy of the zone
// is deferred, together with the claims of the domain. Package ledger adds Shares to the totals of
// zones, kinds and accounts. A Sharer identifies claimants and zones by numbers only.
//
// The reading of a slow or late meter has an age: its energy belongs to a time that ended earlier. The
// usage of the domain is kept in slices of time until a reading covers the usage. A slice that a
// reading covers in part is split in proportion to time, so energy, usage and static power of a
// portion belong to the same time. If a portion has less than its static energy, the difference is
// subtracted from later portions.
//
// Sums are exact because idle energy is the rest of a portion, and the parts of a units.Division
// add up to its amount. Energy that is not attributed yet is in KindShares.Deferred. The invariant
// is documented at Sharer, and the tests of package ledger check it after every interval.
//
// The package does no I/O, has no clock, and imports only units and the standard library. It computes
// in integers; only KindShares.StandardError is floating-point. The static power models that are
// trained are in package static, which a Sharer uses through an interface.
package attribution
