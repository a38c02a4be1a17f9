// SPDX-License-Identifier: Apache-2.0

// Package proc is the table of the processes of a node and their CPU time, scan by scan.
//
// A source of CPU time reports in a Scan the processes, exits and charges that it finds. The Table
// decides which processes are new, how much CPU time each process used since the previous scan, and
// which processes exited.
//
// The calls of a scan have this order:
//
//  1. Table.Begin.
//  2. Scan.See or Scan.Run for each process that the source finds.
//  3. Scan.Exit for each exit event, which must not precede the calls of See for the same scan: a
//     process that is in the list and exits meanwhile must be reported in both ways.
//  4. Scan.Charge for time without a row. Scan.OldestIn and Table.Find name the row, so these follow all
//     exits.
//  5. Scan.Miss for the other processes that are gone.
//  6. Scan.End, or Scan.EndPartial if not all processes were looked at. A source with child times
//     ends all scans with End: EndPartial drops the growth of child times.
//
// A source that fails between Begin and End abandons the Scan. The Table keeps its rows, the
// next Scan continues from the abandoned one, and until then the Table has no usage to be read.
//
// Table.Shrink is called between a scan that succeeded and the next one. A source that keeps slots
// compares Table.Renumbered at the begin of a scan.
package proc
