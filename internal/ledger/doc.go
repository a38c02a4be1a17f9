// SPDX-License-Identifier: Apache-2.0

// Package ledger keeps the totals of zones, kinds and accounts: one account for each process,
// program, container, pod and VM that has a series. Ledger.Add adds the shares of an interval.
// Ledger.Emitted and Ledger.Outcome record each emission of the totals and its outcome.
//
// The package does no I/O, has no clock, and imports only attribution, identity, units and the
// standard library.
//
// # The life of a series
//
// A series is the energy and the CPU time of one process, program, container, pod or VM since its
// start. Limit bounds the number of live series. The energy of a process without a series is in the
// series of its program. The energy of programs, containers and pods without a series is in the
// series of their group, which has the same names. All other energy is in the overflow series of
// the entity.
//
// A candidate is a process, program, container, pod or VM without a series. Open adds the program,
// container, pod and VM of a process, and the process becomes a candidate with its first energy. In
// each interval the energy of a candidate is added to the series that replaces its own. It counts
// for the candidate's rank once the candidate contends. A process contends once its series may
// begin. All other candidates contend from Open on.
//
// The series of a candidate begins if there is room, the candidate has used Limit.MinEnergy, and,
// for a process, its age is at least Limit.MinAge. If too many series began in the last hour
// (Limit.Births), the series of a process is delayed until the number is below the limit. Any other
// series then begins at the age of 5 minutes. If there is room and no minimum energy, the series of
// a container, pod or VM begins in Open. So does the series of a process that has the minimum age.
//
// If there is no room, a contest decides at the end of each collection: a candidate that uses more
// than the smallest live series takes its place. The required margin doubles each time that the
// candidate loses its series.
//
// A live series has all energy of its owner since the start of its first interval. It is emitted as
// soon as its names are complete.
//
// A series ends when its last claimant is released, or when a larger candidate takes its place. The
// series of a program or a group outlives its processes: it ends when its usage has decayed below a
// millijoule. A series that ended does not change. It is in each emission until an emission is
// acknowledged as a whole, and is then removed. If the owner is opened again before that and there
// is room, the series continues.
//
// A program, container, pod or VM is a candidate if it lost its place while it runs, or if it is
// opened again without room. Its next series begins only after the end of the last one is
// acknowledged. Otherwise the next consumer would have two series with the same attributes. A
// process that lost its place continues its last series once a series of the process may begin.
//
// # When a process ends
//
// After Stop a process carries no idle energy and is in no contest. It may still claim the CPU time
// of its last slice. Its series keeps its place until Leave. Close ends the claimant. Its claims
// stay while energy is deferred for them. When it has no such claims, the claimant is released: its
// series ends, and so does each other series without further claimants.
//
// # Emissions
//
// Emissions are numbered from 1. The Lifetime of a zone, a kind or an account holds two numbers:
// the first emission, and the first emission with its end. For each kind of an account, the ledger
// holds the number of the first emission. It also holds the number of the last emission that was
// sent, and of the last emission with each outcome. Everything else is a comparison:
//
//   - The next consumer may have points of a series if its first emission is not after the last
//     settled one. Until then the series needs its zero point.
//   - The next consumer took a point if the first emission is not after the last one taken. It may
//     have taken a point if the outcome of an emission has not been reported yet.
//   - A series is removed if the emission with its end is not after the last one acknowledged.
//
// If emissions are rejected repeatedly, ended series accumulate. For each entity, the ledger keeps
// at most Limit.Max of them, and at most 10,000. There is room for Limit.Max more series if the
// next consumer took points of them. Beyond these limits, an ended series is removed, and its
// energy moves to the series that replaces it. The energy of its points at the next consumer is
// then counted twice. Totals.Dropped counts the series that were removed in this way.
//
// # Restarts
//
// A State has the live series with their ranks, and the series that ended. It has no candidates:
// their energy is in other series. In a restored ledger, number 1 represents all earlier emissions,
// and all series of the State have ended. Each series continues if its owner is opened before the
// end is acknowledged. The live series of a process then continues regardless of its energy, if
// there is room. The live series of a program continues without its processes. Until they continue,
// the series of a State do not count as ended.
package ledger
