// SPDX-License-Identifier: Apache-2.0

// Package ledger keeps the totals of zones, kinds and accounts: one account for each process, program,
// container, pod and VM that has a series. Ledger.Add adds the shares of an interval, Ledger.Emitted
// and Ledger.Outcome follow the emissions of the totals.
//
// The package does no I/O, has no clock, and imports only attribution, identity, units and the
// standard library.
//
// # The life of a series
//
// A series is the energy and the CPU time of one process, program, container, pod or VM since a
// start. Limit bounds how many are live. The energy of a process without a series is in the series
// of its program. The energy of programs, containers and pods without one is in the series of their
// group, which has the same names. All other energy is in the series of the entity's others.
//
// A candidate has no series yet. Open makes the accounts of a process and of its program, container,
// pod and VM. A process is a candidate from its first energy. In each interval the energy of a
// candidate goes to the series that has it instead. It counts for the candidate's rank once the
// candidate contends: a process does when it may have a series, all others do from Open. The series
// of a candidate begins once there is room, it has used Limit.MinEnergy, and a process has the age
// Limit.MinAge. If too many began in the hour (Limit.Births), it begins after 5 minutes; a process
// waits until fewer began. If there is no room, the end of a collection is a contest: a candidate
// that uses more than the smallest live series takes its place. The margin for that doubles each time
// that the candidate lost its own. Without a minimum and with room, the series of a container, pod or
// VM begins in Open, and so does that of a process unless it is too young.
//
// A live series has all energy of its owner since the start of its first interval. It is emitted as
// soon as its names are complete.
//
// A series ends when its last claimant is released, or when a larger candidate takes its place. The
// series of a program or a group outlives the processes: it ends when its usage has decayed below a
// millijoule. A series that ended changes no more. It is in each emission until one is acknowledged
// as a whole, and is removed then. If the owner is opened again before that and there is room, the
// series goes on. A program, container, pod or VM that lost its place and still runs, or has no room,
// is a candidate that waits until the end is acknowledged. Otherwise the next consumer would have two
// series with the same attributes. A process that lost its place goes on with its series once it may
// begin one.
//
// # When a process ends
//
// Stop ends the idle energy of a process and its part in contests. It may still claim the CPU time
// of its last slice. Its series keeps its place until Leave. Close ends the claimant. Its claims stay
// while energy is deferred for them. Without any, the claimant is released: its series ends, and so
// does each other series without further claimants.
//
// # Emissions
//
// Emissions have numbers from 1. A Lifetime has two of them: the first emission of a series, and the
// first one with its end. So has each zone and kind, and each kind of an account has the first. The
// ledger has the number of the last emission that was sent, and of the last ones with each outcome.
// Everything else is a comparison:
//
//   - The next consumer may have points of a series if its first emission is not after the last
//     settled one. Until then the series needs its zero point.
//   - The next consumer took a point if the first emission is not after the last one taken, and may
//     have taken one while the outcome of an emission is still to come.
//   - A series is removed if the emission with its end is not after the last one acknowledged.
//
// If emissions are refused again and again, the series that ended add up. Of each entity, Limit.Max
// of them are kept, and no more than 10,000. The energy of a further one goes to the others if the
// next consumer took no point of it, and Totals.Dropped counts it. If the next consumer took points,
// there is room for Limit.Max more: beyond that, their energy is counted twice.
//
// # Restarts
//
// A State has the live series with their ranks, and those that ended. It has no candidates: their
// energy is in other series. In a restored ledger, number 1 stands for all emissions before, and all
// of these series have ended. Each goes on if its owner is opened before the end is acknowledged. A
// process whose series was live has it again at once, whatever it uses, if there is room. A program
// that was live goes on without its processes. Until they go on, the series of a State do not count
// among those that ended.
package ledger
