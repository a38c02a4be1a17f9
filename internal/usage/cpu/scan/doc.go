// SPDX-License-Identifier: Apache-2.0

// Package scan compares scans of the processes of a node.
//
// A CPU time source fills a Table again and again. The Table compares each scan with the previous
// one: what each process used, which processes are new, which exited with what last slice, and what
// short-lived processes used that no scan saw.
package scan
