// SPDX-License-Identifier: Apache-2.0

// Package proc is the table of the processes of a node: what each of them used, scan by scan.
//
// A source of CPU time reports what it sees in a Scan. The Table decides what that means: which
// processes are new, what each of them used, which ones ended, and what was used beside the rows.
package proc
